"""Units of pods on a real cluster: one that lacks a pod leaves as a whole, and others train on."""

from collections import Counter
from typing import Any

import pytest

from tests.e2e.job_under_test import JobUnderTest, StartJob, leading_operator, members_of
from tests.e2e.kind_nodes import killed

pytestmark = pytest.mark.e2e

ARGS = ["/examples/units/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "100000"]


def indices(job: JobUnderTest) -> list[int]:
    return [worker["index"] for worker in members_of(job.status)]


def apart(pod: dict[str, Any]) -> None:
    """Puts the pods of a unit on different nodes, and spreads all of them."""
    workers = {"matchLabels": {"elasticpytorch.dev/job-name": "all-reduce"}}
    term = {
        "labelSelector": workers,
        "topologyKey": "kubernetes.io/hostname",
        "matchLabelKeys": ["elasticpytorch.dev/unit"],
    }
    pod["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    pod["topologySpreadConstraints"] = [{"labelSelector": workers, **spread}]


def test_unit_leaves_and_returns_as_a_whole_and_a_torn_one_is_not_wanted(
    start_job: StartJob,
) -> None:
    job = start_job(args=ARGS, replicas=6, minReplicas=2, maxReplicas=6, unitReplicas=2)
    job.until_world(6)
    assert indices(job) == [0, 1, 2, 3, 4, 5]
    labels = [pod["metadata"]["labels"] for pod in job.pods()]
    units = sorted(
        (label["elasticpytorch.dev/worker-index"], label["elasticpytorch.dev/unit"])
        for label in labels
    )
    assert units == [("0", "0"), ("1", "0"), ("2", "1"), ("3", "1"), ("4", "2"), ("5", "2")]
    before = job.status["round"]
    job.kubectl("delete", "pod", job.members()[3], "--grace-period=0", "--force")
    after = job.until(lambda status: status["round"] > before, "the round after the loss", 30)
    assert (after["round"], after["worldSize"]) == (before + 1, 4)
    assert sorted(worker["index"] for worker in members_of(after)) == [0, 1, 4, 5]
    job.until_world(6)
    assert sorted(indices(job)) == [0, 1, 2, 3, 4, 5]
    assert job.status["failures"] == 0

    job.kubectl("scale", f"epj/{job.name}", "--replicas=5")
    job.until_world(4)
    job.until_event(
        "ScaleRefused", "5 workers are not a multiple of unitReplicas (2): 4 are wanted"
    )


@pytest.mark.serial
@pytest.mark.long
def test_a_dead_node_takes_only_the_units_along_that_had_a_pod_there(start_job: StartJob) -> None:
    job = start_job(
        args=ARGS, change_pod=apart, replicas=6, minReplicas=2, maxReplicas=6, unitReplicas=2
    )
    job.until_world(6)
    places = {worker["index"]: worker["node"] for worker in job.status["workers"]}
    kept = leading_operator()["spec"]["nodeName"]
    counts = Counter(node for node in places.values() if node != kept)
    node, pods = max(counts.items(), key=lambda entry: entry[1])
    hit = {index // 2 for index, where in places.items() if where == node}
    assert (len(hit), pods) == (2, 2), f"a node with members of two units: {places}"
    before = job.status["round"]
    with killed(node):
        after = job.until(lambda status: status["round"] > before, "the round after the loss", 30)
        [left] = {0, 1, 2} - hit
        ranked = sorted(worker["index"] for worker in members_of(after))
        assert ranked == [2 * left, 2 * left + 1], (
            "the pods of the other units that live on wait for theirs"
        )
        job.until_world(6)
    status = job.until(lambda _: bool(job.interruptions()), "the account of the loss")
    print([(each["cause"], each["seconds"], each.get("stepsLost")) for each in job.interruptions()])
    assert status["failures"] == 0
