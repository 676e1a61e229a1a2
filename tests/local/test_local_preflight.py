"""With `preflight` a loss stops all workers for a check, except with `prepare`; what the library keeps, it keeps meanwhile."""

from pathlib import Path

import pytest

from tests.local.local_jobs import local_job

pytestmark = [pytest.mark.process, pytest.mark.long]


@pytest.mark.parametrize("way", [[], ["--in-process"]], ids=["restarted", "in process"])
@pytest.mark.parametrize("prepare", [None, {}], ids=["not prepared", "prepared"])
async def test_a_failure_costs_a_check_without_prepare_and_a_step_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: list[str], prepare: dict[str, int] | None
) -> None:
    monkeypatch.setenv("EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("WORKER", "any")
    script = ["--folder", "/checkpoints", "--epochs", "3", "--fail-at", "40", *way]
    preflight = {"seconds": 60, "maxSlowdownPercent": 10000}
    async with local_job(
        tmp_path,
        *script,
        script="stateful.py",
        backend="operator",
        minReplicas=2,
        preflight=preflight,
        prepare=prepare,
        resizePolicy={"settleSeconds": 30},
    ) as job:
        assert await job.until_ended() == "Complete"
        [interruption] = job.status["recentInterruptions"]
        assert interruption["cause"] == "WorkerFailed"
        assert interruption["stepsLost"] <= 1
        rounds = [event for event in job.events() if ": Round " in event]
        kinds = [event.partition(":")[0] for event in rounds]
        if prepare is None:
            assert kinds == ["FirstRound", "WorkerFailed", "FirstRound"]
            assert "2 -> 0 workers" in rounds[1]
            assert rounds[1].endswith("; the nodes are checked first")
        else:
            assert kinds == ["FirstRound", "WorkerFailed"], "a member that trains holds its devices"
            assert "; the last set-up (spec.prepare) took " in rounds[0]
        assert "node check 1: no error" in job.text
        assert "leftOutNodes" not in job.status
