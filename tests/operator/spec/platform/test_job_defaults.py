from typing import Any

import pytest
from elastic_pytorch_operator.cli import main
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.spec.job import Job, parse_job
from elastic_pytorch_operator.spec.platform.job_defaults import JobDefaults, parse_tolerations
from elastic_pytorch_operator.spec.stored_job import parse_stored

from tests.operator.builders import KEY, a_manifest, a_worker_pod

GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}
SPOT = {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
DEFAULTS = JobDefaults(600, "All", (GPU, SPOT))


def tolerating(*tolerations: dict[str, Any]) -> dict[str, Any]:
    manifest = a_manifest()
    manifest["spec"]["template"]["spec"]["tolerations"] = list(tolerations)
    return manifest


@pytest.mark.parametrize(
    ("spec", "ttl", "policy"),
    [
        ({}, 600, "All"),
        ({"ttlSecondsAfterFinished": 0}, 0, "All"),
        ({"cleanPodPolicy": "Running"}, 600, "Running"),
        ({"ttlSecondsAfterFinished": None, "cleanPodPolicy": None}, 600, "All"),
    ],
)
def test_job_has_its_own_values_and_else_the_defaults(
    spec: dict[str, Any], ttl: int, policy: str
) -> None:
    ended = {**a_manifest(**spec), "status": {}}
    invalid = {**ended, "spec": {**ended["spec"], "maxReplicas": "many"}}
    for job in (parse_job(ended, DEFAULTS), parse_stored(invalid, DEFAULTS)):
        assert (job.ttl_seconds, job.clean_pod_policy) == (ttl, policy)


def test_without_defaults_jobs_stay_and_keep_their_ended_pods() -> None:
    job = parse_job(a_manifest())
    assert (job.ttl_seconds, job.clean_pod_policy) == (None, "Running")


@pytest.mark.parametrize(
    ("own", "all_"),
    [
        ([], [GPU, SPOT]),
        ([SPOT], [SPOT, GPU]),
        ([{"operator": "Exists"}], [{"operator": "Exists"}, GPU, SPOT]),
    ],
)
def test_pods_have_the_tolerations_of_both_each_once(
    own: list[dict[str, Any]], all_: list[dict[str, Any]]
) -> None:
    manifest = tolerating(*own)
    assert a_worker_pod(parse_job(manifest, DEFAULTS))["spec"]["tolerations"][: len(all_)] == all_
    assert manifest == tolerating(*own), "the job's own manifest stays as it is"


def test_cache_reads_jobs_with_the_defaults() -> None:
    cache = Cache(defaults=DEFAULTS)
    cache.apply("ElasticPyTorchJob", a_manifest(), 1.0)
    job = cache.job(KEY)
    assert isinstance(job, Job)
    assert job.ttl_seconds == 600


@pytest.mark.parametrize("text", ["{", '{"key": "a"}', '["a"]', "3"])
def test_tolerations_are_a_list_of_objects(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|tolerations must be"):
        parse_tolerations(text)


def test_operator_does_not_start_with_tolerations_that_it_cannot_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--default-tolerations", '{"key": "a"}'])
    assert "tolerations must be a JSON list of objects" in capsys.readouterr().err
