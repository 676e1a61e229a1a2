"""Manifests of the public kinds, written after their documented fields, and what they become.

Each folder of cases/ holds `before.yaml` or `before.sbatch`, what is written for it (`after.yaml`,
or nothing), and what is said of it (`remarks.txt`). `python
tests/plugin/migration/test_migrated_manifests.py` writes the last two again, to be read before they
are committed.
"""

import difflib
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from elastic_pytorch_client.migration.documents import Migrated, migrate_documents, migrate_script
from elastic_pytorch_client.yaml_text import read_documents, write_documents
from elastic_pytorch_local.manifests.admission import check_migrated

from tests.documentation import blocks
from tests.faults import assert_none, fault_of
from tests.job_schema import VALIDATOR
from tests.paths import ROOT

FOLDER = ROOT / "tests" / "plugin" / "migration" / "cases"
CASES = sorted(path.parent for path in FOLDER.glob("*/before.*"))
NOT_MIGRATED = {
    "job-sweep",
    "jobset-two-trainings",
    "long-name",
    "placeholders",
    "slurm-function",
    "volcano-two-templates",
}

AS_IT_IS = "the object is written as it is"


def migrated(text: str) -> tuple[str, str]:
    """The manifests that are written for a text, and the remarks."""
    return written(migrate_documents(read_documents(text)))


def written_for(case: Path) -> tuple[str, str]:
    """The manifests that are written for a case, and the remarks."""
    script = case / "before.sbatch"
    if script.exists():
        return written([migrate_script(script.read_text(), script.name)])
    return migrated((case / "before.yaml").read_text())


def written(found: list[Migrated]) -> tuple[str, str]:
    documents = [document for one in found for document in one.documents]
    lines: list[str] = []
    for one in found:
        lines += [f"{one.title}: {remark}\n" for remark in one.remarks]
        lines += [f"{one.title}: error: {one.failed}\n"] if one.failed else []
    return write_documents(documents) if documents else "", "".join(lines)


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def jobs_of(text: str) -> list[dict[str, Any]]:
    return [
        document for document in yaml.safe_load_all(text) if document["kind"] == "ElasticPyTorchJob"
    ]


def changes(name: str, before: str, after: str) -> list[str]:
    """The lines that differ."""
    return [
        line.rstrip("\n")
        for line in difflib.unified_diff(
            before.splitlines(True), after.splitlines(True), name, name, n=1
        )
    ]


def test_manifests_and_remarks() -> None:
    assert len(CASES) > 30
    found = {case.name: written_for(case) for case in CASES}
    assert_none(
        line
        for name, (after, remarks) in found.items()
        for file, text in (("after.yaml", after), ("remarks.txt", remarks))
        for line in changes(f"{name}/{file}", text_of(FOLDER / name / file), text)
    )
    assert {name for name, (_, remarks) in found.items() if ": error: " in remarks} == NOT_MIGRATED


def test_a_cluster_would_admit_what_is_written() -> None:
    def check(case: Path) -> None:
        jobs = jobs_of((case / "after.yaml").read_text())
        assert jobs
        for job in jobs:
            VALIDATOR.validate(job)
            check_migrated(job)

    assert_none(
        f"{case.name}: {fault}"
        for case in CASES
        if case.name not in NOT_MIGRATED
        for fault in fault_of(check, case)
    )


def test_what_is_written_passes_again_as_it_is() -> None:
    texts = {case.name: text for case in CASES if (text := text_of(case / "after.yaml"))}
    found = {name: migrated(text) for name, text in texts.items()}
    assert_none(
        line for name, text in texts.items() for line in changes(name, text, found[name][0])
    )
    assert_none(
        f"{name}: {line}"
        for name, (_, remarks) in found.items()
        for line in remarks.splitlines()
        if AS_IT_IS not in line and "passed on as it is" not in line
    )


def test_the_page_shows_what_the_command_writes() -> None:
    shown = [
        block for block in blocks(ROOT / "docs" / "use" / "migrate.md") if block.language == "yaml"
    ]
    pairs = [
        (old.text, new.text)
        for old, new in itertools.pairwise(shown)
        if old.not_run and not new.not_run
    ]
    assert pairs
    for old, new in pairs:
        assert yaml.safe_load(migrated(old)[0]) == yaml.safe_load(new)


def write_all(say: Callable[[str], Any]) -> None:
    for case in CASES:
        after, remarks = written_for(case)
        for name, text in (("after.yaml", after), ("remarks.txt", remarks)):
            path = case / name
            if text:
                path.write_text(text)
            else:
                path.unlink(missing_ok=True)
        say(case.name)


if __name__ == "__main__":
    write_all(lambda name: sys.stdout.write(f"{name}\n"))
