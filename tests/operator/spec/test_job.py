"""Jobs as they are read. What the rules of the CRD refuse, `schema/test_rules.py` tells."""

from typing import Any

import pytest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import parse_job

from tests.operator.builders import a_job, a_manifest, a_worker_pod


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"replicas": 3, "minimum": 2, "maximum": None}, (3, 2, 3)),
        ({"replicas": 3, "minimum": None, "maximum": None}, (3, 3, 3)),
        ({"replicas": 3, "minimum": None, "maximum": None, "suspend": True}, (0, 3, 3)),
        (
            {"replicas": 3, "minimum": None, "maximum": None, "rendezvous": {"backend": "c10d"}},
            (3, 3, 3),
        ),
        ({"replicas": 3, "minimum": 1, "maximum": 4}, (3, 1, 4)),
        ({"replicas": 3, "minimum": 1, "resizePolicy": {"allowedReplicas": [4, 2]}}, (2, 2, 4)),
        ({"replicas": 7, "minimum": 4, "maximum": 8, "unitReplicas": 4}, (4, 4, 8)),
        ({"replicas": 7, "minimum": 4, "maximum": None, "unitReplicas": 4}, (4, 4, 7)),
        ({"replicas": 8, "minimum": None, "maximum": None, "unitReplicas": 4}, (8, 8, 8)),
        (
            {
                "replicas": 6,
                "minimum": 2,
                "maximum": 8,
                "unitReplicas": 2,
                "resizePolicy": {"allowedReplicas": [4, 8]},
            },
            (4, 4, 8),
        ),
        ({"replicas": 3, "suspend": True}, (0, 1, 4)),
    ],
)
def test_sizes(sizes: dict[str, Any], expected: tuple[int, int, int]) -> None:
    job = parse_job(a_manifest(**sizes))
    assert (job.wanted, job.minimum, job.maximum) == expected


def nested(depth: int) -> Any:
    return {"deeper": nested(depth - 1)} if depth else "x"


def asking(resource: str, amount: str) -> dict[str, Any]:
    return {
        "spec": {"containers": [{"name": "pytorch", "resources": {"limits": {resource: amount}}}]}
    }


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"minimum": 5}, "spec.maxReplicas"),
        ({"template": {"metadata": {}}}, "spec.template.spec"),
        (
            {"template": {"spec": {"containers": [{"name": "a"}], "x": nested(200)}}},
            "spec.template",
        ),
        (
            {"sharedVolumeClaims": [{"metadata": {"name": "a"}, "spec": {"x": nested(200)}}]},
            "spec.sharedVolumeClaims",
        ),
        ({"template": asking("nvidia.com/gpu", "9" * 300)}, "spec.nprocPerNode"),
    ],
)
def test_refusals_name_the_field(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidJob) as refusal:
        parse_job(a_manifest(**change))
    assert refusal.value.path == path
    assert str(refusal.value).startswith(path)


def test_no_change_waits_for_a_checkpoint_unless_it_is_said() -> None:
    job = parse_job(a_manifest())
    assert (job.checkpoint_wait_seconds, job.checkpoint_path) == (0, "")
    job = parse_job(
        a_manifest(resizePolicy={"checkpointWaitSeconds": 30, "checkpointPath": "/checkpoints"})
    )
    assert (job.checkpoint_wait_seconds, job.checkpoint_path, job.settle_seconds) == (
        30,
        "/checkpoints",
        1,
    )


def test_rendezvous_is_the_operators_unless_it_is_said_otherwise() -> None:
    assert not parse_job(a_manifest()).stock
    job = parse_job(a_manifest(rendezvous={"backend": "etcd-v2", "endpoint": "etcd:2379"}))
    assert (job.stock, job.backend, job.endpoint) == (True, "etcd-v2", "etcd:2379")


VARIABLE = "ELASTIC_PYTORCH_PREPARE_SECONDS"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, 0), ({}, 1800), ({"timeoutSeconds": 1}, 1), ({"timeoutSeconds": 86400}, 86400)],
)
def test_time_for_the_set_up_is_told_to_agents(given: Any, seconds: int) -> None:
    job = a_job(prepare=given)
    assert job.prepare_seconds == seconds
    [container] = a_worker_pod(job)["spec"]["containers"]
    told = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert told.get(VARIABLE) == (str(seconds) if seconds else None)
