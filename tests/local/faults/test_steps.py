import pytest
from elastic_pytorch_local.faults import steps as log_steps
from elastic_pytorch_local.faults.steps import (
    Began,
    Done,
    Record,
    RoundBegan,
    Started,
    Step,
    StepLog,
    changes,
    read_worker_line,
    steps_per_second,
)
from hypothesis import given
from hypothesis import strategies as st

STAMP = "1970-01-01T00:16:40.250000123Z "
AGENT = "elastic_pytorch.agent 1970-01-01T00:16:40.250Z INFO "
TORN = "step 21/800  loss 3.272  workers 3"  # killed there
STEP_21, BEGAN = Step(1000.25, "a", 21, 3, total=800, loss=3.272), Began(1000.25, "a", 2)
DONE, STARTED = Done(1000.25, "a"), Started(1000.25, "a", (18,))


@pytest.mark.parametrize(
    ("line", "records"),
    [
        ("STEP 57 world=3 time=1000.250 host=all-reduce-worker-0", [Step(1000.25, "a", 57, 3)]),
        ("INIT rank=0 world=2 restart=2 time=1000.250 host=all-reduce-worker-0", [BEGAN]),
        ("INIT rank=1 world=2 restart=2 time=1000.250 host=all-reduce-worker-1", []),
        (f"{AGENT}workers taken along in 3 ms: pids 18 19", [Started(1000.25, "a", (18, 19))]),
        (f"{AGENT}round 4: rank 1 of 3, store 10.0.0.1:29500, waited 0.013 s; WorkerLost: b", []),
        ("", []),
        (f"{TORN}  86 ms/stepstart at step 20/800  workers 2", [STEP_21, BEGAN]),
        (f"step 21/800  lo{TORN}", [STEP_21]),
        (
            f"start at step 20/800  workers 2{AGENT}workers started in 76 ms: pids 18{TORN}",
            [BEGAN, STARTED, STEP_21],
        ),
        (f"{AGENT}workers sta{AGENT}workers started in 76 ms: pids 18", [STARTED]),
        (
            "STEP 5 world=3 time=1STEP 57 world=3 time=1000.250 host=bSTEP 58 wor",
            [Step(1000.25, "a", 57, 3)],
        ),
        (
            f" 10%|\ufffd\x1b[A\x00\rdone at step 800/800  validation loss 1.639{TORN}",
            [DONE, STEP_21],
        ),
        ("x" * 10_000_000 + TORN, [STEP_21]),
        (f"step {'9' * 5000}/800  loss 3.272  workers 3  {TORN}", [STEP_21]),
        (
            "elastic_pytorch.agent 1970-99-99T00:16:40.250Z INFO workers started in 1 ms: "
            f"pids 1 {TORN}",
            [STEP_21],
        ),
        ("elastic_pytorch.agent " * 100_000, []),
        (
            f"{AGENT}round 4: rank 0 of 3, store 10.0.0.1:29500, waited 0.013 s; x",
            [RoundBegan(1000.25, "a", 3)],
        ),
        ("iter 10: loss 2.3104, time 20.00ms", [Step(1000.25, "a", 10, 0, loss=2.3104)]),
        (
            "[rank0] Step 7/100 | lr 3e-4 | train loss: 1e-05",
            [Step(1000.25, "a", 7, 0, total=100, loss=1e-05)],
        ),
        (
            " iteration       12/    100 | lm loss: 9.5E+00 |",
            [Step(1000.25, "a", 12, 0, total=100, loss=9.5)],
        ),
        ("resuming at iteration 100", []),
        ("misstep 3 glossy 1.0", []),
    ],
)
def test_records_are_found_wherever_in_a_line_they_stand(line: str, records: list[Record]) -> None:
    assert read_worker_line("a", STAMP + line) == records


@given(
    st.text(), st.sampled_from([TORN, AGENT, STAMP, "start at step 20/800  workers 2"]), st.text()
)
def test_no_line_is_an_error_or_hides_a_record(before: str, record: str, after: str) -> None:
    read_worker_line("a", before + record + after)
    assert STEP_21 in read_worker_line("a", f"{STAMP}{before}{TORN} {after}")


def steps(pod: str, first: int, last: int, *, at: float, world: int) -> list[Step]:
    return [Step(at + 0.1 * (n - first), pod, n, world) for n in range(first, last + 1)]


def groups_of(steps: list[Step]) -> list[tuple[int, int, int, int]]:
    """Each group's number, its workers, and its first and last step."""
    numbers: dict[tuple[int, int], list[int]] = {}
    for step in steps:
        numbers.setdefault((step.group, step.world), []).append(step.number)
    return [(*group, min(taken), max(taken)) for group, taken in sorted(numbers.items())]


def test_steps_have_the_group_that_their_pod_began_in_whatever_order_logs_arrive() -> None:
    records: list[Record] = [
        Began(0.0, "a", 3),
        *steps("a", 1, 47, at=1.0, world=3),  # the last at 5.6
        Began(6.0, "b", 2),  # of a group that broke before its first step
        Began(6.5, "b", 2),
        Step(6.6, "a", 48, 3),  # a has not heard of it
        *steps("b", 41, 60, at=6.8, world=2),  # the last at 8.7
        Started(8.8, "b", (7,)),
        Began(9.0, "b", 3),
        *steps("b", 61, 70, at=9.2, world=3),
    ]
    log = StepLog([*reversed(records), *records])
    assert groups_of(log.steps()) == [(1, 3, 1, 48), (3, 2, 41, 60), (4, 3, 61, 70)]
    assert [step.number for step in log.steps(since=10.0)] == [68, 69, 70], (
        "with the last one before"
    )
    torn = StepLog([Step(1.0, "a", 5, 3), Began(1.0, "a", 2), Step(2.0, "a", 6, 2)])
    assert [step.group for step in torn.steps()] == [0, 1], "the line of the step before has no end"
    assert log.pids == {"b": (7,)}
    assert steps_per_second(log) == pytest.approx(10), "of the newest group"
    assert (StepLog().last(), StepLog().steps(), steps_per_second(StepLog())) == (None, [], None)


def test_a_script_that_tells_no_group_has_that_of_the_round_and_only_rank_0_counts() -> None:
    records: list[Record] = [
        RoundBegan(1.0, "a", 3),
        *steps("a", 1, 20, at=2.0, world=0),
        *steps("b", 1, 20, at=2.05, world=0),  # another rank prints, too
        RoundBegan(5.0, "b", 2),
        *steps("b", 11, 15, at=6.0, world=0),
    ]
    assert groups_of(StepLog(records).steps()) == [(1, 3, 1, 20), (2, 2, 11, 15)]
    assert StepLog(steps("a", 1, 3, at=1.0, world=0)).steps() == [], "no agent has reported a round"


def steps_of(*parts: tuple[float, float, int, int, int]) -> list[Step]:
    """The steps of groups: from when until when, from which number, of which workers."""
    counted = [(part, round((part[1] - part[0]) / 0.05)) for part in parts]
    return [
        Step(b + 0.05 * n, "a", first + n, world, group)
        for (b, _, first, world, group), c in counted
        for n in range(c + 1)
    ]


ONE = (0, 1, 0, 3, 1)


def test_a_group_that_has_gone_tells_of_no_further_change() -> None:
    late = Step(5.02, "b", 22, 3, 1)
    seen = sorted(
        [*steps_of(ONE, (5, 6, 18, 2, 2), (8, 9, 38, 3, 3)), late], key=lambda step: step.at
    )
    found = changes(seen, 0.99)
    assert [(each.last.number, each.first.number, each.repeated) for each in found] == [
        (20, 18, 3),
        (38, 38, 1),
    ]
    assert [each.pause_seconds for each in found] == pytest.approx([4.0, 2.0])
    assert changes(seen, 6.5) == found[1:]


def test_a_long_training_keeps_its_newest_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_steps, "MAX_STEPS", 5)
    taken = steps("a", 1, 9, at=2.0, world=3)
    log = StepLog([Began(1.0, "a", 3), *taken])
    for step in taken:  # a log that is followed again begins again
        log.add(step)
    assert [step.number for step in log.steps()] == [5, 6, 7, 8, 9]
