"""An elastic job of a bare script, as `torchrun` would start it on this machine."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elastic_pytorch_operator.api import names

DEFAULT_WORKERS = 3
MANIFESTS = (".yaml", ".yml", ".json")
MAX_NAME = 40  # characters, as the names of pods are longer


def is_script(path: Path) -> bool:
    return path.suffix not in MANIFESTS


def job_of_script(script: Path, arguments: Sequence[str], workers: int | None) -> dict[str, Any]:
    """The manifest of a job of some workers, or of any number up to one more.

    Raises:
        OSError: there is no such script.
    """
    script.stat()
    wanted = DEFAULT_WORKERS if workers is None else workers
    name = re.sub(r"[^a-z0-9]+", "-", script.stem.lower())[:MAX_NAME].strip("-")
    name = name if name[:1].isalpha() else f"job-{name}".strip("-")
    threads = max(1, (os.cpu_count() or 1) // max(1, wanted))
    container = {
        "name": names.TRAINING_CONTAINER,
        "image": "this-machine",
        "args": [str(script), *arguments],
        "env": [{"name": "OMP_NUM_THREADS", "value": str(threads)}],
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": wanted,
            "minReplicas": 1,
            "maxReplicas": wanted + 1,
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 5}},
        },
    }
