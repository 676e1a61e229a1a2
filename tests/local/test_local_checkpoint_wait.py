from pathlib import Path

import pytest

from tests.local.local_jobs import LocalJob, local_job

pytestmark = [pytest.mark.process, pytest.mark.long]

EVERY = 4  # steps from checkpoint to checkpoint
SCRIPT = ("--steps", "100000", "--step-seconds", "1", "--checkpoint-every", str(EVERY))
POLICY = {"checkpointWaitSeconds": 60, "checkpointPath": "/checkpoints", "settleSeconds": 0}


def all_steps(job: LocalJob) -> list[int]:
    return job.steps(1) + job.steps(2)


def redone(job: LocalJob) -> int:
    """How many steps have been done again so far."""
    steps = all_steps(job)
    return len(steps) - len(set(steps))


async def until_steps_after_a_checkpoint(job: LocalJob, steps: int) -> None:
    """Waits for a step so many after one that is saved."""
    before = max(all_steps(job))
    await job.until(
        lambda: (newest := max(all_steps(job))) > before and newest % EVERY == steps,
        "a step between checkpoints",
    )


async def until_stepping(job: LocalJob, world: int, beyond: int) -> None:
    await job.until(lambda: len(job.steps(world)) > beyond, f"a step with a world of {world}")


def ends_of_waits(job: LocalJob) -> list[str]:
    return [event for event in job.events() if event.startswith("CheckpointWaitEnded")]


def left(job: LocalJob) -> bool:
    return any(event.startswith("WorkerLeaving") for event in job.events())


async def test_group_changes_right_after_a_checkpoint(tmp_path: Path) -> None:
    async with local_job(
        tmp_path, *SCRIPT, backend="operator", grace_seconds=60, resizePolicy=POLICY
    ) as job:
        await until_stepping(job, 2, beyond=0)
        await until_steps_after_a_checkpoint(job, 1)
        job.operator.cluster.scale_job("stock", 1)
        await until_stepping(job, 1, beyond=0)
        assert redone(job) <= 1, "scaled down"

        job.operator.cluster.scale_job("stock", 2)
        await until_stepping(job, 2, beyond=len(job.steps(2)))
        assert redone(job) <= 2, "a newcomer has joined"

        await until_steps_after_a_checkpoint(job, 1)
        going = job.pods()[-1]["metadata"]["name"]
        job.operator.cluster.begin_deletion("default", going)
        # Its replacement may be ready before the checkpoint is written: the next round has then two
        # workers, else one.
        await job.until(
            lambda: job.events()[-1].startswith("TrainingResumed") and left(job),
            "a round without it",
        )
        done = len(all_steps(job))
        await job.until(lambda: len(all_steps(job)) > done, "a step in that round")
        assert redone(job) <= 3, "drained: the leaving pod has trained on"
        assert job.status["failures"] == 0
        ends = ends_of_waits(job)[:3]
        assert len(ends) == 3
        assert all(end.endswith("has seen a new checkpoint in /checkpoints") for end in ends), ends


async def test_without_the_wait_more_is_done_again(tmp_path: Path) -> None:
    async with local_job(tmp_path, *SCRIPT, backend="operator") as job:
        await until_stepping(job, 2, beyond=0)
        await until_steps_after_a_checkpoint(job, 2)
        job.operator.cluster.scale_job("stock", 1)
        await until_stepping(job, 1, beyond=2)
        assert redone(job) >= 2
        assert not ends_of_waits(job)
