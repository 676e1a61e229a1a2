"""A job in local mode whose group stock torchrun forms, planned by the operator's planner."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elastic_pytorch_local.local_operator import LocalOperator, local_operator
from elastic_pytorch_local.pods.kubelet import processes_of
from elastic_pytorch_operator.api.conditions import find_condition, has_ended

from tests.paths import ROOT
from tests.ports import free_port

EXAMPLES = ROOT / "examples"
SCRIPTS = ROOT / "tests" / "worker_image" / "scripts"
SECONDS = 120.0
PACKAGES = ("operator", "worker_image", "plugin", "local")
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in PACKAGES)}


def run_local(
    folder: Path, *options: str | Path, program: Sequence[str] = ("-m", "elastic_pytorch_local")
) -> "subprocess.CompletedProcess[str]":
    """Runs the command of local mode in a folder, with the packages of this checkout."""
    return subprocess.run(
        [sys.executable, *program, *options],
        env=ENVIRONMENT,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@dataclass
class LocalJob:
    """A job in local mode.

    Attributes:
        lines: what its pods have printed, by pod.
    """

    operator: LocalOperator
    name: str
    lines: dict[str, list[str]] = field(default_factory=dict)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.operator.cluster.job(self.name)["status"])

    @property
    def failed(self) -> str:
        return str(find_condition(self.status, "Failed").get("message", ""))

    @property
    def text(self) -> str:
        return "\n".join(line for lines in self.lines.values() for line in lines)

    def events(self) -> list[str]:
        return [f"{event['reason']}: {event['note']}" for event in self.operator.cluster.events]

    def pods(self, role: str = "worker") -> list[dict[str, Any]]:
        """Those that run."""
        found = self.operator.cluster.pods()
        labelled = [
            pod for pod in found if pod["metadata"]["labels"]["elasticpytorch.dev/role"] == role
        ]
        return [pod for pod in labelled if pod["status"].get("phase") == "Running"]

    def kill(self, pod: str) -> None:
        """Kills a pod's first process, and with it the pod."""
        os.kill(self.operator.kubelet.process_id(pod), signal.SIGKILL)

    def freeze(self, pod: str) -> None:
        """Stops all processes of a pod where they are: nothing is closed, nobody gets to know."""
        for process in processes_of(pod):
            os.kill(process, signal.SIGSTOP)

    def steps(self, world: int) -> list[int]:
        """The steps that have been done with a world size, in no order."""
        words = [line.split() for line in self.text.splitlines() if line.startswith("STEP")]
        return [int(word[1]) for word in words if word[2] == f"world={world}"]

    async def until(
        self, fulfilled: Callable[[], bool], what: str, seconds: float = SECONDS
    ) -> None:
        until = time.monotonic() + seconds
        while not fulfilled():
            story = "\n".join(self.events())
            assert time.monotonic() < until, (
                f"waited {seconds:.0f} s for {what}\n{self.status}\n{story}\n{self.text[-6000:]}"
            )
            await asyncio.sleep(0.1)

    async def until_ended(self) -> str:
        await self.until(lambda: has_ended(self.status), "the end")
        return str(self.status["state"])


@asynccontextmanager
async def local_job(
    tmp_path: Path,
    *arguments: str,
    script: str = "",
    backend: str = "c10d",
    endpoint: str = "",
    grace_seconds: int = 10,
    container: Mapping[str, Any] | None = None,
    **spec: Any,
) -> AsyncIterator[LocalJob]:
    """Runs a job of the all-reduce example, a script or a container while the context lasts."""
    program = (
        ["/scripts/" + script]
        if script
        else ["/examples/all-reduce/train.py", "--checkpoint-dir", "/checkpoints"]
    )
    started = container or {
        "args": [*program, *arguments],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "volumeMounts": [{"name": "checkpoints", "mountPath": "/checkpoints"}],
    }
    volumes = [{"name": "checkpoints", "hostPath": {"path": "/any"}}]
    rendezvous = {
        "backend": backend,
        "port": free_port(),
        **({"endpoint": endpoint} if endpoint else {}),
    }
    manifest = {
        "apiVersion": "elasticpytorch.dev/v1alpha1",
        "kind": "ElasticPyTorchJob",
        "metadata": {"name": "stock", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "minReplicas": 1,
            "maxReplicas": 4,
            "rendezvous": rendezvous,
            "template": {
                "spec": {
                    "containers": [{"name": "pytorch", "image": "any", **started}],
                    "volumes": volumes,
                    "terminationGracePeriodSeconds": grace_seconds,
                }
            },
            **spec,
        },
    }
    lines: dict[str, list[str]] = {}

    def note(pod: str, line: str) -> None:
        lines.setdefault(pod, []).append(line)

    async with local_operator(
        tmp_path, {"/examples": EXAMPLES, "/scripts": SCRIPTS}, write_line=note
    ) as operator:
        operator.cluster.apply_job(manifest)
        yield LocalJob(operator, "stock", lines)
