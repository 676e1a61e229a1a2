"""The kind cluster that the Makefile makes: where its files are, and what its jobs need."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / ".cluster"
KUBECONFIG, KUBECTL = FILES / "kubeconfig", FILES / "bin" / "kubectl"
REPORTS = FILES / "logs" / "e2e"
CONTROL_PLANE = "elastic-pytorch-control-plane"
OPERATOR_NAMESPACE = "elastic-pytorch-system"
OPERATORS = "app.kubernetes.io/name=elastic-pytorch-operator"


def example(file: Path, *, steps: int) -> dict[str, Any]:
    """Returns the manifest of an example that trains for a number of steps."""
    manifest: dict[str, Any] = yaml.safe_load(file.read_text())
    pod = manifest["spec"]["template"]["spec"]
    # The cluster has a folder that all nodes share, and no storage class for a volume that they share.
    del manifest["spec"]["sharedVolumeClaims"]
    pod["volumes"].append({"name": "checkpoints", "hostPath": {"path": "/shared"}})
    arguments: list[str] = pod["containers"][0]["args"]
    arguments[arguments.index("--steps") + 1] = str(steps)
    return manifest


def report(namespace: str) -> None:
    """Keeps what is needed to understand a failure, and says where."""
    folder = REPORTS / namespace
    folder.mkdir(parents=True, exist_ok=True)
    logs_of = ["logs", "--prefix", "-l"]
    wanted = {
        "objects.yaml": ["-n", namespace, "get", "epj,pods,services,events", "-o", "yaml"],
        "describe.txt": ["-n", namespace, "describe", "epj,pods"],
        "workers.log": ["-n", namespace, *logs_of, "elasticpytorch.dev/role=worker", "--tail=-1", "--ignore-errors"],
        "operator.log": ["-n", OPERATOR_NAMESPACE, *logs_of, OPERATORS, "--tail=500"],
        "nodes.txt": ["get", "nodes", "-o", "wide"],
    }
    for file, command in wanted.items():
        done = subprocess.run([KUBECTL, "--kubeconfig", KUBECONFIG, *command], capture_output=True, check=False)
        (folder / file).write_bytes(done.stdout + done.stderr)
    print(f"\nwhat the cluster looked like is in {folder.relative_to(ROOT)}")
