import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch_local.pods.kubelet import processes_of

from tests.local.local_jobs import LocalJob, local_job

pytestmark = pytest.mark.process

SCRIPT = """\
import sys, time
if sys.argv[1] == "raise":
    raise ValueError("nan in step 10")
while sys.argv[1] != "succeed":
    time.sleep(0.1)
"""
WRAPPERS = {
    "tee": "{torchrun} 2>&1 | tee {log}",
    "echo": "{torchrun}; echo done",
    "true": "{torchrun} || true",
    "python": "python3 -c 'import subprocess, sys; subprocess.run(sys.argv[1:])' {torchrun}",
}


def job_of(tmp_path: Path, wrapper: str, options: str, way: str) -> dict[str, Any]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    shell = WRAPPERS[wrapper].format(
        torchrun=f"torchrun {options} {script} {way}", log=tmp_path / "train.log"
    )
    return {
        "backend": "operator",
        "container": {"command": ["bash", "-c", shell]},
        "replicas": 1,
        "failurePolicy": {"maxFailures": 0},
    }


@pytest.mark.parametrize("wrapper", WRAPPERS)
async def test_script_that_raises_fails_the_job_and_is_told(tmp_path: Path, wrapper: str) -> None:
    async with local_job(
        tmp_path / "job", **job_of(tmp_path, wrapper, "--max-restarts=0", "raise")
    ) as job:
        assert await job.until_ended() == "Failed"
        assert (job.status["failures"], job.status["totalFailures"]) == (1, 1)
        assert "ValueError: nan in step 10" in job.status["rootCause"]["message"]
        assert job.status["rootCause"]["exitCode"] == 1


async def test_work_that_is_done_is_complete(tmp_path: Path) -> None:
    async with local_job(
        tmp_path / "job", **job_of(tmp_path, "tee", "--max-restarts=0", "succeed")
    ) as job:
        assert await job.until_ended() == "Complete"


async def test_torchrun_that_is_killed_alone_has_not_succeeded(tmp_path: Path) -> None:
    async with local_job(tmp_path / "job", **job_of(tmp_path, "echo", "", "wait")) as job:
        await job.until(lambda: job.status.get("worldSize") == 1, "a group")
        os.kill(torchrun_of(job), signal.SIGKILL)
        assert await job.until_ended() == "Failed"
        assert "its agent has not reported success" in job.failed


def torchrun_of(job: LocalJob) -> int:
    """The process of torchrun, and none that it has just forked with its command line."""
    [pod] = job.pods()
    parents: dict[int, int] = {}
    for pid in processes_of(pod["metadata"]["name"]):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if len(words) > 1 and words[1].endswith(b"/torchrun"):
                parents[pid] = int(
                    Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
                )
    [found] = [pid for pid, parent in parents.items() if parent not in parents]
    return found
