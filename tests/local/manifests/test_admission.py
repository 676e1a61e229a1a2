"""Local mode refuses what an API server refused of these manifests in tests/e2e/api."""

from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_local.manifests.admission import admit
from elastic_pytorch_local.manifests.documents import read_documents
from elastic_pytorch_operator.spec.fields import InvalidJob

from tests.faults import assert_none
from tests.operator.builders import a_manifest
from tests.paths import EXAMPLE_JOBS, ROOT

MANIFESTS = ROOT / "tests" / "manifests"
BAD = sorted((MANIFESTS / "bad").glob("*.yaml"))
GOOD = [*sorted((MANIFESTS / "good").glob("*.yaml")), *EXAMPLE_JOBS]

REFUSED = {
    "a misspelt field": (
        {"maxReplica": 4},
        "spec.maxReplica: there is no such field; did you mean maxReplicas?",
    ),
    "a number in quotes": (
        {"replicas": "4"},
        "spec.replicas: must be a whole number, not '4': take the quotes away",
    ),
    "a word for a number": (
        {"replicas": "many"},
        "spec.replicas: must be a whole number, not 'many'",
    ),
    "a fraction": ({"replicas": 1.5}, "spec.replicas: must be a whole number, not 1.5"),
    "more than the maximum": (
        {"replicas": 7},
        "spec.replicas: must be less than or equal to maxReplicas (4), not 7: "
        "lower replicas or raise maxReplicas",
    ),
    "a field of a claim": (
        {
            "sharedVolumeClaims": [
                {"metadata": {"name": "data"}, "spec": {"accessmodes": ["ReadWriteMany"]}}
            ]
        },
        "spec.sharedVolumeClaims[0].spec.accessmodes: there is no such field; "
        "did you mean accessModes?",
    ),
}
CONTAINER = "spec.template.spec.containers[0]"
IN_THE_CONTAINER = {
    "a misspelt field": (
        {"resource": {}},
        f"{CONTAINER}.resource: there is no such field; did you mean resources?",
    ),
    "a number in env": (
        {"env": [{"name": "A", "value": 1}]},
        f'{CONTAINER}.env[0].value: must be a string, not 1: put it in quotes, "1"',
    ),
    "a truth in env": (
        {"env": [{"name": "A", "value": True}]},
        f'{CONTAINER}.env[0].value: must be a string, not true: put it in quotes, "true"',
    ),
    "a number in args": (
        {"args": ["train.py", 0.1]},
        f'{CONTAINER}.args[1]: must be a string, not 0.1: put it in quotes, "0.1"',
    ),
    "text for a list": ({"args": "train.py"}, f"{CONTAINER}.args: must be a list, not 'train.py'"),
    "a misspelt field further down": (
        {"env": [{"name": "A", "valueFrom": {"configMapRef": {}}}]},
        f"{CONTAINER}.env[0].valueFrom.configMapRef: there is no such field; "
        "did you mean configMapKeyRef?",
    ),
    "a port in quotes": (
        {"ports": [{"containerPort": "80"}]},
        f"{CONTAINER}.ports[0].containerPort: must be a whole number, not '80': "
        "take the quotes away",
    ),
    "an object for a list": (
        {"volumeMounts": {"name": "a"}},
        f"{CONTAINER}.volumeMounts: must be a list",
    ),
}
ADMITTED = {
    "quantities as numbers": {
        "resources": {"limits": {"cpu": 4, "memory": "1Gi"}, "requests": {"cpu": 0.5}}
    },
    "a probe by the number or the name of a port": {
        "readinessProbe": {"httpGet": {"port": 80}},
        "livenessProbe": {"tcpSocket": {"port": "a"}},
    },
    "null, as absent": {"env": None, "resources": None},
}


def of_container(fields: dict[str, Any]) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "torch", "args": ["train.py"], **fields}
    return a_manifest(template={"spec": {"containers": [container]}})


def refusal_of(path: Path) -> InvalidJob | None:
    """Why the manifest is refused, if it is; nothing else is raised."""
    try:
        admit(read_documents([path]).job)
    except InvalidJob as error:
        return error
    return None


def test_what_the_api_server_refuses_is_refused() -> None:
    assert len(BAD) > 90
    assert_none(path.name for path in BAD if not refusal_of(path))


def test_what_the_api_server_admits_is_admitted() -> None:
    assert_none(f"{path}: {fault}" for path in GOOD if (fault := refusal_of(path)))


@pytest.mark.parametrize(("fields", "words"), REFUSED.values(), ids=REFUSED)
def test_fault_of_the_spec_is_named_with_its_fix(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        admit(a_manifest(**fields))
    assert str(refused.value) == words


@pytest.mark.parametrize(("fields", "words"), IN_THE_CONTAINER.values(), ids=IN_THE_CONTAINER)
def test_fault_of_the_template_is_named_with_its_fix(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        admit(of_container(fields))
    assert str(refused.value).startswith(words)


@pytest.mark.parametrize("fields", ADMITTED.values(), ids=ADMITTED)
def test_template_that_kubernetes_takes_is_admitted(fields: dict[str, Any]) -> None:
    admit(of_container(fields))
