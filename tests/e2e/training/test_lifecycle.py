"""A job's life on a real cluster: from apply through scaling and lost pods to Complete."""

import json
import re
import time

import pytest

from tests.e2e.job_under_test import (
    ENDLESS,
    JobUnderTest,
    StartJob,
    groups_told,
    run_kubectl,
    start_whole,
)
from tests.waiting import until

pytestmark = pytest.mark.e2e

SHORT = ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints", "--steps", "30"]


@pytest.fixture
def job(start_shared_job: StartJob) -> JobUnderTest:
    """Three workers that train; the tests that do something to them share the job."""
    return start_whole(start_shared_job, args=ENDLESS)


def rounds_told(lines: list[str]) -> list[tuple[int, int, int]]:
    """Round, rank and size, as an agent's log tells them."""
    found = [re.search(r"round (\d+): rank (\d+) of (\d+)", line) for line in lines]
    return [(int(m[1]), int(m[2]), int(m[3])) for m in found if m]


def until_rounds_told(job: JobUnderTest, pod: str, count: int) -> list[tuple[int, int, int]]:
    """Waits for so many rounds in an agent's log, which may come after those of the status."""
    until(
        lambda: len(rounds_told(job.logs(pod))) >= count,
        lambda: f"{count} rounds of {pod}: {rounds_told(job.logs(pod))}",
    )
    return rounds_told(job.logs(pod))


def test_apply_to_complete(start_job: StartJob) -> None:
    job = start_job(args=SHORT)
    status = job.until_world(3)
    assert status["state"] == "Running"
    assert status["readyReplicas"] == 3
    assert len({worker["node"] for worker in status["workers"]}) == 3, (
        "the workers are on different nodes"
    )
    columns = job.kubectl("get", "epj").splitlines()[0].split()
    assert columns == ["NAME", "STATE", "READY", "DESIRED", "PROGRESS", "REASON", "AGE"]
    run_kubectl(
        "-n", job.namespace, "wait", "--for=condition=Complete", f"epj/{job.name}", "--timeout=60s"
    )
    status = job.status
    assert (status["state"], status["round"], status["failures"]) == ("Complete", 1, 0)
    by_rank: dict[int, list[str]] = {}
    for pod in job.pods():
        lines = job.logs(pod["metadata"]["name"])
        [(round_, rank, size)] = rounds_told(lines)
        assert (round_, size) == (1, 3), "one round was enough"
        assert any(line.startswith(f"INIT rank={rank} world=3 ") for line in lines), (
            "torch sees what the round says"
        )
        by_rank[rank] = lines
    steps = [int(line.split()[1]) for line in by_rank[0] if line.startswith("STEP")]
    assert steps == list(range(1, 31))
    assert all(any(line.startswith("DONE") for line in lines) for lines in by_rank.values())
    until(
        lambda: all(pod["status"]["phase"] == "Succeeded" for pod in job.pods()),
        lambda: f"all pods to succeed: {[pod['status']['phase'] for pod in job.pods()]}",
    )


def test_scale_up_and_down(job: JobUnderTest) -> None:
    first, leader = job.status["round"], job.members()[0]
    told = len(job.logs(leader))
    job.kubectl("scale", f"epj/{job.name}", "--replicas=4")
    status = job.until_world(4)
    assert status["round"] == first + 1, "one round was enough"
    job.until_stepping(leader, 4, after=told)
    job.kubectl("scale", f"epj/{job.name}", "--replicas=2")
    status = job.until_world(2)
    assert [worker["index"] for worker in status["workers"] if "rank" in worker] == [0, 1], (
        "the highest indices went"
    )
    job.until_stepping(leader, 2, after=told)
    job.until(lambda status: status["replicas"] == 2 and len(job.pods()) == 2, "two pods")
    assert (job.status["round"], job.status["failures"]) == (first + 2, 0)
    assert job.members()[0] == leader


def test_killed_pod_is_replaced_and_survivors_go_on(job: JobUnderTest) -> None:
    first = job.status["round"]
    leader, *others = job.members()
    lines = len(job.logs(leader))
    before = len(rounds_told(job.logs(leader)))
    job.kubectl("delete", "pod", others[1], "--grace-period=0", "--force")
    job.until_stepping(leader, 2, after=lines)
    status = job.until(
        lambda status: status.get("worldSize") == 3 and status["round"] > first, "the old size"
    )
    assert others[1] not in job.members()
    assert status["failures"] == 0, "a lost pod is not the job's failure"
    rounds = until_rounds_told(job, leader, before + 2)[before - 1 :]
    assert [size for _, _, size in rounds] == [3, 2, 3], (
        "one round for the loss, one for the replacement"
    )
    assert {rank for _, rank, _ in rounds} == {0}, "a survivor keeps its rank"


def test_killed_worker_process_restarts_in_place(job: JobUnderTest) -> None:
    first = job.status["round"]
    leader, victim, _ = job.members()
    pods = sorted(pod["metadata"]["uid"] for pod in job.pods())
    groups = len(groups_told(job, leader))
    *_, started = [line for line in job.logs(victim) if "workers started" in line]
    pid = re.findall(r"\d+", started.partition("pids")[2])[0]
    job.kubectl("exec", victim, "--", "python3", "-c", f"import os; os.kill({pid}, 9)")
    job.until(lambda status: status["round"] == first + 1, "one more round", 30)
    until(lambda: len(groups_told(job, leader)) > groups, "the leader's next group")
    assert sorted(pod["metadata"]["uid"] for pod in job.pods()) == pods, "no pod was replaced"
    status = job.status
    assert (status["rootCause"]["worker"], status["rootCause"]["signal"]) == (victim, "SIGKILL")
    assert status["failures"] == 0, "killed from outside: not the job's failure"


def test_suspend_and_resume(job: JobUnderTest) -> None:
    run_kubectl(
        "-n",
        job.namespace,
        "wait",
        "--for=condition=Suspended=False",
        f"epj/{job.name}",
        "--timeout=10s",
    )
    until(
        lambda: any(int(step) > 11 for step in steps_told(job, job.members()[0])),
        "a step after the first checkpoint",
    )
    patch(job, suspend=True)
    run_kubectl(
        "-n", job.namespace, "wait", "--for=condition=Suspended", f"epj/{job.name}", "--timeout=60s"
    )
    assert job.pods() == []
    status = job.status
    assert (status["state"], status["replicas"], status["worldSize"], status["failures"]) == (
        "Suspended",
        0,
        0,
        0,
    )
    patch(job, template={"metadata": {"labels": {"team": "language"}}})
    patch(job, suspend=False)
    run_kubectl(
        "-n",
        job.namespace,
        "wait",
        "--for=condition=Suspended=False",
        f"epj/{job.name}",
        "--timeout=60s",
    )
    job.until_world(3)
    assert {pod["metadata"]["labels"]["team"] for pod in job.pods()} == {"language"}
    leader = job.members()[0]
    job.until_stepping(leader, 3)
    assert int(steps_told(job, leader)[0]) > 1, "it goes on from its checkpoint"
    for reason in ("JobSuspended", "JobResumed"):
        job.until_event(reason)


def patch(job: JobUnderTest, **spec: object) -> None:
    job.kubectl("patch", "epj", job.name, "--type=merge", "--patch", json.dumps({"spec": spec}))


def steps_told(job: JobUnderTest, pod: str) -> list[str]:
    return [line.split()[1] for line in job.logs(pod) if line.startswith("STEP")]


def test_delete_leaves_nothing(job: JobUnderTest) -> None:
    job.kubectl("delete", "epj", job.name, "--timeout=30s")
    until(
        lambda: not job.kubectl("get", "pods,services,epj", "-o", "name").strip(),
        lambda: f"all to go:\n{job.kubectl('get', 'pods,services,epj')}",
    )


def test_script_that_raises_fails_the_job_with_its_traceback(start_job: StartJob) -> None:
    job = start_job(args=[*SHORT, "--fail-at", "5"], failurePolicy={"maxFailures": 1}, replicas=2)
    job.until(lambda status: status.get("state") == "Failed", "the job's failure", 60)
    failed = job.condition("Failed")
    assert failed["reason"] == "TooManyFailures"
    assert "ValueError: told to fail at step 5" in failed["message"]
    assert job.status["rootCause"]["rank"] == 1


@pytest.mark.long
def test_applying_again_changes_nothing(start_job: StartJob) -> None:
    job = start_job(args=ENDLESS, replicas=1)
    job.until_world(1)
    before = (job.get()["metadata"]["generation"], [pod["metadata"]["uid"] for pod in job.pods()])
    start_job(args=ENDLESS, replicas=1)
    time.sleep(2)
    assert (
        job.get()["metadata"]["generation"],
        [pod["metadata"]["uid"] for pod in job.pods()],
    ) == before
    assert job.status["round"] == 1


def test_image_that_does_not_exist_is_named_in_a_condition(
    start_job: StartJob, namespace: str
) -> None:
    job = start_job(
        args=SHORT,
        template={
            "spec": {
                "containers": [
                    {"name": "pytorch", "image": "no-such-image:1", "imagePullPolicy": "Never"}
                ]
            }
        },
    )
    job.until(
        lambda _: "no-such-image:1" in job.condition("Running").get("message", ""),
        "the image's name",
    )
    assert job.condition("Running")["status"] == "False"
