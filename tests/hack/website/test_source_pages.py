"""The site's pages have a place in the contents, and their links lead to what is copied."""

import os
import re
from pathlib import Path

from source_pages import CHAPTER, INDEX, copy_pages, local_links, pages, sections

from tests.paths import ROOT


def test_index_has_each_page_of_docs_once_and_the_page_of_the_examples_leads_to_each() -> None:
    found = sections((ROOT / INDEX).read_text())
    listed = [
        os.path.normpath(Path(INDEX).parent / entry)
        for entries in found.values()
        for entry in entries
    ]
    assert len(listed) == len(set(listed))
    known, examples = {"README.md", INDEX, *listed}, CHAPTER.parent
    lost = [page for page in pages(ROOT) if str(page) not in known and examples not in page.parents]
    assert not lost, f"{INDEX} has no place for them"
    led_to = {
        os.path.normpath(examples / link) for link in local_links((ROOT / CHAPTER).read_text())
    }
    below = [page for page in pages(ROOT) if examples in page.parents and page != CHAPTER]
    assert not [page for page in below if not {str(page), str(page.parent)} & led_to]


def test_every_link_of_a_copied_page_leads_to_a_copied_file_and_its_text_stays(
    tmp_path: Path,
) -> None:
    def without_links(text: str) -> str:
        return re.sub(r"\]\([^)]*\)", "]", text)

    copy_pages(ROOT, tmp_path)
    copied = {page: page.read_text() for page in tmp_path.rglob("*.md")}
    broken = [
        (page, link)
        for page, text in copied.items()
        for link in local_links(text)
        if not (page.parent / link).is_file()
    ]
    assert not broken
    changed = [
        page
        for page in pages(ROOT)
        if not without_links(copied[tmp_path / page]).startswith(
            without_links((ROOT / page).read_text())
        )
    ]
    assert not changed
    contents = re.findall(r"```{toctree}(.+?)```", copied[tmp_path / "README.md"], re.DOTALL)
    entries = [entry for block in contents for entry in block.split("\n\n")[1].split()]
    assert entries and not [entry for entry in entries if not (tmp_path / entry).is_file()]
