from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_local.manifests.config_objects import Config
from elastic_pytorch_local.manifests.documents import read_documents
from elastic_pytorch_local.manifests.limits import (
    check_references,
    fields_not_applied,
    find_obstacles,
)
from elastic_pytorch_operator.spec.fields import InvalidJob

from tests.faults import assert_none, fault_of
from tests.operator.builders import a_manifest
from tests.paths import EXAMPLE_JOBS

CONFIG: Config = {("ConfigMap", "settings"): {"train.py": b"print()"}}
POD, C = "spec.template.spec", "spec.template.spec.containers[0]"


def a_job(
    container: dict[str, Any], pod: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    whole = {"name": "pytorch", "image": "torch", "args": ["train.py"], **container}
    fields: dict[str, Any] = {"containers": [whole], **(pod or {})}
    return a_manifest(template={"spec": fields}, **spec)


def mounting(volume: dict[str, Any], **mount: Any) -> dict[str, Any]:
    mounts = [{"name": "a", "mountPath": "/a", **mount}]
    return a_job({"volumeMounts": mounts}, {"volumes": [{"name": "a", **volume}]})


def from_source(**source: Any) -> dict[str, Any]:
    return a_job({"env": [{"name": "A", "valueFrom": source}]})


OBSTACLES = {
    "an init container": (
        a_job({}, {"initContainers": [{"name": "fetch"}]}),
        f"{POD}.initContainers: only the container that trains is started",
    ),
    "another container": (
        a_job({}, {"containers": [{"name": "logs"}, {"name": "pytorch"}]}),
        f"{C}: only the container that trains is started: run logs in another way",
    ),
    "names of hosts": (
        a_job({}, {"hostAliases": [{"ip": "10.0.0.1"}]}),
        f"{POD}.hostAliases: this machine resolves the names",
    ),
    "a folder of the node": (
        mounting({"hostPath": {"path": "/data"}}),
        f"{POD}.volumes[0].hostPath: it cannot be mounted here",
    ),
    "a volume of a driver": (
        mounting({"csi": {"driver": "a"}}),
        f"{POD}.volumes[0].csi: it cannot be mounted here",
    ),
    "fields as files": (
        mounting({"downwardAPI": {}}),
        f"{POD}.volumes[0].downwardAPI: it cannot be mounted here",
    ),
    "a token as a file": (
        mounting({"projected": {"sources": [{"serviceAccountToken": {"path": "a"}}]}}),
        f"{POD}.volumes[0].projected.sources[0].serviceAccountToken: "
        "only ConfigMaps and Secrets are projected here",
    ),
    "a path of variables": (
        mounting({"emptyDir": {}}, subPathExpr="$(A)"),
        f"{C}.volumeMounts[0].subPathExpr: it is not expanded",
    ),
    "a resource": (
        from_source(resourceFieldRef={"resource": "limits.cpu"}),
        f"{C}.env[0].valueFrom.resourceFieldRef: it has no value",
    ),
    "a field of no pod here": (
        from_source(fieldRef={"fieldPath": "status.no"}),
        f"{C}.env[0].valueFrom.fieldRef.fieldPath: status.no has no value here",
    ),
    "a hook": (a_job({"lifecycle": {"preStop": {}}}), f"{C}.lifecycle: no hook is run"),
    "a device": (
        a_job({"volumeDevices": [{"name": "a"}]}),
        f"{C}.volumeDevices: there are no block devices",
    ),
}
NONE = {
    "the least": a_job({}),
    "a volume that nothing mounts": a_job(
        {}, {"volumes": [{"name": "a", "hostPath": {"path": "/data"}}]}
    ),
    "shared memory of the node": mounting({"hostPath": {"path": "/dev/shm"}}, mountPath="/dev/shm"),
    "a claim": mounting({"persistentVolumeClaim": {"claimName": "data"}}),
    "a folder of the pod": mounting({"emptyDir": {}}, subPath="part"),
    "a ConfigMap": mounting({"configMap": {"name": "settings"}}, subPath="train.py"),
    "a claim that comes with the job": a_job(
        {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        sharedVolumeClaims=[{"metadata": {"name": "data"}, "spec": {}}],
    ),
    "the pod's name": from_source(fieldRef={"fieldPath": "metadata.name"}),
}


@pytest.mark.parametrize(("manifest", "words"), OBSTACLES.values(), ids=OBSTACLES)
def test_what_the_script_would_miss_is_refused_by_name(
    manifest: dict[str, Any], words: str
) -> None:
    check_references(manifest, CONFIG)
    [obstacle] = find_obstacles(manifest)
    assert str(obstacle).startswith(words)
    assert str(obstacle).endswith(", or have it left out with --leave-out")


@pytest.mark.parametrize("manifest", NONE.values(), ids=NONE)
def test_what_one_machine_can_do_is_no_obstacle(manifest: dict[str, Any]) -> None:
    check_references(manifest, CONFIG)
    assert find_obstacles(manifest) == []


def test_examples_have_all_that_they_need_on_one_machine_but_a_check_of_their_node() -> None:
    def check(path: Path) -> None:
        manifest = read_documents([path]).job
        check_references(manifest, {})
        beyond = ["spec.template.spec.initContainers"] if path.parent.name == "preflight" else []
        assert [str(obstacle).partition(":")[0] for obstacle in find_obstacles(manifest)] == beyond

    assert_none(f"{path}: {fault}" for path in EXAMPLE_JOBS for fault in fault_of(check, path))


MISSING = {
    "a volume": (
        a_job({"volumeMounts": [{"name": "date", "mountPath": "/a"}]}),
        f"{C}.volumeMounts[0].name: there is no volume date: add it",
    ),
    "a misspelt volume": (
        mounting({"emptyDir": {}}, name="A"),
        f"{C}.volumeMounts[0].name: there is no volume A; did you mean a?",
    ),
    "a place": (
        mounting({"emptyDir": {}}, mountPath=""),
        f"{C}.volumeMounts[0].mountPath: is missing",
    ),
    "a ConfigMap": (
        mounting({"configMap": {"name": "setting"}}),
        f"{POD}.volumes[0].configMap: there is no ConfigMap setting: "
        "name its YAML file after the job's, or make it of a file with "
        "--configmap setting=PATH; did you mean settings?",
    ),
    "a part of it": (
        mounting({"configMap": {"name": "settings"}}, subPath="train"),
        f"{C}.volumeMounts[0].subPath: there is no train in the volume",
    ),
    "a Secret": (
        from_source(secretKeyRef={"name": "token", "key": "a"}),
        f"{C}.env[0].valueFrom.secretKeyRef: there is no Secret token: "
        "name its YAML file after the job's",
    ),
}


@pytest.mark.parametrize(("manifest", "words"), MISSING.values(), ids=MISSING)
def test_reference_to_nothing_is_refused_with_the_fix(manifest: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        check_references(manifest, CONFIG)
    assert str(refused.value).startswith(words)


def test_what_changes_nothing_is_named() -> None:
    pod = {
        "tolerations": [{"key": "a"}],
        "nodeSelector": {},
        "terminationGracePeriodSeconds": 5,
        "imagePullSecrets": [{"name": "a"}],
    }
    manifest = a_job({"resources": {"limits": {"cpu": 1}}, "readinessProbe": {"exec": {}}}, pod)
    manifest["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "a"}
    assert fields_not_applied(manifest) == [
        "image",
        "imagePullSecrets",
        "readinessProbe",
        "resources",
        "tolerations",
        "the label kueue.x-k8s.io/queue-name",
    ]
