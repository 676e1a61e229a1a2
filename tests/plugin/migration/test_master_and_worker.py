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
FIELDS = ("serviceAccountName", "serviceAccount", "automountServiceAccountToken")
IDENTITY = "It is given to all workers, for each of them can be rank 0"
INDEX = "metadata.labels['training.kubeflow.org/replica-index']"


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
    ("master", "worker", "pod", "paths"),
    [
        (
            {"serviceAccountName": "m"},
            {},
            {"serviceAccountName": "m", FIELDS[2]: True},
            {"serviceAccountName": IDENTITY},
        ),
        (
            {"serviceAccount": "m"},
            {},
            {"serviceAccount": "m", FIELDS[2]: True},
            {"serviceAccount": IDENTITY},
        ),
        (
            {},
            {"serviceAccountName": "w"},
            {"serviceAccountName": "w", FIELDS[2]: True},
            {"serviceAccountName": "differs"},
        ),
        (
            {"serviceAccountName": "m"},
            {"serviceAccountName": "w"},
            {"serviceAccountName": "w", FIELDS[2]: True},
            {"serviceAccountName": "differs"},
        ),
        (
            {"serviceAccountName": "m", FIELDS[2]: False},
            {},
            {"serviceAccountName": "m", FIELDS[2]: False},
            {"serviceAccountName": IDENTITY},
        ),
    ],
)
def test_the_identity_that_only_the_master_has(
    master: dict[str, Any], worker: dict[str, Any], pod: dict[str, Any], paths: dict[str, str]
) -> None:
    migrated = migrate(master, worker)
    assert {field: value for field, value in pod_of(migrated).items() if field in FIELDS} == pod
    found = said(migrated)
    assert set(found) == {f".spec.{field}" for field in paths}
    assert all(text in found[f".spec.{field}"] for field, text in paths.items())


def test_variables_that_no_manifest_names_get_no_remark() -> None:
    kept = {
        "containers": [
            {
                "name": "pytorch",
                "image": "my-image",
                "command": ["bash", "-c", "date && torchrun train.py"],
            }
        ]
    }
    assert set(said(migrate(kept, {}))) == {
        ".spec.containers[pytorch].args",
        ".spec.containers[pytorch].command",
    }
    assert set(said(migrate({}, kept))) == {
        ".spec.containers[pytorch].args",
        ".spec.containers[pytorch].command",
    }


def reads(path: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": path}}}


def test_fields_that_name_the_old_labels_are_rewritten() -> None:
    container = {
        "name": "pytorch",
        "image": "i",
        "command": ["python", "t.py"],
        "env": [{"name": "INDEX", **reads(INDEX)}],
    }
    items = [
        {
            "path": "role",
            "fieldRef": {"fieldPath": "metadata.labels['training.kubeflow.org/replica-type']"},
        }
    ]
    pod = {
        "containers": [container],
        "volumes": [{"name": "about", "downwardAPI": {"items": items}}],
    }
    migrated = migrate(pod, pod)
    [written] = pod_of(migrated)["containers"]
    assert written["env"][0] == {
        "name": "INDEX",
        **reads("metadata.labels['elasticpytorch.dev/worker-index']"),
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
