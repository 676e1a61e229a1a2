"""A user's own torchrun, which tells the operator nothing of why its workers have failed."""

from pathlib import Path

import pytest

from tests.local.local_jobs import local_job

pytestmark = pytest.mark.process


async def test_script_that_raises_fails_the_job_when_its_budget_is_used_up(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise ValueError('boom')\n")
    container = {"command": ["torchrun"], "args": [str(script)]}
    alone = {"replicas": 1, "failurePolicy": {"maxFailures": 1}}
    async with local_job(tmp_path / "job", backend="operator", container=container, **alone) as job:
        assert await job.until_ended() == "Failed"
        assert "torchrun does not report why" in job.failed
        assert job.status["failures"] == 2
        assert "ValueError: boom" in job.text


async def test_killed_pod_is_no_failure_of_the_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "while True:\n    dist.barrier()\n"
    )
    container = {"command": ["torchrun"], "args": [str(script)]}
    async with local_job(tmp_path / "job", backend="operator", container=container) as job:
        await job.until(lambda: job.status.get("worldSize") == 2, "a group of two")
        job.kill(job.pods()[-1]["metadata"]["name"])
        await job.until(
            lambda: (
                job.status["worldSize"] == 2 and job.status["round"] > 1 and len(job.pods()) == 2
            ),
            "another one",
        )
        assert job.status["failures"] == 0
