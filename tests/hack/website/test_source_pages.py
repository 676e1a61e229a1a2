"""The pages as the site takes them: each has a place in its table of contents, and can be reached from it; links lead to what is copied."""

import os
import re
from pathlib import Path

import pytest
from source_pages import CHAPTERS, INDEX, copy_pages, local_links, pages, sections

from tests.paths import ROOT

AUDIENCES = ["Use", "Operate", "Reference", "Internals", "Evidence"]


def test_index_has_each_page_of_docs_in_one_section() -> None:
    found = sections((ROOT / INDEX).read_text())
    assert [title for title, entries in found.items() if entries] == AUDIENCES
    listed = [os.path.normpath(Path(INDEX).parent / entry) for entries in found.values() for entry in entries]
    assert len(listed) == len(set(listed))
    chapters = [Path(page).parent for page in listed if CHAPTERS.fullmatch(page)]
    missing = [
        str(page)
        for page in pages(ROOT)
        if str(page) not in {"README.md", INDEX, *listed} and not any(chapter in page.parents for chapter in chapters)
    ]
    assert not missing, f"{INDEX} has no place for them"


@pytest.mark.parametrize("chapter", [page for page in pages(ROOT) if CHAPTERS.fullmatch(str(page))], ids=str)
def test_first_page_of_a_chapter_leads_to_its_others(chapter: Path) -> None:
    links = {
        os.path.normpath(chapter.parent / link).removesuffix("/README.md") for link in local_links((ROOT / chapter).read_text())
    }
    others = {
        str(page).removesuffix("/README.md") for page in pages(ROOT) if chapter.parent in page.parents and page != chapter
    }
    assert others <= links


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    copy_pages(ROOT, target)
    return target


def test_every_link_of_a_copied_page_leads_to_a_copied_file(copied: Path) -> None:
    broken = [
        f"{page.relative_to(copied)}: {link}"
        for page in copied.rglob("*.md")
        for link in local_links(page.read_text())
        if not (page.parent / link).is_file()
    ]
    assert not broken


def test_text_of_a_page_stays_as_it_is(copied: Path) -> None:
    def without_links(text: str) -> str:
        return re.sub(r"\]\([^)]*\)", "]", text)

    for page in pages(ROOT):
        assert without_links((copied / page).read_text()).startswith(without_links((ROOT / page).read_text()))


def test_home_has_the_sections_of_the_index_at_its_side(copied: Path) -> None:
    home = (copied / "README.md").read_text()
    assert re.findall(r"^:caption: (.+)$", home, re.MULTILINE) == AUDIENCES
    assert all(
        (copied / entry).is_file()
        for block in re.findall(r"```{toctree}(.+?)```", home, re.DOTALL)
        for entry in block.split("\n\n")[1].split()
    )


def test_folder_that_a_page_links_to_becomes_a_list_of_its_files(tmp_path: Path) -> None:
    root, target = tmp_path / "root", tmp_path / "target"
    for file in ("docs/README.md", "examples/one/train.py", "examples/one/job.yaml", "examples/two/README.md"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(file)
    (root / "README.md").write_text("[one](examples/one), [two](examples/two#files), [a site](https://example.com)\n")
    copy_pages(root, target)
    expected = "[one](examples/one/README.md), [two](examples/two/README.md#files), [a site](https://example.com)\n"
    assert (target / "README.md").read_text().startswith(expected)
    assert "- [job.yaml](job.yaml)\n- [train.py](train.py)\n" in (target / "examples/one/README.md").read_text()
    assert (target / "examples/one/train.py").read_text() == "examples/one/train.py"
    assert (target / "examples/two/README.md").read_text() == "examples/two/README.md"
