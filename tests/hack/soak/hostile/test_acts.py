"""What the tenant writes is what an API server takes, and is unreadable or unbuildable all the same."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from soak.hostile import acts, manifests
from soak.hostile.manifests import Namespaces

from tests.job_schema import VALIDATOR

NAMESPACES = Namespaces("soak-1")
MAX_ANNOTATIONS_BYTES = 256 * 1024
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")  # what Kubernetes allows as a label's value
UNBUILDABLE = {**acts.UNBUILDABLE_QUANTITIES, **acts.UNBUILDABLE_TEMPLATES}


@pytest.mark.parametrize("turn", range(40))
def test_unreadable_metadata_is_valid(turn: int) -> None:
    change = acts.unreadable(turn)
    assert all(LABEL.fullmatch(value) and len(value) <= 63 for value in change["labels"].values())
    assert sum(len(text.encode()) for text in change["annotations"].values()) < MAX_ANNOTATIONS_BYTES


def test_each_unreadable_text_comes_and_no_two_turns_are_the_same() -> None:
    turns = [acts.unreadable(turn) for turn in range(40)]
    assert {next(iter(turn["annotations"].values())) for turn in turns} == set(acts.UNREADABLE_TEXTS)
    assert {next(iter(turn["labels"].values())) for turn in turns} == set(acts.UNREADABLE_LABELS)
    assert all(before != after for before, after in pairwise(turns))


def jobs() -> dict[str, dict[str, Any]]:
    found = {name: manifests.job(name, changes=changes) for name, changes in UNBUILDABLE.items()}
    return found | {"flood": manifests.flood_job(NAMESPACES), "wants": manifests.job("wants", replicas=4)}


@pytest.mark.parametrize("name", jobs())
def test_jobs_pass_the_validation_of_the_api_server(name: str) -> None:
    VALIDATOR.validate(jobs()[name])


def test_every_program_has_a_limit_of_its_cpu() -> None:
    pods = [manifests.program(name, NAMESPACES)["spec"]["template"]["spec"] for name in manifests.PROGRAMS]
    pods.append(manifests.flood_job(NAMESPACES)["spec"]["template"]["spec"])
    limits = [container["resources"]["limits"]["cpu"] for pod in pods for container in pod["containers"]]
    assert len(limits) == 4
    assert sum(int(limit.removesuffix("m")) for limit in limits) <= 500, "a quarter of two cores"


def test_the_webhook_is_asked_about_the_pods_of_one_namespace_only() -> None:
    [webhook] = manifests.hanging_webhook(NAMESPACES, "PEM")["webhooks"]
    assert webhook["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "soak-1-hanging"}}


def test_scripts_are_those_that_the_programs_start() -> None:
    started = [manifests.program(name, NAMESPACES)["spec"]["template"]["spec"] for name in manifests.PROGRAMS]
    started.append(manifests.flood_job(NAMESPACES)["spec"]["template"]["spec"])
    files = {pod["containers"][0]["command"][1].removeprefix("/scripts/") for pod in started}
    data = manifests.scripts("PEM")["data"]
    assert data.pop("hang.pem") == "PEM"
    assert set(data) == files | {"tally.py"}
    for source in data.values():
        compile(source, "script", "exec")


def test_a_stray_pod_names_a_job_as_its_controller() -> None:
    pod = manifests.stray_pod(3, {"name": "annotated", "uid": "u1"})
    [owner] = pod["metadata"]["ownerReferences"]
    assert (owner["name"], owner["uid"], owner["controller"]) == ("annotated", "u1", True)
    assert json.dumps(pod)
