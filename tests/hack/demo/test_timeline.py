import pytest
from timeline import Done, Start, Step, Timeline, parse_line


def timeline(*entries: Start | Step | Done) -> Timeline:
    made = Timeline()
    for entry in entries:
        made.add(entry)
    return made


def steps(pod: str, first: int, last: int, *, at: float, workers: int) -> list[Step]:
    return [Step(at + 0.1 * (n - first), pod, n, 100, 2.0, workers) for n in range(first, last + 1)]


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("start at step 20/800  workers 3", Start(1000.25, "a", 20, 3)),
        ("[rank0]: start at step 20/800  workers 3", Start(1000.25, "a", 20, 3)),
        ("step 21/800  loss 3.272  workers 3  86 ms/step", Step(1000.25, "a", 21, 800, 3.272, 3)),
        ("done at step 800/800  validation loss 1.639", Done(1000.25, "a", 800, 1.639)),
        ("cannot read step-00000020.pt (RuntimeError), trying the one before", None),
        ("", None),
    ],
)
def test_reads_the_lines_of_the_script(text: str, entry: Start | Step | Done | None) -> None:
    assert parse_line("a", f"1970-01-01T00:16:40.250000123Z {text}") == entry


def test_a_line_without_a_time_is_no_entry() -> None:
    assert parse_line("a", "step 21/800  loss 3.272  workers 3  86 ms/step") is None


def test_where_training_went_on_after_a_loss_and_then_at_full_size() -> None:
    seen = timeline(
        Start(0.0, "a", 0, 3),
        *steps("a", 1, 47, at=1.0, workers=3),  # the last at 5.6
        Start(6.5, "a", 40, 2),
        *steps("a", 41, 60, at=6.8, workers=2),  # the last at 8.7
        Start(9.0, "a", 60, 3),
        *steps("a", 61, 70, at=9.2, workers=3),
    )
    survivors = seen.resumption(5.65)
    assert survivors is not None
    assert (survivors.before, survivors.workers, survivors.steps_lost) == (3, 2, 7)
    assert (survivors.at, survivors.seconds, survivors.pause) == pytest.approx((6.8, 1.15, 1.2))
    whole = seen.resumption(5.65, workers=3)
    assert whole is not None
    assert (whole.before, whole.workers, whole.steps_lost) == (2, 3, 0)
    assert (whole.seconds, whole.pause) == pytest.approx((3.55, 0.5))
    assert seen.resumption(9.5) is None
    assert seen.resumption(5.65, workers=4) is None


def test_a_group_that_broke_before_its_first_step_has_not_resumed() -> None:
    seen = timeline(
        *steps("a", 1, 5, at=1.0, workers=4),
        Start(2.0, "a", 4, 3),
        Start(3.0, "b", 4, 2),
        *steps("b", 5, 6, at=3.5, workers=2),
    )
    resumption = seen.resumption(1.5)
    assert resumption is not None
    assert (resumption.workers, resumption.at, resumption.steps_lost) == (2, 3.5, 1)


def test_entries_come_in_any_order_and_more_than_once() -> None:
    entries: list[Start | Step | Done] = [Start(0.0, "a", 0, 2), *steps("a", 1, 4, at=1.0, workers=2), Done(9.0, "a", 4, 1.5)]
    seen = timeline(*reversed(entries), *entries)
    assert seen.first_step() == entries[1]
    assert seen.last_step() == entries[4]
    assert seen.last_step(before=1.15) == entries[2]
    assert seen.done() == entries[5]
    assert seen.steps_per_second() == pytest.approx(10)


def test_nothing_seen_yet() -> None:
    seen = Timeline()
    assert (seen.first_step(), seen.last_step(), seen.done()) == (None, None, None)
    assert (seen.steps_per_second(), seen.resumption(0.0)) == (None, None)
