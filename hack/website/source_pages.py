"""The pages as the site's generator needs them.

On GitHub a link may lead to a folder, and docs/README.md is the index. The generator needs a page
for each folder, and a table of contents. Nothing else changes.
"""

import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

PAGES = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"),
    *("docs/**/*.md", "examples/**/README.md", "charts/*/README.md"),
)
HOME = "README.md"
INDEX = "docs/README.md"
# Its table of contents has the pages below its folder.
CHAPTER = Path("examples/README.md")
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
ENTRY = re.compile(r"^- \[[^\]]+\]\(([^)#\s]+)\)", re.MULTILINE)


def pages(root: Path) -> list[Path]:
    return sorted({path.relative_to(root) for pattern in PAGES for path in root.glob(pattern)})


def sections(index: str) -> dict[str, list[str]]:
    """The table of contents: the pages in the index's lists by headings, relative to docs/."""
    _, *parts = SECTION.split(index)
    return {title: ENTRY.findall(text) for title, text in zip(parts[::2], parts[1::2], strict=True)}


def local_links(text: str) -> Iterator[str]:
    """The targets of a page's links to files and folders, without anchors."""
    links = LINK.findall(text)
    return (link for link in links if "://" not in link and not link.startswith("mailto:"))


def copy_pages(root: Path, target: Path) -> None:
    """Copies the pages, what they link to, and a list of files for each folder among that."""
    for page in pages(root):
        text = LINK.sub(partial(_page_of_folder, root, page), (root / page).read_text())
        for link in local_links(text):
            _copy_linked(root, target, Path(os.path.normpath(page.parent / link)))
        if str(page) == HOME:
            text += _contents(root)
        elif page == CHAPTER:
            below = (each for each in pages(root) if page.parent in each.parents and each != page)
            text += toctree("", [str(each.relative_to(page.parent)) for each in below])
        _write(target / page, text)


def toctree(caption: str, entries: list[str]) -> str:
    options = [f":caption: {caption}"] if caption else []
    return "\n".join(["", "```{toctree}", *options, ":hidden:", "", *entries, "```", ""])


def _contents(root: Path) -> str:
    text = toctree("", [INDEX])
    for title, entries in sections((root / INDEX).read_text()).items():
        paths = [os.path.normpath(Path(INDEX).parent / entry) for entry in entries]
        text += toctree(title, paths) if paths else ""
    return text


def _page_of_folder(root: Path, page: Path, link: re.Match[str]) -> str:
    is_folder = "://" not in link[0] and (root / page.parent / link[0]).is_dir()
    return f"{link[0].rstrip('/')}/README.md" if is_folder else link[0]


def _copy_linked(root: Path, target: Path, path: Path) -> None:
    if path.suffix == ".md" and not (root / path).exists():
        files = sorted(each for each in (root / path.parent).iterdir() if each.is_file())
        listed = "".join(f"- [{file.name}]({file.name})\n" for file in files)
        _write(target / path, f"---\norphan: true\n---\n\n# {path.parent}\n\n{listed}")
        for file in files:
            shutil.copy(file, target / path.parent / file.name)
    elif path.suffix != ".md":
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, target / path)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
