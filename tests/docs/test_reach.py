"""README.md leads to every page of docs by at most two clicks."""

import os
from pathlib import Path

from source_pages import HOME, local_links, pages

from tests.faults import assert_none
from tests.paths import ROOT

CLICKS = 2
# A task of a newcomer, and the page that answers it.
TASKS = {
    "keep my checkpoints on S3": "docs/use/storage.md",
    "why is my job pending": "docs/use/troubleshooting.md",
    "my ranks hang": "docs/use/troubleshooting.md",
    "move this PyTorchJob": "docs/use/migrate.md",
    "use spot nodes": "docs/use/scheduling.md",
    "resize by hand": "docs/use/getting-started.md",
    "train a model larger than a pod": "docs/use/large-models.md",
    "what did interruptions cost": "docs/use/observability.md",
    "install on an air-gapped cluster": "docs/operate/install.md",
    "run it on minikube": "docs/operate/install.md",
}
INDEX = "docs/README.md"


def linked(page: Path) -> set[Path]:
    """The pages that a page links to; a folder stands for its README.md."""
    found = {
        Path(os.path.normpath(page.parent / link))
        for link in local_links((ROOT / page).read_text())
    }
    return {link / "README.md" if (ROOT / link / "README.md").is_file() else link for link in found}


def reached(clicks: int) -> set[Path]:
    """What README.md leads to by at most that many clicks."""
    found = {Path(HOME)}
    for _ in range(clicks):
        found |= {link for page in found if page.suffix == ".md" for link in linked(page)}
    return found


def test_every_page_of_docs_is_reached() -> None:
    docs = [page for page in pages(ROOT) if page.parts[0] == "docs"]
    assert len(docs) > 40
    near = reached(CLICKS)
    assert not [str(page) for page in docs if page not in near]


def test_table_of_tasks_leads_to_the_page_of_each_task() -> None:
    table = (ROOT / INDEX).read_text().partition("\n## ")[0]
    assert_none(
        f"{task}: {page}"
        for task, page in TASKS.items()
        if f"({os.path.relpath(page, 'docs')}" not in table
    )
