"""The rules of the CRD in CEL and their twins in Python judge alike.

The API server is given the same manifests by tests/e2e/api/test_admission.py: it admits all of
`good`, and says of each of `bad` what its first line expects.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.schema.rules import OWN, TWINS
from elastic_pytorch_operator.spec.schema.validator import check_job

from tests.faults import assert_none, fault_of
from tests.job_schema import RULE_WORDS, SCHEMA, rules
from tests.operator.builders import a_manifest
from tests.paths import ROOT

GOOD, BAD = (
    sorted((ROOT / "tests" / "manifests" / folder).glob("*.yaml")) for folder in ("good", "bad")
)
STOCK = {"backend": "c10d"}


def read(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.load(
        path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return manifest


def refusal_of(manifest: dict[str, Any]) -> str:
    try:
        check_job(manifest, strict=True)
    except InvalidJob as refused:
        return str(refused)
    return ""


def test_each_rule_that_judges_a_job_alone_has_a_twin() -> None:
    crd = {" ".join(rule["rule"].split()) for rule in rules(SCHEMA)}
    assert {rule for rule in crd if "oldSelf" not in rule} == TWINS.keys() == RULE_WORDS.keys()


def test_twins_admit_what_the_api_server_admits() -> None:
    assert {"edges", "stock-edges"} <= {path.stem for path in GOOD}
    assert_none(f"{path.name}: {refusal}" for path in GOOD if (refusal := refusal_of(read(path))))


def test_each_twin_refuses_what_its_rule_refuses_with_its_words() -> None:
    refusals = {path.name: refusal_of(read(path)) for path in BAD}
    assert_none(
        cel for cel, words in RULE_WORDS.items() if not any(map(words.search, refusals.values()))
    )
    assert_none(name for name, refusal in refusals.items() if not refusal)


def faults_of(path: Path) -> Iterator[str]:
    """What is wrong with a refusal: the API server and a rule name the same field and words."""
    expected = path.read_text().partition("\n")[0].removeprefix("# expect: ")
    refusal = refusal_of(read(path))
    words = expected.split(": ", 2 if expected.startswith("spec") else 0)[-1]
    by_rule = any(found.search(refusal) for found in RULE_WORDS.values())
    if field := re.match(r"spec[\w.\[\]]*", expected):
        if not refusal.startswith(field[0]):
            yield f"{field[0]} is expected, not {refusal}"
    elif by_rule and words not in refusal:
        yield f"{words} is expected, not {refusal}"


def test_refusals_are_those_of_the_api_server() -> None:
    assert_none(f"{path.name}: {fault}" for path in BAD for fault in faults_of(path))


def nested(path: str, value: object) -> dict[str, Any]:
    parent, _, name = path.rpartition(".")
    return {parent: {name: value}} if parent else {name: value}


VALUES: dict[str, Any] = {
    "prepare": {},
    "resizePolicy.allowedReplicas": [2],
    "scheduling.rankTopologyKey": "rack",
    "resizePolicy.checkpointPath": "/c",
    "unitReplicas": 2,
}


@pytest.mark.parametrize("path", OWN)
def test_stock_torchrun_is_not_given_what_only_the_operator_offers(path: str) -> None:
    fields = {"minimum": 2, **nested(path, VALUES.get(path, 2))}
    assert refusal_of(a_manifest(**fields)) == ""
    refusal = refusal_of(a_manifest(**fields, rendezvous=STOCK))
    assert refusal.startswith("spec.rendezvous.backend: must be operator if")
    assert refusal.endswith(f"(found: {path})")
    assert refusal_of(a_manifest(minimum=2, **nested(path, None), rendezvous=STOCK)) == ""


def one(**container: Any) -> dict[str, Any]:
    return {
        "template": {"spec": {"containers": [{"name": "trainer", "image": "torch", **container}]}}
    }


@pytest.mark.parametrize(
    ("change", "admitted"),
    [
        (one(args=["--lr", "--nnodes=2"]), False),
        (one(args=["--max-restarts=3", "--master-port=1", "train.py"]), False),
        (one(args=[*["--x"] * 5, "--standalone"]), False),
        (one(args=[*["--x"] * 6, "--standalone"]), True),
        (one(args=["train.py", "--standalone"]), True),
        (one(command=[], args=["--standalone"]), True),
        (one(command=None, args=["--standalone"]), False),
        (one(restartPolicyRules=[]), False),
        (one(restartPolicy=None), True),
        ({"nprocPerNode": "08"}, False),
        ({"nprocPerNode": "\u0662"}, False),
        ({"nprocPerNode": "xpu"}, True),
        ({"sharedMemorySize": -1}, False),
        ({"sharedMemorySize": "0"}, True),
        ({"sharedMemorySize": "8gb"}, False),
    ],
    ids=str,
)
def test_edges_of_rules(change: dict[str, Any], admitted: bool) -> None:
    assert (refusal_of(a_manifest(**change)) == "") is admitted


def test_null_is_as_good_as_absent() -> None:
    spec = SCHEMA["properties"]["spec"]["properties"]
    absent = [name for name in spec if name not in ("replicas", "minReplicas", "template")]
    assert_none(
        f"{name}: {fault}"
        for name in absent
        for fault in fault_of(check_job, a_manifest(**{name: None}))
    )
