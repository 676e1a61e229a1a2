from typing import Any

import pytest
from elastic_pytorch_operator.spec.platform.strategic_merge import merge


def pod(**spec: Any) -> dict[str, Any]:
    return {"template": {"spec": spec}}


def env(*names_and_values: tuple[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in names_and_values]


FROM_SECRET = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def pytorch(**fields: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "pytorch", **fields}])


def tolerated(key: str) -> dict[str, str]:
    return {"key": key, "operator": "Exists"}


def extra_workers(**fields: Any) -> dict[str, Any]:
    return {"scheduling": {"extraWorkers": fields}}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "nothing of its own": ({"ttlSecondsAfterFinished": 1}, {}, {"ttlSecondsAfterFinished": 1}),
    "a field of its own": (
        {"nprocPerNode": 8},
        {"nprocPerNode": 4, "replicas": 2},
        {"nprocPerNode": 4, "replicas": 2},
    ),
    "fields of one object": (
        {"failurePolicy": {"maxFailures": 9, "backoffLimit": 2}},
        {"failurePolicy": {"maxFailures": 1}},
        {"failurePolicy": {"maxFailures": 1, "backoffLimit": 2}},
    ),
    "null removes": (
        {"prepare": {"timeoutSeconds": 9}, "spares": 1},
        {"prepare": None},
        {"spares": 1},
    ),
    "containers by name": (
        pod(
            containers=[
                {"name": "pytorch", "image": "a", "resources": {"limits": {"cpu": 1}}},
                {"name": "log", "image": "b"},
            ]
        ),
        pod(containers=[{"name": "new", "image": "c"}, {"name": "pytorch", "args": ["train.py"]}]),
        pod(
            containers=[
                {
                    "name": "pytorch",
                    "image": "a",
                    "resources": {"limits": {"cpu": 1}},
                    "args": ["train.py"],
                },
                {"name": "log", "image": "b"},
                {"name": "new", "image": "c"},
            ]
        ),
    ),
    "args as a whole": (pytorch(args=["a", "b"]), pytorch(args=["c"]), pytorch(args=["c"])),
    "env by name": (
        pytorch(env=env(("A", "1"), ("B", "1"))),
        pytorch(env=env(("C", "2"), ("A", "2"))),
        pytorch(env=env(("A", "2"), ("B", "1"), ("C", "2"))),
    ),
    "two of one key": (
        pytorch(ports=[{"containerPort": 1, "name": "a"}]),
        pytorch(ports=[{"containerPort": 1, "hostPort": 2}, {"containerPort": 1, "name": "b"}]),
        pytorch(ports=[{"containerPort": 1, "hostPort": 2, "name": "b"}]),
    ),
    "a variable of another kind": (
        pytorch(env=[FROM_SECRET]),
        pytorch(env=env(("A", "1"))),
        pytorch(env=env(("A", "1"))),
    ),
    "mounts by path": (
        pytorch(volumeMounts=[{"mountPath": "/data", "name": "a", "readOnly": True}]),
        pytorch(
            volumeMounts=[{"mountPath": "/data", "name": "b"}, {"mountPath": "/x", "name": "a"}]
        ),
        pytorch(
            volumeMounts=[
                {"mountPath": "/data", "name": "b", "readOnly": True},
                {"mountPath": "/x", "name": "a"},
            ]
        ),
    ),
    "ports by number and protocol": (
        pytorch(ports=[{"containerPort": 80, "name": "web"}]),
        pytorch(
            ports=[
                {"containerPort": 80, "protocol": "TCP"},
                {"containerPort": 80, "protocol": "UDP"},
            ]
        ),
        pytorch(
            ports=[
                {"containerPort": 80, "name": "web", "protocol": "TCP"},
                {"containerPort": 80, "protocol": "UDP"},
            ]
        ),
    ),
    "volumes by name, each with one source": (
        pod(
            volumes=[{"name": "data", "emptyDir": {}}, {"name": "code", "configMap": {"name": "c"}}]
        ),
        pod(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}]),
        pod(
            volumes=[
                {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
                {"name": "code", "configMap": {"name": "c"}},
            ]
        ),
    ),
    "tolerations follow, each once": (
        pod(tolerations=[tolerated("gpu")]),
        pod(tolerations=[tolerated("spot"), tolerated("gpu")]),
        pod(tolerations=[tolerated("gpu"), tolerated("spot")]),
    ),
    "tolerations of extra workers, too": (
        extra_workers(nodeSelector={"capacity": "spot"}, tolerations=[{"key": "spot"}]),
        extra_workers(tolerations=[{"key": "gpu"}]),
        extra_workers(
            nodeSelector={"capacity": "spot"}, tolerations=[{"key": "spot"}, {"key": "gpu"}]
        ),
    ),
    "what has no key stays apart": (
        pod(containers=[{"image": "a"}, "b"]),
        pod(containers=[{"image": "c"}, {"name": ["d"]}]),
        pod(containers=[{"image": "a"}, "b", {"image": "c"}, {"name": ["d"]}]),
    ),
    "another type": (
        pod(containers=[{"name": "a"}]),
        {"template": {"spec": 3}},
        {"template": {"spec": 3}},
    ),
}


@pytest.mark.parametrize(("template", "own", "whole"), CASES.values(), ids=list(CASES))
def test_merged(template: dict[str, Any], own: dict[str, Any], whole: dict[str, Any]) -> None:
    before = repr(template), repr(own)
    assert merge(template, own) == whole
    assert (repr(template), repr(own)) == before
