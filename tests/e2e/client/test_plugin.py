"""`kubectl epj`, through kubectl, on one job: each verb once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from elastic_pytorch_client import Access, Job, KubernetesCluster
from measure.kind_cluster import KUBECTL

from tests.e2e.api_requests import KUBECONFIG
from tests.e2e.job_under_test import JobUnderTest, StartJob
from tests.waiting import until

pytestmark = pytest.mark.e2e

SCRIPT = """
import os, pathlib, time
import torch.distributed as dist
from elastic_pytorch import report

dist.init_process_group("gloo")
checkpoint = pathlib.Path("/checkpoints") / (os.environ["TORCHELASTIC_RUN_ID"] + ".step")
step = int(checkpoint.read_text()) if checkpoint.exists() else 0
while True:
    dist.barrier()
    step += 1
    if dist.get_rank() == 0 and step % 10 == 0:
        new = checkpoint.with_suffix(".new")
        new.write_text(str(step))  # a process may be killed here
        new.replace(checkpoint)
    report(step=step, total=10_000, loss=4 / step ** 0.5, checkpoint_step=step // 10 * 10)
    print(f"rank={dist.get_rank()} step={step} loss={4 / step ** 0.5:.4f}", flush=True)
    time.sleep(0.1)
"""

# The plugin lies beside this Python; kubectl finds it on the PATH, and the plugin kubectl.
FOLDERS = (Path(sys.executable).parent, KUBECTL.parent)
ENVIRONMENT = {
    **os.environ,
    "PATH": ":".join([*map(str, FOLDERS), os.environ["PATH"]]),
    "KUBECONFIG": str(KUBECONFIG),
}
# Of pytest-xdist; without it, what is no terminal has room for whole names.
ENVIRONMENT.pop("COLUMNS", None)


def epj(namespace: str, *words: str, code: int = 0, seconds: float = 100) -> str:
    command = [str(KUBECTL), "epj", "-n", namespace, *words]
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == code, (
        f"kubectl epj {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout + done.stderr


@contextmanager
def running(namespace: str, *words: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`kubectl epj …` that goes on until it is interrupted."""
    command = [str(KUBECTL), "epj", "-n", namespace, *words]
    with (
        output.open("wb") as file,
        subprocess.Popen(command, env=ENVIRONMENT, stdout=file, stderr=file) as process,
    ):
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=20)


def until_said(output: Path, words: str) -> None:
    def text() -> str:
        return output.read_text(errors="replace")

    until(lambda: words in text(), lambda: f"{words!r} in\n{text()[-2000:]}")


def test_every_verb_on_one_job(start_job: StartJob, namespace: str, tmp_path: Path) -> None:
    job: JobUnderTest = start_job(script=SCRIPT, replicas=2, maxReplicas=3)
    client = Job.get(
        job.name, cluster=KubernetesCluster.connect(Access(str(KUBECONFIG), namespace=namespace))
    )
    client.wait_until_whole(timeout_seconds=90)
    job.until(lambda status: status.get("progress", {}).get("step", 0) > 20, "20 steps", 60)

    assert job.name in epj(namespace, "list")
    assert "rank 1" in epj(namespace, "status", f"epj/{job.name}")
    assert "all 2 workers train" in epj(namespace, "why", job.name)
    assert [(e.round, e.workers) for e in client.timeline() if e.reason == "FirstRound"] == [(1, 2)]
    assert "rank=1 step=" in epj(namespace, "logs", job.name, "--rank", "1", "--tail", "3")

    # Rank 1's pod is killed: who has the rank next is heard, in the same stream.
    lost = job.members()[1]
    with running(
        namespace, "logs", job.name, "--rank", "1", "-f", output=tmp_path / "logs"
    ) as following:
        until_said(tmp_path / "logs", "rank=1 step=")
        job.kubectl("delete", "pod", lost, "--grace-period=0", "--force")
        job.until(
            lambda s: s["worldSize"] == 2 and lost not in [w["name"] for w in s["workers"]],
            "another in its place",
        )
        newest = job.status["progress"]["step"]
        until_said(tmp_path / "logs", f"rank=1 step={newest + 20} ")
        assert following.poll() is None

    assert "3 workers train" in epj(namespace, "resize", job.name, "3", "--wait", "--timeout", "90")
    refused = epj(namespace, "resize", job.name, "4", code=1)
    assert "must be less than or equal to maxReplicas (3), not 4" in refused
    assert len(refused.splitlines()) == 1

    assert "in <module>" in epj(namespace, "stacks", job.name)
    assert "workers train" in epj(
        namespace, "restart", job.name, "--wait", "--timeout", "90", seconds=200
    )

    epj(namespace, "suspend", job.name, "--wait", "--timeout", "60")
    assert "is suspended" in epj(namespace, "why", job.name)
    epj(namespace, "resume", job.name, "--wait", "--timeout", "90")

    client.delete(wait=True)
    assert "there is no ElasticPyTorchJob" in epj(namespace, "status", job.name, code=1)
