"""The kind cluster of the Makefile: its files, and its jobs' needs."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / ".cluster"
KUBECONFIG, KUBECTL = FILES / "kubeconfig", FILES / "bin" / "kubectl"
REPORTS = FILES / "logs" / "e2e"
SHARED = "/shared"  # on each node
CONTROL_PLANE = "elastic-pytorch-control-plane"
OPERATOR_NAMESPACE = "elastic-pytorch-system"
OPERATORS = "app.kubernetes.io/name=elastic-pytorch-operator"
MOST_PODS, MOST_EVENTS, WIDTH = 20, 30, 300  # of a report
SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
USER = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}


def read_example(file: Path, folder: str = "") -> dict[str, Any]:
    """The job of a file for this cluster, with a folder of all nodes as its shared volume."""
    manifest: dict[str, Any] = yaml.safe_load(file.read_text())
    spec = manifest["spec"]
    names = [template["metadata"]["name"] for template in spec.pop("sharedVolumeClaims", ())]
    spec.pop("sharedVolumeClaimRetentionPolicy", None)
    pod, shared = spec["template"]["spec"], {"path": str(Path(SHARED, folder))}
    pod["volumes"] = [
        *({"name": name, "hostPath": shared} for name in names),
        *pod.get("volumes", ()),
    ]
    return manifest


def example(file: Path, *, steps: int) -> dict[str, Any]:
    manifest = read_example(file)
    arguments: list[str] = manifest["spec"]["template"]["spec"]["containers"][0]["args"]
    arguments[arguments.index("--steps") + 1] = str(steps)
    return manifest


def report(namespace: str, name: str = "", since: str = "") -> str:
    """Keeps what explains a failure; returns its folder, the pods, and the last events.

    Args:
        name: of the folder; empty: the namespace's.
        since: of the operators' logs, as in RFC 3339; empty: their last lines.
    """
    folder = REPORTS / (name or namespace)
    folder.mkdir(parents=True, exist_ok=True)
    here, logs = ["-n", namespace], ["logs", "--prefix", "--all-containers", "--ignore-errors"]
    pods = _kubectl(*here, "get", "pods", "-o", "name").split()
    wanted = {
        "pods.txt": ["get", "pods", "-A", "-o", "wide"],
        "events.txt": [*here, "get", "events", "--sort-by=.lastTimestamp"],
        "objects.yaml": [*here, "get", "epj,pods,services,persistentvolumeclaims", "-o", "yaml"],
        "describe.txt": [*here, "describe", "epj,pods"],
        "nodes.txt": ["describe", "nodes"],
        "operator.log": [
            *("-n", OPERATOR_NAMESPACE, *logs, "-l", OPERATORS),
            *([f"--since-time={since}", "--tail=-1"] if since else ["--tail=500"]),
        ],
    }
    for pod in pods[:MOST_PODS]:
        file = pod.removeprefix("pod/")
        wanted[f"{file}.log"] = [*here, *logs, pod]
        wanted[f"{file}.previous.log"] = [*here, *logs, "--previous", pod]
    found = {file: _kubectl(*command) for file, command in wanted.items()}
    for file, text in found.items():
        (folder / file).write_text(text)
    heads = ("NAMESPACE ", f"{namespace} ")
    here_are = [line for line in found["pods.txt"].splitlines() if line.startswith(heads)]
    last = [line[:WIDTH] for line in (*here_are, *found["events.txt"].splitlines()[-MOST_EVENTS:])]
    return "\n".join([f"what the cluster looked like is in {folder.relative_to(ROOT)}", *last])


def _kubectl(*arguments: str) -> str:
    command = [str(KUBECTL), "--kubeconfig", str(KUBECONFIG), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=60, check=False
    )
    return done.stdout + done.stderr
