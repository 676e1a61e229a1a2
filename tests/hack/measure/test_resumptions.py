import pytest
from measure.records import Done, Init, Record, Step
from measure.timeline import StepsOfGroup, Timeline, kept_seconds


def steps(pod: str, first: int, last: int, *, at: float, world: int) -> list[Step]:
    return [Step(at + 0.1 * (n - first), pod, n, world) for n in range(first, last + 1)]


def test_where_training_went_on_after_a_loss_and_then_at_full_size() -> None:
    seen = Timeline(
        [
            Init(0.0, "a", 0, 3),
            *steps("a", 1, 47, at=1.0, world=3),  # the last at 5.6
            Init(6.5, "a", 0, 2),
            *steps("a", 41, 60, at=6.8, world=2),  # the last at 8.7
            Init(9.0, "a", 0, 3),
            *steps("a", 61, 70, at=9.2, world=3),
        ]
    )
    survivors = seen.resumption(5.65)
    assert survivors is not None
    assert (survivors.last.world, survivors.step.world, survivors.steps_lost) == (3, 2, 7)
    assert (survivors.step.at, survivors.seconds, survivors.pause) == pytest.approx((6.8, 1.15, 1.2))
    whole = seen.resumption(5.65, world=3)
    assert whole is not None
    assert (whole.last.world, whole.step.world, whole.steps_lost) == (2, 3, 0)
    assert (whole.seconds, whole.pause) == pytest.approx((3.55, 0.5))
    assert seen.resumption(9.5) is None
    assert seen.resumption(5.65, world=4) is None


def test_a_group_that_broke_before_its_first_step_has_not_resumed() -> None:
    seen = Timeline(
        [
            *steps("a", 1, 5, at=1.0, world=4),
            Init(2.0, "a", 0, 3),
            Init(3.0, "b", 0, 2),
            *steps("b", 5, 6, at=3.5, world=2),
        ]
    )
    resumption = seen.resumption(1.5)
    assert resumption is not None
    assert (resumption.step.world, resumption.step.at, resumption.steps_lost) == (2, 3.5, 1)


def test_records_come_in_any_order_and_more_than_once() -> None:
    records: list[Record] = [Init(0.0, "a", 0, 2), *steps("a", 1, 4, at=1.0, world=2), Done(9.0, "a", 4, 1.5)]
    seen = Timeline([*reversed(records), *records])
    assert seen.first(Step) == records[1]
    assert seen.last(Step) == records[4]
    assert seen.last(Step, before=1.15) == records[2]
    assert seen.first(Done) == records[5]
    assert seen.every(Step) == records[1:5]
    assert seen.steps_per_second() == pytest.approx(10)


def test_only_the_newest_groups_steps_count() -> None:
    seen = Timeline([Init(1.0, "a", 0, 3), *(Step(1.0 + number, "a", number, 3) for number in range(1, 6))])
    assert [step.world for step in seen.steps_of_group(after=0.0)] == [3] * 5
    assert len(seen.steps_of_group(after=4.0)) == 2
    seen.add(Init(7.0, "a", 0, 2))
    assert seen.steps_per_second() is None
    seen.add(Step(8.0, "a", 6, 2))
    assert [step.world for step in seen.steps_of_group(after=0.0)] == [2]


def test_nothing_seen_yet() -> None:
    seen = Timeline()
    assert (seen.first(Step), seen.last(Step), seen.first(Done)) == (None, None, None)
    assert (seen.steps_per_second(), seen.resumption(0.0)) == (None, None)


def test_kept_time_is_that_of_each_steps_last_time_and_of_no_pause() -> None:
    seen = Timeline(
        [
            Init(0.5, "a", 0, 3),
            *steps("a", 1, 10, at=1.0, world=3),
            Init(2.5, "a", 0, 2),
            *(Step(3.0 + 0.2 * n, "a", 9 + n, 2) for n in range(12)),  # slower, from step 9 to 20
            Init(6.0, "a", 0, 2),  # of the same size: only a new group tells that the time between is a pause
            *steps("a", 21, 30, at=7.0, world=2),
            Init(9.0, "b", 0, 2),
        ]
    )
    assert [(group.first, group.last) for group in seen.groups()] == [(1, 10), (9, 20), (21, 30)]
    assert kept_seconds(seen.groups()) == pytest.approx(8 * 0.1 + 12 * 0.2 + 10 * 0.1)


def test_steps_that_two_groups_do_again_are_kept_once() -> None:
    groups = [StepsOfGroup(1, 10, 1.0, 10.0), StepsOfGroup(8, 9, 20.0, 21.0), StepsOfGroup(5, 5, 30.0, 30.0)]
    assert kept_seconds(groups) == 4.0, "a group of one step has no pace"
    assert kept_seconds([]) == 0
