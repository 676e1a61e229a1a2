from collections.abc import Callable

import pytest
import torch
from elastic_pytorch.state.commit_interval import CommitInterval
from elastic_pytorch.state.last_commits import end_group
from elastic_pytorch.state.step_boundary import StepBoundary, Turns, turns
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.torch


class Meeting:
    """An all-reduce of ranks that take turns in one thread: complete once all began it."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.begun: list[list[torch.Tensor]] = []

    def start(self, rank: int) -> Callable[[torch.Tensor], Callable[[], None]]:
        mine = iter(range(10_000))

        def start(numbers: torch.Tensor) -> Callable[[], None]:
            number = next(mine)
            while len(self.begun) <= number:
                self.begun.append([])
            self.begun[number].append(numbers)
            return lambda: self.wait(number, numbers)

        return start

    def wait(self, number: int, numbers: torch.Tensor) -> None:
        begun = self.begun[number]
        assert len(begun) == self.ranks, "every rank has begun the same agreements"
        if number not in outcomes:
            outcomes[number] = torch.stack(begun).amax(0)
        numbers.copy_(outcomes[number])


outcomes: dict[int, torch.Tensor] = {}


@given(
    ranks=st.integers(1, 4),
    told_at=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    step_seconds=st.lists(st.floats(0.0001, 0.2), min_size=4, max_size=4),
)
def test_all_ranks_stop_at_the_same_step_soon_after_one_is_told(
    ranks: int, told_at: list[int], step_seconds: list[float]
) -> None:
    outcomes.clear()
    meeting = Meeting(ranks)
    clocks = [0.0] * ranks
    boundaries = [
        StepBoundary(meeting.start(rank), CommitInterval(1), clock=lambda rank=rank: clocks[rank])
        for rank in range(ranks)
    ]
    stopped: list[int] = []
    for step in range(1, 2000):
        answers = []
        for rank, boundary in enumerate(boundaries):
            clocks[rank] += step_seconds[rank]
            answers.append(
                boundary.reached(
                    lambda rank=rank, step=step: rank < len(told_at) and step >= told_at[rank]
                )
            )
        assert len(set(answers)) == 1, "all or none"
        if answers[0]:
            stopped.append(step)
            break
    first = min(told_at[:ranks])
    longest_wait = 2 * max(1, int(0.12 / min(step_seconds[:ranks]))) + 2
    assert stopped
    assert first < stopped[0] <= first + longest_wait


def test_nobody_stops_untold() -> None:
    outcomes.clear()
    boundary = StepBoundary(Meeting(1).start(0), CommitInterval(1))
    assert not any(boundary.reached(lambda: False) for _ in range(100))


def test_loss_of_a_peer_is_raised_at_the_next_boundary() -> None:
    def wait() -> None:
        raise RuntimeError("Connection closed by peer")

    boundary = StepBoundary(lambda _: wait, CommitInterval(1))
    assert not boundary.reached(lambda: False)
    with pytest.raises(RuntimeError, match="closed by peer"):
        boundary.reached(lambda: False)


class Named:
    """Stands for a State."""

    def __init__(self) -> None:
        self.completed = 0

    def _complete_step(self) -> None:
        self.completed += 1


def test_last_step_of_a_state_that_nothing_refers_to_is_completed_once() -> None:
    completed, turns = [0], Turns()

    class Local:
        def _complete_step(self) -> None:
            completed[0] += 1

    turns.count(Local())
    turns.complete()
    turns.complete()
    assert completed == [1]


@pytest.mark.parametrize(
    ("committed", "refused"),
    [
        ("aaa", False),
        ("aaabbb", False),
        ("ab", False),
        ("aba", True),
        ("aabba", True),
        ("abca", True),
        ("abBa", False),
        ("abABab", False),
        ("aAaAa", False),
        ("ab-a", False),
    ],
)
def test_states_that_are_committed_in_turns_are_refused(committed: str, refused: bool) -> None:
    """A capital letter: the State is closed or restored; `-`: the one before is gone."""
    turns = Turns()
    states = {name: Named() for name in "abc"}

    def commit_all() -> None:
        for before, each in zip(f" {committed}", committed, strict=False):
            if each == "-":
                del states[before]
            elif each.isupper():
                turns.end(states[each.lower()])
            else:
                turns.take(states[each])

    if not refused:
        commit_all()
        return
    with pytest.raises(RuntimeError, match=r"register both models with one State"):
        commit_all()


def test_step_that_is_counted_is_completed_when_something_else_begins() -> None:
    turns, one, other = Turns(), Named(), Named()
    turns.complete()
    turns.count(one)
    turns.complete()
    turns.count(other)
    turns.complete()
    assert (one.completed, other.completed) == (1, 1)
    turns.end(other)
    turns.complete()
    assert (one.completed, other.completed) == (1, 1)


def test_step_that_an_error_has_ended_is_not_completed_before_the_group_is_destroyed() -> None:
    state = Named()
    turns.count(state)
    try:
        raise ValueError
    except ValueError:
        end_group()
    assert state.completed == 0
    end_group()
    assert state.completed == 1
    turns.end(state)
