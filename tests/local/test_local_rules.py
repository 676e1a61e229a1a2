"""`failurePolicy.rules` with real processes: which exit codes reach the operator."""

from pathlib import Path
from typing import Any

import pytest

from tests.local.local_jobs import local_job

pytestmark = [pytest.mark.process, pytest.mark.long]

EXITS_ONCE = """
import os, sys, time
from pathlib import Path

first = Path(os.environ["FIRST"])
if os.environ["RANK"] == "0" and not first.exists():
    first.touch()
    sys.exit(42)
if not first.exists():
    time.sleep(1000)
"""
CRASHES = (
    "import os, signal, time\nif os.environ['RANK'] == '0':\n    os.kill(os.getpid(), "
    "signal.SIGSEGV)\ntime.sleep(1000)\n"
)


def a_container(tmp_path: Path, text: str) -> dict[str, Any]:
    script = tmp_path / "train.py"
    script.write_text(text)
    env = [{"name": "FIRST", "value": str(tmp_path / "first")}]
    return {"args": [str(script)], "env": env}


def policy(action: str, *values: int) -> dict[str, Any]:
    return {
        "maxFailures": 0,
        "rules": [{"action": action, "onExitCodes": {"operator": "In", "values": list(values)}}],
    }


async def test_exit_code_has_all_pods_replaced_once(tmp_path: Path) -> None:
    container, rules = a_container(tmp_path, EXITS_ONCE), policy("RestartGroup", 42)
    async with local_job(
        tmp_path / "job", backend="operator", container=container, failurePolicy=rules
    ) as job:
        assert await job.until_ended() == "Complete"
        assert job.status["groupRestarts"] == 1
        assert job.status["failures"] == 0
        assert len(job.lines) == 4, "two pods, and two in their place"


async def test_signal_fails_the_job_by_its_code(tmp_path: Path) -> None:
    container, rules = a_container(tmp_path, CRASHES), policy("FailJob", 139)
    async with local_job(
        tmp_path / "job", backend="operator", container=container, failurePolicy=rules
    ) as job:
        assert await job.until_ended() == "Failed"
        assert "failurePolicy.rules[0] (onExitCodes In 139) fails the job: rank 0 " in job.failed


async def test_ignored_code_is_tried_again(tmp_path: Path) -> None:
    container, rules = a_container(tmp_path, EXITS_ONCE), policy("Ignore", 42)
    async with local_job(
        tmp_path / "job", backend="operator", container=container, failurePolicy=rules
    ) as job:
        assert await job.until_ended() == "Complete"
        assert (job.status["totalFailures"], job.status["rootCause"]["exitCode"]) == (0, 42)


async def test_code_of_the_script_is_read_from_what_stock_torchrun_says_last(
    tmp_path: Path,
) -> None:
    container, rules = a_container(tmp_path, EXITS_ONCE), policy("FailJob", 42)
    async with local_job(
        tmp_path / "job", backend="c10d", container=container, failurePolicy=rules
    ) as job:
        assert await job.until_ended() == "Failed"
        assert "failurePolicy.rules[0] (onExitCodes In 42) fails the job" in job.failed
