"""From the release before this one, under jobs that train: their pods, with agents of that release, and their sizes stay."""

import json
from typing import Any

import pytest

from tests.e2e.endless_job import pods_of, start, steps_with
from tests.e2e.job_under_test import JobUnderTest, leading_operator, run_kubectl
from tests.e2e.release import install_earlier, restored, upgrade_earlier
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.serial]

BEFORE = "0.2.0"


def change(job: JobUnderTest, spec: dict[str, Any]) -> None:
    job.kubectl("patch", "epj", job.name, "--type=merge", "-p", json.dumps({"spec": spec}))


def groups_joined(log: list[str]) -> int:
    return len([line for line in log if line.startswith("INIT")])


def test_training_does_not_notice_an_upgrade_and_jobs_keep_their_pods_and_sizes(namespace: str) -> None:
    with restored():
        install_earlier(BEFORE)
        elastic = start(namespace, "elastic", replicas=2, minReplicas=1, maxReplicas=3)
        bounded = start(namespace, "bounded", minReplicas=1, maxReplicas=2)
        unsized = start(namespace, "unsized")
        worlds = [(elastic, 2), (bounded, 2), (unsized, 1)]
        for job, world in worlds:
            job.until_world(world)
            job.until_stepping(job.members()[0], world)
        # A pod that starts late on a busy machine joins the others' first round.
        before = {job.name: (job.members(), pods_of(job), job.get()["spec"], job.status["round"]) for job, _ in worlds}
        assert "replicas" not in before["bounded"][2]
        assert {field: before["unsized"][2].get(field) for field in ("replicas", "minReplicas", "nprocPerNode")} == {
            "replicas": None,
            "minReplicas": 1,
            "nprocPerNode": 1,
        }

        upgrade_earlier()
        # The one before may still be ending.
        until(lambda: leading_operator()["spec"]["containers"][0]["image"].endswith(":dev"), "the new operator to lead")
        for job, world in worlds:
            members, pods, _, round_ = before[job.name]
            seen = steps_with(job.logs(members[0]), world)[-1]
            job.until(lambda status: len(status["conditions"]) == 6, "a status of the new operator")
            job.until(lambda _: steps_with(job.logs(members[0]), world)[-1] > seen + 30, "some seconds under the new operator")  # noqa: B023
            assert (job.members(), pods_of(job), job.status["round"]) == (members, pods, round_)
            assert job.status["worldSize"] == world
            assert job.get()["spec"].get("replicas") == before[job.name][2].get("replicas")

        [first, second] = before["elastic"][0]
        started = groups_joined(elastic.logs(first))
        elastic.kubectl("scale", "epj/elastic", "--replicas=3")
        elastic.until_world(3)
        elastic.until_stepping(first, 3)
        assert elastic.members()[:2] == [first, second], "agents of both releases in a round"
        told = elastic.logs(first)
        assert groups_joined(told) == started + 1, "one more round"
        alone = steps_with(told, 2)
        assert alone == list(range(alone[0], alone[0] + len(alone))), "no step was done twice"

        change(bounded, {"replicas": 1})
        bounded.until_world(1)
        assert bounded.members() == before["bounded"][0][:1]
        bounded.kubectl("scale", "epj/bounded", "--replicas=2")
        bounded.until_world(2)

        change(unsized, {"suspend": True})
        unsized.kubectl("wait", "--for=condition=Suspended", "epj/unsized", "--timeout=90s")
        change(unsized, {"replicas": 2, "maxReplicas": 2, "suspend": False})
        unsized.until_world(2)
        assert unsized.status["failures"] == 0

        leader = leading_operator()
        run_kubectl("-n", leader["metadata"]["namespace"], "delete", "pod", leader["metadata"]["name"], "--wait=false")
        leading_operator(other_than=leader["metadata"]["name"])
        elastic.kubectl("delete", "pod", second, "--wait=false")
        elastic.until(lambda _: second not in elastic.members() and len(elastic.members()) == 3, "its place to be taken")
        assert first in elastic.members()
        assert elastic.status["failures"] == 0
