"""The kind cluster that the Makefile makes: where its files are, and what its jobs need."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / ".cluster"
KUBECONFIG, KUBECTL = FILES / "kubeconfig", FILES / "bin" / "kubectl"


def example(file: Path, *, steps: int) -> dict[str, Any]:
    """Returns the manifest of an example that trains for a number of steps."""
    manifest: dict[str, Any] = yaml.safe_load(file.read_text())
    pod = manifest["spec"]["template"]["spec"]
    # The cluster has a folder that all nodes share, and no storage class for a volume that they share.
    del manifest["spec"]["volumeClaimTemplates"]
    pod["volumes"].append({"name": "checkpoints", "hostPath": {"path": "/shared"}})
    arguments: list[str] = pod["containers"][0]["args"]
    arguments[arguments.index("--steps") + 1] = str(steps)
    return manifest
