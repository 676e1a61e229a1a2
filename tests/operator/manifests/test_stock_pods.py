import ast
from typing import Any

import pytest
from elastic_pytorch_operator.manifests.stock_pods import (
    STORE_PROGRAM,
    explain_refusal,
    run_id,
    store_pod,
)
from elastic_pytorch_operator.manifests.worker_pod import headless_service
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import a_job, a_stock_pod

TEMPLATE = {
    "spec": {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "hostNetwork": True,
        "securityContext": {"runAsUser": 1000},
        "volumes": [{"name": "data", "emptyDir": {}}],
        "containers": [
            {"name": "sidecar", "image": "other"},
            {
                "name": "pytorch",
                "image": "torch:1",
                "args": ["train.py"],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
                "securityContext": {"readOnlyRootFilesystem": True},
                "env": [{"name": "PET_MAX_RESTARTS", "value": "9"}],
            },
        ],
    }
}


def stock_job(backend: str = "c10d", **spec: Any) -> Job:
    endpoint = {"endpoint": "etcd.infra:2379"} if backend == "etcd-v2" else {}
    return a_job(rendezvous={"backend": backend, "port": 29600, **endpoint}, **spec)


def environment(pod: dict[str, Any]) -> dict[str, str]:
    return {v["name"]: v.get("value", "") for v in pod["spec"]["containers"][0]["env"]}


def test_worker_without_a_command_runs_stock_torchrun() -> None:
    pod = a_stock_pod(stock_job())
    container = pod["spec"]["containers"][0]
    assert container["command"] == ["python3", "-m", "torch.distributed.run"]
    assert container["args"] == ["train.py"]
    assert "volumeMounts" not in container, "no token: nothing of ours runs there"
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["metadata"]["labels"]["elasticpytorch.dev/rendezvous"] == "1"


def test_worker_finds_its_rendezvous_in_the_environment() -> None:
    env = environment(
        a_stock_pod(stock_job(minimum=2, nprocPerNode=4, failurePolicy={"maxFailures": 5}), 1, 3)
    )
    assert env["PET_NNODES"] == "2:4"
    assert env["PET_NPROC_PER_NODE"] == "4"
    assert env["PET_MAX_RESTARTS"] == "5"
    assert (env["PET_RDZV_BACKEND"], env["PET_RDZV_ENDPOINT"]) == ("c10d", "lm-store-3.lm:29600")
    assert env["PET_RDZV_ID"] == "uid-lm"
    assert env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    settings = dict(setting.split("=") for setting in env["PET_RDZV_CONF"].split(","))
    assert (settings["is_host"], settings["last_call_timeout"]) == ("0", "1")
    assert all(int(value) >= 0 for value in settings.values()), "torch takes whole numbers only"


def test_last_call_follows_settle_seconds_and_is_never_none() -> None:
    for seconds, expected in ((0, 1), (7, 7)):
        env = environment(a_stock_pod(stock_job(resizePolicy={"settleSeconds": seconds})))
        assert f"last_call_timeout={expected}," in env["PET_RDZV_CONF"]


def test_workers_address_is_the_pods_own() -> None:
    env = a_stock_pod(stock_job())["spec"]["containers"][0]["env"]
    [address] = [v for v in env if v["name"] == "PET_LOCAL_ADDR"]
    assert address["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_etcd_is_the_users() -> None:
    env = environment(a_stock_pod(stock_job("etcd-v2")))
    assert (env["PET_RDZV_BACKEND"], env["PET_RDZV_ENDPOINT"]) == ("etcd-v2", "etcd.infra:2379")
    assert "is_host" not in env["PET_RDZV_CONF"]


@pytest.mark.parametrize(
    ("backend", "rendezvous", "expected"),
    [
        ("c10d", 1, "uid-lm"),
        ("c10d", 4, "uid-lm"),
        ("etcd-v2", 1, "uid-lm"),
        ("etcd-v2", 4, "uid-lm-4"),
    ],
)
def test_run_id_stays_where_it_can(backend: str, rendezvous: int, expected: str) -> None:
    assert run_id(stock_job(backend), rendezvous) == expected


def test_job_without_a_maximum_leaves_room_to_scale() -> None:
    assert environment(a_stock_pod(stock_job(maximum=None)))["PET_NNODES"] == "1:4096"


def test_users_own_variables_and_command_stand() -> None:
    template = {
        "spec": {"containers": [{**TEMPLATE["spec"]["containers"][1], "command": ["torchrun"]}]}
    }  # type: ignore[dict-item]
    pod = a_stock_pod(stock_job(template=template))
    assert pod["spec"]["containers"][0]["command"] == ["torchrun"]
    assert environment(pod)["PET_MAX_RESTARTS"] == "9"


def test_store_runs_in_the_jobs_image_and_takes_no_more_than_it_needs() -> None:
    pod = store_pod(stock_job(template=TEMPLATE), "x", 2)
    [container] = pod["spec"]["containers"]
    assert (pod["metadata"]["name"], container["image"]) == ("lm-store-x", "torch:1")
    assert container["command"][:2] == ["python3", "-c"]
    assert container["command"][-1] == "29600"
    assert not any(container["resources"].values()), (
        "a LimitRange gives it what it gives the training container; no GPU"
    )
    assert container["securityContext"] == {"readOnlyRootFilesystem": True}
    spec = pod["spec"]
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert {"key": "gpu", "operator": "Exists"} in spec["tolerations"]
    assert "volumes" not in spec
    assert "hostNetwork" not in spec, "it has an address and a port of its own"
    assert pod["metadata"]["annotations"] == {
        "elasticpytorch.dev/training-container": container["name"]
    }


RATIO = "memory max limit to request ratio per Container is 3, but provided ratio is 8.000000"


@pytest.mark.parametrize(
    ("message", "explained"),
    [
        (f'pods "lm-store" is forbidden: {RATIO}', True),
        (
            'pods "lm-store" is forbidden: maximum memory usage per Container is 1Gi, '
            "but limit is 2Gi",
            True,
        ),
        (
            'pods "lm-store" is forbidden: [minimum memory usage per Pod is 512Mi, '
            "but request is 268435456, no]",
            True,
        ),
        (
            'pods "lm-store" is forbidden: failed quota: team: must specify limits.cpu for: '
            "pytorch",
            True,
        ),
        (
            'pods "lm-store" is forbidden: exceeded quota: team, requested: pods=1, used: '
            "pods=9, limited: pods=9",
            False,
        ),
        ('admission webhook "images" denied the request: torch:1 is not signed', False),
    ],
)
def test_refusal_of_the_store_for_its_resources_is_told_with_the_way_out(
    message: str, explained: bool
) -> None:
    told = explain_refusal(message)
    assert told.startswith(message)
    assert ("leave cpu and memory out of the training container's resources" in told) is explained
    assert ("memory 256Mi" in told) is explained


def test_store_is_reached_by_a_name_of_its_own() -> None:
    job = stock_job()
    pod = store_pod(job, "x", 2)
    assert (
        f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}:29600"
        == environment(a_stock_pod(job, rendezvous=2))["PET_RDZV_ENDPOINT"]
    )
    assert headless_service(job)["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_longest_name_still_makes_a_host_name() -> None:
    host = store_pod(stock_job(name="a" * 45), "x", 99_999)["spec"]["hostname"]
    assert len(host) <= 63


def test_store_program_is_python() -> None:
    ast.parse(STORE_PROGRAM)


@pytest.mark.parametrize(
    ("training", "store"),
    [
        ({"requests": {"cpu": "4"}}, {"requests": {"cpu": "50m"}, "limits": {}}),
        (
            {"limits": {"memory": "8Gi"}},
            {"requests": {"memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        ),
        (
            {"requests": {"cpu": "4"}, "limits": {"memory": "8Gi", "nvidia.com/gpu": 1}},
            {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        ),
    ],
)
def test_store_names_little_of_what_the_training_container_names(
    training: dict[str, Any], store: dict[str, Any]
) -> None:
    template = {
        "spec": {"containers": [{"name": "pytorch", "image": "torch", "resources": training}]}
    }
    [container] = store_pod(stock_job(template=template), "x", 1)["spec"]["containers"]
    assert container["resources"] == store
