"""The jobs are valid, and the same training is in all of them."""

from itertools import pairwise
from typing import Any

import pytest
from elastic_pytorch_local.manifests.admission import admit
from measure.recorded_job import scripts
from replay.jobs import JOBS, SCRIPTS, SIZE, Job, arguments, manifest
from replay.restart_all import ATTEMPT, INDEX, is_over, pod, service
from replay.traces import TRACES, compression

from tests.job_schema import VALIDATOR

FACTOR = 100.0
OPERATED = [job for job in JOBS.values() if job.operated]


@pytest.mark.parametrize("job", OPERATED, ids=lambda job: job.name)
def test_jobs_are_valid(job: Job) -> None:
    made = manifest(job, FACTOR, "trace-1")
    VALIDATOR.validate(made)
    admit(made | {"metadata": made["metadata"] | {"namespace": "trace-1"}})


def test_sizes_are_the_same_and_only_some_may_shrink() -> None:
    specs = {job.name: manifest(job, FACTOR, "trace-1")["spec"] for job in OPERATED}
    assert {spec["replicas"] for spec in specs.values()} == {SIZE}
    elastic = {name for name, spec in specs.items() if spec.get("minReplicas") == 1}
    assert elastic == {job.name for job in OPERATED if not job.fixed and not job.spares}
    assert {name for name, spec in specs.items() if "prepare" in spec} == {"library", "spares", "sharded"}
    assert specs["spares"]["spares"] == 1


@pytest.mark.parametrize("trace", TRACES)
def test_set_ups_and_checkpoints_are_compressed_alike(trace: str) -> None:
    factor = compression(TRACES[trace], 105.0)
    told = [list(arguments(job, factor)) for job in JOBS.values()]
    options = [{a: b for a, b in pairwise(each) if a.startswith("--") and a not in ("--how", "--folder")} for each in told]
    assert all(each == options[0] for each in options)
    assert float(options[0]["--set-up-seconds"]) == pytest.approx(300 / factor, abs=0.001)
    assert int(options[0]["--checkpoint-every"]) * float(options[0]["--step-seconds"]) == pytest.approx(1800 / factor, abs=0.1)


def test_scripts_are_those_that_containers_find() -> None:
    assert set(scripts(SCRIPTS)["data"]) == {"train.py", "events.py", "sharded_weights.py"}


def test_pods_without_the_operator_meet_at_the_first_one() -> None:
    job = JOBS["restart-all"]
    made = [pod(job, 2, index, "10.96.0.9", FACTOR, "trace-1") for index in range(SIZE)]
    assert [each["metadata"]["name"] for each in made] == ["restart-all-2-0", "restart-all-2-1", "restart-all-2-2"]
    variables = [{v["name"]: v.get("value") for v in each["spec"]["containers"][0]["env"]} for each in made]
    assert [each["PET_RDZV_ENDPOINT"] for each in variables] == ["127.0.0.1:29400", *["10.96.0.9:29400"] * 2]
    assert [each["PET_RDZV_CONF"][-1] for each in variables] == ["1", "0", "0"]
    assert {(each["PET_NNODES"], each["PET_MAX_RESTARTS"], each["PET_RDZV_ID"]) for each in variables} == {
        ("3", "0", "restart-all-2")
    }
    assert {each["spec"]["restartPolicy"] for each in made} == {"Never"}
    selector = service(job, 2)["spec"]["selector"]
    assert [selector.items() <= each["metadata"]["labels"].items() for each in made] == [True, False, False]


def a_pod(attempt: int, index: int, phase: str) -> dict[str, Any]:
    labels = {ATTEMPT: str(attempt), INDEX: str(index)}
    return {"metadata": {"name": f"p-{attempt}-{index}", "labels": labels}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("phases", "over"),
    [
        (["Running", "Running", "Pending"], False),
        (["Running", "Failed", "Running"], True),
        (["Running", "Succeeded", "Running"], True),
        (["Running", "Running"], True),
    ],
)
def test_attempt_is_over_when_a_pod_has_ended_or_is_gone(phases: list[str], over: bool) -> None:
    before = [a_pod(1, 0, "Failed")]
    assert is_over([*before, *(a_pod(2, index, phase) for index, phase in enumerate(phases))], 2) is over
