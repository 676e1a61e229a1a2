"""A slow rank is named, with real agents and waits, and no longer when it is well."""

from pathlib import Path

import pytest

from tests.local.local_jobs import LocalJob, local_job

pytestmark = [pytest.mark.process, pytest.mark.long]

SLOW = "1"


def named(job: LocalJob) -> list[str]:
    return [straggler["worker"] for straggler in job.status.get("stragglers") or ()]


def events(job: LocalJob, reason: str) -> list[str]:
    return [event for event in job.events() if event.startswith(f"{reason}: ")]


async def test_slow_rank_is_named_until_it_is_well(tmp_path: Path) -> None:
    well = tmp_path / "well"
    arguments = ("--slow", SLOW, "--well", str(well))
    async with local_job(
        tmp_path, *arguments, script="uneven.py", backend="operator", replicas=3, minReplicas=3
    ) as job:
        await job.until(lambda: bool(named(job)), "a slow rank in the status")
        straggler = job.status["stragglers"][0]
        worker = straggler["worker"]
        [pod] = [pod for pod in job.pods() if pod["metadata"]["name"] == worker]
        assert pod["metadata"]["labels"]["elasticpytorch.dev/worker-index"] == SLOW
        assert float(straggler["slowdown"]) >= 1.3
        assert straggler["node"]
        assert len([event for event in events(job, "Straggler") if worker in event]) == 1

        well.touch()
        await job.until(lambda: worker not in named(job), "the status without it")
        assert len([event for event in events(job, "StragglerRecovered") if worker in event]) == 1
