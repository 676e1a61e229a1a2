"""The pages as the site takes them: each has a place in its table of contents; links lead to what is copied."""

import os
import re
from pathlib import Path

from source_pages import CHAPTERS, INDEX, copy_pages, local_links, pages, sections

from tests.paths import ROOT


def test_index_has_each_page_of_docs_once_and_the_first_page_of_a_chapter_leads_to_its_others() -> None:
    found = sections((ROOT / INDEX).read_text())
    for_users = ["Start", "Jobs", "Scheduling", "Library", "Frameworks"]
    assert [title for title, entries in found.items() if entries] == [
        *for_users,
        "Operate",
        "Reference",
        "Internals",
        "Evidence",
    ]
    listed = [os.path.normpath(Path(INDEX).parent / entry) for entries in found.values() for entry in entries]
    assert len(listed) == len(set(listed))
    chapters = {Path(page).parent: set[str]() for page in listed if CHAPTERS.fullmatch(page)}
    for folder in chapters:
        links = local_links((ROOT / folder / "README.md").read_text())
        chapters[folder] = {os.path.normpath(folder / link).removesuffix("/README.md") for link in links}
    known = {"README.md", INDEX, *listed}
    lost = [page for page in pages(ROOT) if str(page) not in known and not chapters.keys() & set(page.parents)]
    assert not lost, f"{INDEX} has no place for them"
    below = [(folder, page) for folder in chapters for page in pages(ROOT) if folder in page.parents]
    assert not [
        page for folder, page in below if page.parent != folder and str(page).removesuffix("/README.md") not in chapters[folder]
    ]


def test_every_link_of_a_copied_page_leads_to_a_copied_file_and_its_text_stays(tmp_path: Path) -> None:
    def without_links(text: str) -> str:
        return re.sub(r"\]\([^)]*\)", "]", text)

    copy_pages(ROOT, tmp_path)
    copied = {page: page.read_text() for page in tmp_path.rglob("*.md")}
    broken = [(page, link) for page, text in copied.items() for link in local_links(text) if not (page.parent / link).is_file()]
    assert not broken
    changed = [
        page
        for page in pages(ROOT)
        if not without_links(copied[tmp_path / page]).startswith(without_links((ROOT / page).read_text()))
    ]
    assert not changed
    contents = re.findall(r"```{toctree}(.+?)```", copied[tmp_path / "README.md"], re.DOTALL)
    entries = [entry for block in contents for entry in block.split("\n\n")[1].split()]
    assert entries and not [entry for entry in entries if not (tmp_path / entry).is_file()]
