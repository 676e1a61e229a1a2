"""States are committed as often as a hundredth of the time pays for, on all ranks alike."""

import random

import pytest
import torch
from elastic_pytorch.state.commit_interval import (
    BUDGET,
    LEAST_COMMITS,
    CommitInterval,
    next_interval,
)
from elastic_pytorch.state.step_boundary import StepBoundary, Wait
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("steps", "commit_seconds", "step_seconds", "chosen"),
    [
        (1, 0.0, 0.1, 1),
        (1, 0.0012, 0.12, 1),  # 10 MB on a CPU: exactly a hundredth
        (1, 0.0012, 0.1, 2),
        (1, 0.008, 0.1, 10),  # 100 MB
        (1, 5.0, 0.3, 2000),
        (2, 0.0012, 0.12, 2),  # what is spent has halved: no reason to change
        (2, 0.0009, 0.12, 1),
        (12, 0.0061, 0.1, 12),
        (12, 0.0059, 0.1, 8),
        (12, 0.0121, 0.1, 15),
        (100, 0.0, 0.1, 1),
        (1, 1.0, 0.0, 10**9),
        (7, 0.0, 0.0, 1),
    ],
)
def test_interval_that_a_hundredth_of_the_time_pays_for(
    steps: int, commit_seconds: float, step_seconds: float, chosen: int
) -> None:
    assert next_interval(steps, commit_seconds, step_seconds) == chosen


@given(st.integers(1, 10**6), st.floats(0, 100), st.floats(1e-4, 1000))
def test_a_choice_keeps_to_the_budget_and_stays(
    steps: int, commit_seconds: float, step_seconds: float
) -> None:
    chosen = next_interval(steps, commit_seconds, step_seconds)
    assert commit_seconds <= BUDGET * step_seconds * chosen * (1 + 1e-9)
    assert next_interval(chosen, commit_seconds, step_seconds) == chosen


class Meeting:
    """An all-reduce of ranks that take turns in one thread: all begin before one asks."""

    def __init__(self, ranks: int = 1) -> None:
        self.ranks = ranks
        self.agreement = Agreement()

    def start(self, numbers: torch.Tensor) -> Wait:
        if len(self.agreement.tensors) == self.ranks:
            self.agreement = Agreement()
        self.agreement.tensors.append(numbers)
        return self.agreement.wait


class Agreement:
    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.done = False

    def wait(self) -> None:
        if not self.done:
            largest = torch.stack(self.tensors).amax(0)
            for tensor in self.tensors:
                tensor.copy_(largest)
            self.done = True


class Rank:
    """What a rank does of a training: its steps and commits are numbers of seconds."""

    def __init__(self, meeting: Meeting, every: int | None = None) -> None:
        self.now = 0.0
        self.interval = CommitInterval(every, clock=lambda: self.now)
        self.boundary = StepBoundary(meeting.start, self.interval, clock=lambda: self.now)
        self.step = 0
        self.committed: list[int] = [0]
        self.commit_seconds_in_all = 0.0
        self.changes = 0

    def take_step(self, step_seconds: float, commit_seconds: float | None) -> None:
        """A step, and its commit; `commit_seconds` None: this rank keeps nothing."""
        self.step += 1
        self.now += step_seconds
        self.interval.end_step()
        if self.interval.due(self.step, self.committed[-1]):
            self.committed.append(self.step)
            if commit_seconds is not None:
                with self.interval.holding_up():
                    self.now += commit_seconds
                self.commit_seconds_in_all += commit_seconds
                self.interval.end_commit()
        before = self.interval.steps
        assert not self.boundary.reached(lambda: False)
        self.changes += self.interval.steps != before


@pytest.mark.parametrize(
    ("commit_seconds", "step_seconds", "interval"),
    [
        ((0.0002,), 0.05, range(1, 2)),
        ((0.061,), 0.5, range(12, 25)),
        ((0.061, 0.157), 0.5, range(31, 64)),
        ((0.2, 0.5, None, None), 0.4, range(125, 251)),
    ],
    ids=["cheap", "1 GB", "a pod that is slower", "two ranks that keep nothing"],
)
def test_simulated_training_spends_a_hundredth_on_commits(
    commit_seconds: tuple[float | None, ...], step_seconds: float, interval: range
) -> None:
    """With noise, a stall now and then, and a flush that makes a tenth of the commits dear."""
    dice = random.Random(1)
    meeting = Meeting(len(commit_seconds))
    ranks = [Rank(meeting) for _ in commit_seconds]
    for _ in range(20_000):
        spent = step_seconds * dice.uniform(0.9, 1.1) * (50 if dice.random() < 0.001 else 1)
        for rank, seconds in zip(ranks, commit_seconds, strict=True):
            cost = (
                None
                if seconds is None
                else seconds * dice.uniform(0.8, 1.2) * (2.5 if dice.random() < 0.1 else 1)
            )
            rank.take_step(spent * dice.uniform(0.99, 1.0), cost)
        assert len({rank.interval.steps for rank in ranks}) == 1
    assert all(rank.committed == ranks[0].committed for rank in ranks), (
        "the pods' versions are the same"
    )
    assert ranks[0].interval.steps in interval
    assert max(rank.commit_seconds_in_all for rank in ranks) <= 1.3 * BUDGET * ranks[0].now
    assert ranks[0].changes <= 6


def test_interval_follows_when_the_steps_become_shorter_and_longer() -> None:
    rank = Rank(Meeting())
    found = []
    for step_seconds in (1.0, 0.1, 1.0):
        for _ in range(2000):
            rank.take_step(step_seconds, 0.02)
        found.append(rank.interval.steps)
    assert found[0] in range(2, 5)
    assert found[1] in range(20, 41)
    assert found[2] in range(2, 5)


def test_first_commits_may_be_slow_without_consequence() -> None:
    rank = Rank(Meeting())
    for number in range(100):
        rank.take_step(0.05, 1.0 if number == 0 else 0.0002)
    assert rank.committed == list(range(101))


def test_interval_is_told_in_words() -> None:
    rank = Rank(Meeting())
    assert str(rank.interval) == "commits every step"
    for _ in range(50):
        rank.take_step(0.5, 0.061)
    assert str(rank.interval) == "commits every 15 steps: one takes 61 ms, a step 500 ms"


def test_a_fixed_interval_is_kept_whatever_it_costs() -> None:
    rank = Rank(Meeting(), every=4)
    for _ in range(40):
        rank.take_step(0.01, 1.0)
    assert rank.committed == list(range(0, 41, 4))
    assert rank.changes == 0


def test_a_new_group_begins_with_each_step_and_with_what_has_been_measured() -> None:
    rank = Rank(Meeting())
    for _ in range(100):
        rank.take_step(0.1, 0.008)
    assert rank.interval.steps > 1
    newcomer = Rank(Meeting())
    rank.interval.restart()
    assert (rank.interval.steps, newcomer.interval.steps) == (1, 1)
    assert rank.interval.wanted() == 10
    for _ in range(LEAST_COMMITS):
        assert newcomer.interval.wanted() == 1
        newcomer.take_step(0.1, 0.008)
    assert newcomer.interval.wanted() == 10


class Device:
    """Computes what it is asked for, later than the process that asks goes on."""

    def __init__(self) -> None:
        self.now = self.ready_at = 0.0

    def ask(self, process_seconds: float, device_seconds: float) -> None:
        self.now += process_seconds
        self.ready_at = max(self.ready_at, self.now) + device_seconds

    def wait(self) -> None:
        self.now = max(self.now, self.ready_at)


@pytest.mark.parametrize("beside", [0.0, 0.004], ids=["in the process", "on the device"])
def test_steps_of_a_device_are_measured_from_commit_to_commit(beside: float) -> None:
    """What the process takes to ask for a step says nothing about the step."""
    device = Device()
    interval = CommitInterval(None, clock=lambda: device.now)
    committed, commits, changes = 0, 0, 0
    for step in range(1, 2001):
        device.ask(0.002, 0.1)
        interval.end_step()
        if interval.due(step, committed):
            committed, commits = step, commits + 1
            device.wait()
            interval.catch_up()
            with interval.holding_up():
                device.now += 0.004 - beside
            device.ready_at = device.now + beside
            interval.end_commit(beside)
        changes += interval.wanted() != interval.steps
        interval.agree(interval.wanted())
    assert interval.steps == 5
    assert changes == 1
    assert commits <= 405
    assert str(interval) == "commits every 5 steps: one takes 4 ms, a step 100 ms"


def test_what_was_restored_is_no_commit_of_the_training() -> None:
    rank = Rank(Meeting())
    with rank.interval.holding_up():
        rank.now += 5.0  # new memory
    rank.interval.end_commit()
    rank.interval.restart()
    for cost in (1.0, 0.008, 0.008):
        rank.take_step(0.1, cost)
    assert rank.interval.wanted() == 10
