"""The documentation keeps its word: its links lead somewhere, its jobs are valid, its fields exist, its commands are run by a test."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from elastic_pytorch_local.manifests.admission import admit

from tests.documentation import blocks, indented_commands
from tests.job_schema import SCHEMA, VALIDATOR
from tests.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
PAGES += [ROOT / "charts" / "elastic-pytorch-operator" / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
# Modules of the operator whose names look like fields of a job.
SPEC_MODULES = {f"spec.{path.stem}" for path in (ROOT / "operator" / "elastic_pytorch_operator" / "spec").glob("*.py")}

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


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def jobs() -> Iterator[Any]:
    for page in PAGES:
        for number, block in enumerate(blocks(page)):
            if block.language == "yaml" and not block.not_run:
                yield pytest.param(block.text, id=f"{name_of(page)}-{number}")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(found), f"{target} is not there"


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_is_run_by_a_test(page: Path) -> None:
    if name_of(page) not in RUN_ON_THE_CLUSTER:
        unknown = [block.text for block in blocks(page) if block.language == "sh" and not block.not_run]
        assert not unknown, "name the page in RUN_ON_THE_CLUSTER, or say above the block why it is not run"
    for command in indented_commands(page):
        assert any(command.startswith(known) for known in RUN_ELSEWHERE), f"what runs `{command}`?"


@pytest.mark.parametrize("text", list(jobs()))
def test_job_in_the_text_is_valid(text: str) -> None:
    VALIDATOR.validate(yaml.safe_load(text))
    admit(yaml.safe_load(text))  # which knows of unknown fields


def fields(schema: dict[str, Any], path: str) -> set[str]:
    found = {path}
    for name, child in schema.get("properties", {}).items():
        found |= fields(child, f"{path}.{name}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_fields_in_the_text_exist(page: Path) -> None:
    known = fields(SCHEMA["properties"]["spec"], "spec") | fields(SCHEMA["properties"]["status"], "status") | SPEC_MODULES
    for field in re.findall(r"`((?:spec|status)\.[A-Za-z.]+?)[:`]", page.read_text()):
        # What is below the template is Kubernetes' own.
        assert field in known or field.startswith("spec.template.") or field.endswith(".py"), field


@pytest.mark.parametrize("page", ["use/getting-started.md", "use/pipelines.md"])
def test_python_in_the_text_compiles(page: str) -> None:
    for block in (block for block in blocks(ROOT / "docs" / page) if block.language == "python"):
        compile(block.text, page, "exec")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_column_of_a_table_has_a_heading(page: Path) -> None:
    lines = page.read_text().splitlines()
    heads = [above for above, line in pairwise(lines) if re.fullmatch(r"\|( ?-+ ?\|)+", line)]
    assert not [head for head in heads if not all(cell.strip() for cell in head.strip("|").split("|"))]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*/*.md")), ids=name_of)
def test_page_begins_with_a_paragraph(page: Path) -> None:
    assert re.match(r"# .+\n+[^#|>\s-].{20,}", page.read_text()), "say first for whom the page is, and what they get"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_installs_a_name_that_this_project_has_not_published(page: Path) -> None:
    assert not re.search(r"(pip|pipx) install ['\"]?elastic-pytorch", page.read_text()), "install it from a file or a folder"
