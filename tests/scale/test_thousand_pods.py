"""A thousand pods of a hundred jobs: what happens while a new leader lists them is not lost."""

import random
import time
from collections.abc import Collection, Sequence
from statistics import median

import pytest

from tests.scale.many_jobs import OPERATORS_SECONDS, Loss, ManyJobs, Worker

pytestmark = pytest.mark.long

VICTIMS = 20  # in each turn, each of another job: the deletion that a list overtakes is a matter of a few tenths of a second
VICTIM_SECONDS = (0.5, 3.0)  # after the leader
REPLACED_SECONDS = 5.0
QUIET_SECONDS = 10.0  # before each turn, so that the leader has long taken over


def test_workers_lost_during_a_takeover_are_replaced_at_once(jobs: ManyJobs, turns: int) -> None:
    workers = jobs.whole(OPERATORS_SECONDS)
    losses: list[Loss] = []
    for number in range(1, turns + 1):
        leader = jobs.operators_ready()
        time.sleep(QUIET_SECONDS)
        victims = choose_victims(workers)
        turn = jobs.take_turn(leader, victims)
        losses += turn.losses
        worst = max(turn.losses, key=lambda loss: loss.replaced)
        print(
            f"turn {number}: another operator led after {turn.takeover:.1f} s; {summary(turn.losses)},"
            f" of one that was deleted {worst.deleted:.1f} s after the leader",
            flush=True,
        )
        before, workers = workers, jobs.whole(OPERATORS_SECONDS)
        assert before - workers == victims.keys(), "no other pod was lost or made"
    print(f"all {turns} turns: {summary(losses)}", flush=True)
    assert max(loss.replaced for loss in losses) <= REPLACED_SECONDS


def summary(losses: Sequence[Loss]) -> str:
    seconds = [loss.replaced for loss in losses]
    return f"{len(seconds)} pods replaced: median {median(seconds):.2f} s, worst {max(seconds):.2f} s"


def choose_victims(workers: Collection[Worker]) -> dict[Worker, float]:
    """Workers of different jobs, and how many seconds after the leader each is to be deleted, the first ones first."""
    jobs = random.sample(sorted({worker.job for worker in workers}), VICTIMS)
    victims = [random.choice(sorted(worker for worker in workers if worker.job == job)) for job in jobs]
    return dict(zip(victims, sorted(random.uniform(*VICTIM_SECONDS) for _ in victims), strict=True))
