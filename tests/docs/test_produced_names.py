"""Pages print only conditions, reasons, events, states and fields that there are."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.model.announced_ends import MARKS
from elastic_pytorch_operator.monitoring.job_reasons import FAILURE_REASONS, WAIT_REASONS

from tests.documentation import found_in
from tests.faults import assert_none
from tests.job_schema import SCHEMA, VERSION
from tests.paths import ROOT

GENERATED = {"api.md", "metrics.md", "python-api.md"}
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "examples").rglob("*.md"))]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in GENERATED]
PRODUCT = ("operator", "worker_image", "plugin", "local", "crds", "charts", "examples")

NAME = r"[A-Z]+[a-z][A-Za-z]*"  # a placeholder, as TYPE, has no small letter
SPAN = f"`{NAME}`"
SPANS = rf"{SPAN}(?:(?:,|,? and|,? or) {SPAN})*"
NOUN = r"\b(?:[Cc]ondition|[Rr]eason|[Ee]vent)s?\b"
IN_TEXT = re.compile(rf"{NOUN} (?P<after>{SPANS})|(?P<before>{SPANS}) {NOUN}")
# `--for=condition=Complete`, `type == 'Failed'`, `reason=~"Evicted|PodLost"`
IN_EXPRESSION = re.compile(
    rf"\b(?:condition=|(?:reason|cause|type) ?(?:=~|==|=) ?[\"'])({NAME}(?:\|{NAME})*)"
)
IN_EVENTS = re.compile(r"^ *(?:Normal|Warning) +([A-Z]\w+)", re.MULTILINE)
TABLE = re.compile(r"^ +(NAME(?: +[A-Z]+)+)\n((?: +\S.*\n)+)", re.MULTILINE)  # as kubectl prints it
ROW = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)
REASON_TABLE = re.compile(r"^\| reason \|.*\n\|[- |]+\n((?:\|.*\n)+)", re.MULTILINE)
FIELD = re.compile(r"[`{]\.?status\.([A-Za-z.\[\]]+)[`}]")
TWO_WORDS = re.compile(r"(?<![\w./-])(?:[A-Z][a-z0-9]+){2,}(?![\w-])")

OWN = {
    value
    for name, value in vars(names).items()
    if name.isupper() and isinstance(value, str) and value.isalpha()
}
# Conditions, events and reasons of others.
OF_OTHERS = {
    "Kubernetes": {"DisruptionTarget", "Ready"},
    "kstatus, in Argo CD and Flux": {"Current", "Reconciling", "Stalled"},
    "PyTorchJob": {"Created", "Restarting", "Succeeded"},
    "an example of a node's condition": {"AcmeFabricDown"},
}
OTHER_THINGS = {
    "Kubernetes, Kueue and Argo CD": {"CreateNamespace", "LowerPriority"},
    "Python and frameworks": {
        *("BackboneFinetuning", "ComputeCache", "ConcatDataset", "DeepSpeedConfigError"),
        *("DistributedType", "ModuleNotFoundError", "ParallelAwareDataloader"),
        *("StatefulDataLoader", "StochasticWeightAveraging", "StreamingDataset", "TrainerState"),
    },
}
KNOWN = OWN.union(WAIT_REASONS, FAILURE_REASONS, (mark.key for mark in MARKS), *OF_OTHERS.values())
# The word of the job's state is one of those that the CRD describes.
STATES = set(
    re.findall(
        r"`([A-Z]\w+)`", SCHEMA["properties"]["status"]["properties"]["state"]["description"]
    )
)
COLUMNS = {column["name"].upper() for column in VERSION["additionalPrinterColumns"]} | {"NAME"}
COLUMNS_OF_PODS = {"NAME", "READY", "STATUS", "RESTARTS", "AGE", "UNIT"}


def said(text: str) -> Iterator[str]:
    """The names of conditions, reasons and events in a page."""
    for found in IN_TEXT.finditer(text):
        yield from re.findall(r"`(\w+)`", found["after"] or found["before"])
    for found in IN_EXPRESSION.finditer(text):
        yield from found[1].split("|")
    yield from IN_EVENTS.findall(text)
    for found in REASON_TABLE.finditer(text):
        yield from (name.strip("`") for cell in ROW.findall(found[1]) for name in cell.split(", "))


@cache
def words_of_the_product() -> set[str]:
    """All words of two capitals in the sources, manifests and examples."""
    files = [
        file
        for folder in PRODUCT
        for file in (ROOT / folder).rglob("*")
        if file.suffix in {".py", ".yaml", ".tpl", ".json"}
    ]
    return (
        set()
        .union(*(TWO_WORDS.findall(file.read_text()) for file in files))
        .union(*OTHER_THINGS.values(), KNOWN)
    )


def status_fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The dotted names of the fields, whether or not a list's name has brackets."""
    for name, child in schema.get("properties", {}).items():
        yield f"{path}{name}"
        yield from status_fields(child, f"{path}{name}.")
        if "items" in child:
            yield f"{path}{name}[]"
            yield from status_fields(child["items"], f"{path}{name}.")
            yield from status_fields(child["items"], f"{path}{name}[].")


STATUS_FIELDS = set(status_fields(SCHEMA["properties"]["status"]))


def faults_of(head: str, rows: str) -> Iterator[str]:
    """What is wrong with a table of kubectl."""
    columns = head.split()
    if not (set(columns) <= COLUMNS or set(columns) <= COLUMNS_OF_PODS):
        yield f"kubectl has no such columns: {head}"
    for row in rows.splitlines() if set(columns) <= COLUMNS and "STATE" in columns else ():
        cells = dict(zip(columns, row.split(), strict=False))
        if not (
            len(row.split()) == len(columns) and cells["STATE"] in STATES and cells["REASON"] in OWN
        ):
            yield f"kubectl prints no such row: {row.strip()}"


def test_conditions_reasons_and_events_are_those_of_the_operator() -> None:
    unknown = [
        (page, name) for page in PAGES for name in sorted(set(said(page.read_text())) - KNOWN)
    ]
    assert_none(
        f"{place}: {name}"
        for page, name in unknown
        for _, place, _ in found_in([page], re.compile(re.escape(name)))
    )


def test_names_in_code_are_in_the_product() -> None:
    spans = found_in(PAGES, re.compile(r"`([^`\n]+)`"))
    named = [(place, word) for _, place, span in spans for word in TWO_WORDS.findall(span[1])]
    assert_none(f"{place}: {word}" for place, word in named if word not in words_of_the_product())


def test_tables_of_kubectl_have_its_columns_states_and_reasons() -> None:
    tables = found_in(PAGES, TABLE)
    assert_none(
        f"{place}: {fault}" for _, place, table in tables for fault in faults_of(table[1], table[2])
    )


def test_fields_of_the_status_exist() -> None:
    assert_none(
        f"{place}: {field[1]}"
        for _, place, field in found_in(PAGES, FIELD)
        if field[1] not in STATUS_FIELDS
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "the event `WorkerGone` and the reasons `One`, `Two` or `Three`.",
            ["WorkerGone", "One", "Two", "Three"],
        ),
        ("a `WorkerGone` event; the `spec.suspend` condition", ["WorkerGone"]),
        (
            "`--for=condition=Ended`, type == 'Done', reason=~\"One|Two\", type=Path",
            ["Ended", "Done", "One", "Two"],
        ),
        ("    Warning  WorkerGone   36s   Round 4\n", ["WorkerGone"]),
        (
            "| reason | meaning |\n| --- | --- |\n| `WorkerGone`, One | it is away |\n",
            ["WorkerGone", "One"],
        ),
    ],
)
def test_names_are_found(text: str, found: list[str]) -> None:
    assert list(said(text)) == found
