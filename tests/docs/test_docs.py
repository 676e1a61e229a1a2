"""Links lead somewhere, jobs are valid, fields exist, and a test runs each command."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from elastic_pytorch_local.manifests.admission import admit

from tests.documentation import Block, blocks, found_in, indented_commands, name_of
from tests.faults import assert_none, fault_of
from tests.job_schema import SCHEMA, VALIDATOR
from tests.paths import ROOT

PAGES = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
PAGES += [ROOT / "charts" / "elastic-pytorch-operator" / "README.md"]
PAGES += [page for name in ("docs", "examples") for page in sorted((ROOT / name).rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FIELD = re.compile(r"`((?:spec|status)\.[A-Za-z.]+?)[:`]")
INSTALLED = re.compile(r"(pip|pipx) install ['\"]?elastic-pytorch")
# Modules of the operator whose names look like fields of a job.
SPEC_MODULES = {
    f"spec.{path.stem}"
    for path in (ROOT / "operator" / "elastic_pytorch_operator" / "spec").glob("*.py")
}

# tests/e2e/client/test_docs_commands.py runs the `sh` blocks of these, in their order.
RUN_ON_THE_CLUSTER = {"README.md", "docs/use/getting-started.md", "docs/operate/operations.md"}

# Commands that pages show without a block of their own, by how they begin, and what runs the same.
RUN_ELSEWHERE = {
    "helm install elastic-pytorch-operator charts/elastic-pytorch-operator": "hack/install.sh",
    "helm test elastic-pytorch-operator": "tests/e2e/client/test_docs_commands.py",
    "kubectl apply -f examples/": "tests/e2e/training/test_examples.py",
    "kubectl apply -f job.yaml": "tests/e2e/client/test_docs_commands.py",
    "kubectl scale epj/": "tests/e2e/training/test_lifecycle.py",
    "kubectl get epj": "tests/e2e/training/test_lifecycle.py",
    "kubectl describe epj": "tests/e2e/client/test_docs_commands.py",
    "kubectl delete pod": "tests/e2e/training/test_examples.py",
    "kubectl get pods -l elasticpytorch.dev/job-name=": "tests/e2e/job_under_test.py",
    "kubectl logs -f -l elasticpytorch.dev/job-name=": "tests/e2e/conftest.py",
    "kubectl epj": "tests/e2e/client/test_plugin.py",
    "kubectl krew install": "the tests of the plugin's release",
    "pipx install": "the tests of the plugin's release",
    "python -m elastic_pytorch_local": "tests/examples/test_torchrun.py",
    "python examples/export/": "tests/examples/test_export.py",
    "torchrun --standalone": "tests/examples/test_char_lm.py",
    "make ": "the Makefile, which the tests are started by",
}


def blocks_of(language: str, pages: list[Path] = PAGES) -> list[tuple[Path, str, Block]]:
    """The blocks of a language that are meant to be run: the page, the place and the block."""
    return [
        (page, f"{name_of(page)}:{block.line}", block)
        for page in pages
        for block in blocks(page)
        if block.language == language and not block.not_run
    ]


def is_there(page: Path, target: str) -> bool:
    """Whether a link leads to a file and a heading of the checkout, or out of it."""
    if target.startswith(("http://", "https://")):
        return True
    file, _, anchor = target.partition("#")
    found = (page.parent / file).resolve() if file else page
    return found.exists() and (not anchor or anchor in anchors(found))


@cache
def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings_that_are_there() -> None:
    links = found_in(PAGES, LINK)
    assert_none(
        f"{place}: {link[1]} is not there"
        for page, place, link in links
        if not is_there(page, link[1])
    )


def test_every_command_is_run_by_a_test() -> None:
    not_run = [
        f"{place}: name the page in RUN_ON_THE_CLUSTER, or say above the block why it is not run"
        for page, place, _ in blocks_of("sh")
        if name_of(page) not in RUN_ON_THE_CLUSTER
    ]
    unknown = [
        f"{name_of(page)}:{line}: what runs `{command}`?"
        for page in PAGES
        for line, command in indented_commands(page)
        if not any(command.startswith(known) for known in RUN_ELSEWHERE)
    ]
    assert_none([*not_run, *unknown])


def test_jobs_in_the_text_are_valid() -> None:
    def check(text: str) -> None:
        job = yaml.safe_load(text)
        VALIDATOR.validate(job)
        admit(job)  # which knows of unknown fields

    assert_none(
        f"{place}: {fault}"
        for _, place, block in blocks_of("yaml")
        for fault in fault_of(check, block.text)
    )


def fields(schema: dict[str, Any], path: str) -> set[str]:
    found = {path}
    for name, child in schema.get("properties", {}).items():
        found |= fields(child, f"{path}.{name}")
    return found


def test_fields_in_the_text_exist() -> None:
    known = (
        fields(SCHEMA["properties"]["spec"], "spec")
        | fields(SCHEMA["properties"]["status"], "status")
        | SPEC_MODULES
    )
    assert_none(
        f"{place}: there is no {field[1]}"
        for _, place, field in found_in(PAGES, FIELD)
        # What is below the template is Kubernetes' own.
        if field[1] not in known
        and not field[1].startswith("spec.template.")
        and not field[1].endswith(".py")
    )


def test_python_in_the_text_compiles() -> None:
    pages = [ROOT / "docs" / "use" / name for name in ("getting-started.md", "pipelines.md")]
    found = blocks_of("python", pages)
    assert {page for page, _, _ in found} == {*pages}
    assert_none(
        f"{place}: {fault}"
        for _, place, block in found
        for fault in fault_of(compile, block.text, place, "exec")
    )


def test_every_column_of_a_table_has_a_heading() -> None:
    lines = [
        (page, number, pair)
        for page in PAGES
        for number, pair in enumerate(pairwise(page.read_text().splitlines()), 1)
    ]
    heads = [
        (page, number, head)
        for page, number, (head, below) in lines
        if re.fullmatch(r"\|( ?-+ ?\|)+", below)
    ]
    assert_none(
        f"{name_of(page)}:{number}: {head}"
        for page, number, head in heads
        if not all(cell.strip() for cell in head.strip("|").split("|"))
    )


def test_pages_begin_with_a_paragraph_that_says_for_whom_they_are_and_what_these_get() -> None:
    begins = re.compile(r"# .+\n+[^#|>\s-].{20,}")
    assert_none(
        name_of(page)
        for page in sorted((ROOT / "docs").glob("*/*.md"))
        if not begins.match(page.read_text())
    )


def test_no_page_installs_a_name_that_this_project_has_not_published() -> None:
    assert_none(
        f"{place}: install it from a file or a folder" for _, place, _ in found_in(PAGES, INSTALLED)
    )
