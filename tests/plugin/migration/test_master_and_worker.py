"""Master and Worker become like workers: what only one has, and what is said of it."""

import copy
from typing import Any

import pytest
import yaml
from elastic_pytorch_client.migration.documents import Migrated, migrate_documents

JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: old}
spec:
  pytorchReplicaSpecs:
    Master:
      restartPolicy: Always
      template: &template
        spec:
          containers:
            - {name: pytorch, image: my-image, command: [python, train.py]}
    Worker:
      restartPolicy: Always
      template: *template
"""
AUTOMOUNT = "automountServiceAccountToken"
FIELDS = ("serviceAccountName", "serviceAccount", AUTOMOUNT)
IDENTITY = "It is given to all workers, for each of them can be rank 0"


def migrate(master: dict[str, Any], worker: dict[str, Any]) -> Migrated:
    manifest = copy.deepcopy(yaml.safe_load(JOB))
    for role, more in (("Master", master), ("Worker", worker)):
        replica = manifest["spec"]["pytorchReplicaSpecs"][role] = copy.deepcopy(
            manifest["spec"]["pytorchReplicaSpecs"][role]
        )
        replica["template"]["spec"] |= copy.deepcopy(more)
    [found] = migrate_documents([manifest])
    assert found.failed is None, found.failed
    return found


def pod_of(migrated: Migrated) -> dict[str, Any]:
    found: dict[str, Any] = migrated.documents[0]["spec"]["template"]["spec"]
    return found


def said(
    migrated: Migrated, start: str = "spec.pytorchReplicaSpecs.Master.template"
) -> dict[str, str]:
    """The remarks on the Master's template, by the paths in it."""
    return {
        remark.path.removeprefix(start): remark.text
        for remark in migrated.remarks
        if remark.path.startswith(start)
    }


@pytest.mark.parametrize(
    ("master", "worker", "field", "text"),
    [
        ({"serviceAccountName": "m"}, {}, "serviceAccountName", IDENTITY),
        ({"serviceAccount": "m"}, {}, "serviceAccount", IDENTITY),
        ({}, {"serviceAccountName": "w"}, "serviceAccountName", "differs"),
        ({"serviceAccountName": "m"}, {"serviceAccountName": "w"}, "serviceAccountName", "differs"),
        ({"serviceAccountName": "m", AUTOMOUNT: False}, {}, "serviceAccountName", IDENTITY),
    ],
)
def test_the_identity_that_only_the_master_has(
    master: dict[str, Any], worker: dict[str, Any], field: str, text: str
) -> None:
    migrated = migrate(master, worker)
    kept = {name: value for name, value in pod_of(migrated).items() if name in FIELDS}
    assert kept == {AUTOMOUNT: True} | master | worker
    [(path, found)] = said(migrated).items()
    assert path == f".spec.{field}"
    assert text in found


def test_variables_that_no_manifest_names_get_no_remark() -> None:
    command = ["bash", "-c", "date && torchrun train.py"]
    kept = {"containers": [{"name": "pytorch", "image": "my-image", "command": command}]}
    for master, worker in ((kept, {}), ({}, kept)):
        assert set(said(migrate(master, worker))) == {
            ".spec.containers[pytorch].args",
            ".spec.containers[pytorch].command",
        }


def reads(label: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}


def test_fields_that_name_the_old_labels_are_rewritten() -> None:
    container = {
        "name": "pytorch",
        "image": "i",
        "command": ["python", "t.py"],
        "env": [{"name": "INDEX", "valueFrom": reads("training.kubeflow.org/replica-index")}],
    }
    items = [{"path": "role", **reads("training.kubeflow.org/replica-type")}]
    pod = {
        "containers": [container],
        "volumes": [{"name": "about", "downwardAPI": {"items": items}}],
    }
    migrated = migrate(pod, pod)
    [written] = pod_of(migrated)["containers"]
    assert written["env"][0] == {
        "name": "INDEX",
        "valueFrom": reads("elasticpytorch.dev/worker-index"),
    }
    texts = list(said(migrated, "spec.pytorchReplicaSpecs.Worker.template").values())
    assert any(
        "elasticpytorch.dev/worker-index now" in text and "counts all workers from 0" in text
        for text in texts
    )
    assert any(
        "training.kubeflow.org/replica-type, which worker pods do not have" in text
        for text in texts
    )
    assert said(migrated) == {}
