from collections.abc import Sequence

import pytest
from bench.results import Figures, measure, story
from measure.records import Declared, Init, PodCreated, Record, Started, Step, Taken
from measure.timeline import Timeline


def steps(pod: str, first: int, last: int, *, at: float, world: int) -> list[Record]:
    return [Step(at + 0.1 * (number - first), pod, number, world) for number in range(first, last + 1)]


def group(*pods: str, round_: int, at: float) -> list[Record]:
    """Agents take up a round, start their workers 0.05 s later, each 0.01 s after the other, who join 0.1 s after that."""
    records: list[Record] = []
    for rank, pod in enumerate(pods):
        begin = at + 0.01 * rank
        records += [
            Taken(begin, pod, round_, rank, len(pods)),
            Started(begin + 0.05, pod, (7,)),
            Init(begin + 0.15, pod, rank, len(pods)),
        ]
    return records


# A fault at 10.0: c is lost; a and b train again from the checkpoint of step 40, and d joins them.
LOSS = [
    *group("a", "b", "c", round_=1, at=5.0),
    *steps("a", 1, 47, at=5.4, world=3),  # the last at 10.0
    PodCreated(10.3, "d"),
    Declared(10.2, 2, ("a", "b"), "WorkerLost", "c was deleted"),
    *group("a", "b", round_=2, at=10.25),
    *steps("a", 41, 60, at=10.5, world=2),  # the last at 12.4
    Declared(12.4, 3, ("a", "b", "d"), "WorkerJoined", "d is ready"),
    *group("a", "b", "d", round_=3, at=12.45),
    *steps("a", 61, 80, at=12.8, world=3),
]


def figures(records: Sequence[Record], *, fault_at: float = 10.05, ended_at: float = 20.0) -> Figures:
    return measure(Timeline(records).until(ended_at), fault_at, wanted=3)


def test_a_loss_that_is_made_good() -> None:
    found = figures(LOSS)
    assert found.trains_again == pytest.approx(0.45)
    assert found.pause == pytest.approx(0.5)
    assert found.steps_lost == 7  # 41 to 47
    assert found.whole == pytest.approx(2.75)
    assert found.replaced == pytest.approx(0.25)
    assert found.rounds == 2
    assert found.detect == pytest.approx(0.15)
    assert found.start == pytest.approx(0.11)  # of the second member of two
    assert found.init == pytest.approx(0.09)
    assert found.first_step == pytest.approx(0.1)
    assert found.detect + found.start + found.init + found.first_step == pytest.approx(found.trains_again)


def test_the_order_in_which_logs_arrive_does_not_matter() -> None:
    assert figures(list(reversed(LOSS))) == figures(LOSS)


def test_a_group_that_broke_before_its_first_step_is_none() -> None:
    broken = [Declared(10.1, 2, ("a", "b", "c"), "WorkerFailed", ""), Init(10.12, "a", 0, 3)]
    found = figures([*LOSS, *broken])
    assert found.trains_again == pytest.approx(0.45)
    assert found.rounds == 3


def test_a_group_that_leaves_off_exactly_at_its_checkpoint_loses_nothing() -> None:
    found = figures([*LOSS[:9], *steps("a", 1, 40, at=5.4, world=3), *LOSS[9 + 47 :]], fault_at=9.35)
    assert found.steps_lost == 0


def test_rank_0_elsewhere_counts_as_well() -> None:
    moved = [*LOSS[: 9 + 47], *group("b", "a", round_=2, at=10.25), *steps("b", 41, 60, at=10.5, world=2)]
    found = figures(moved)
    assert found.trains_again == pytest.approx(0.45)
    assert (found.whole, found.replaced) == (None, None)


def test_nothing_that_is_noticed() -> None:
    found = figures(LOSS[: 9 + 47], fault_at=7.05)
    assert found.longest_gap == pytest.approx(0.1)
    assert (found.trains_again, found.pause, found.steps_lost, found.detect, found.rounds) == (None, None, None, None, 0)


def test_a_start_is_unknown_until_every_member_has_told_of_it() -> None:
    silent = [record for record in LOSS if not (isinstance(record, Started) and record.pod == "b")]
    assert figures(silent).start is None


def test_what_comes_after_the_end_is_another_trials() -> None:
    found = figures(LOSS, ended_at=12.3)
    assert found.rounds == 1
    assert found.whole is None


def test_the_story_is_of_the_steps_around_the_fault() -> None:
    told = story(Timeline(LOSS).until(10.65), 10.05)
    assert told[0] == (-2.95, 18, 3)
    assert told[-2:] == [(0.45, 41, 2), (0.55, 42, 2)]
