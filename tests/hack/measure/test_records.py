"""Lines of logs become records, records pauses, and figures cells of a table."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measure import markdown
from measure.records import (
    Declared,
    Done,
    Init,
    PodCreated,
    Record,
    Started,
    Step,
    Taken,
    objects_of,
    read_operator_line,
    read_worker_line,
)
from measure.timeline import StepsOfGroup, Timeline, kept_seconds

STAMP = "1970-01-01T00:16:40.250000123Z "
AGENT = "elastic_pytorch.agent 1970-01-01T00:16:40.250Z INFO "


def test_lines_of_scripts_agents_and_operator_are_read() -> None:
    lines: dict[str, Record | None] = {
        "STEP 57 world=3 time=1000.250 host=all-reduce-worker-0": Step(1000.25, "a", 57, 3),
        "INIT rank=1 world=3 restart=2 time=1000.250 host=all-reduce-worker-1": Init(1000.25, "a", 1, 3),
        f"{AGENT}round 4: rank 1 of 3, store 10.0.0.1:29500, waited 0.013 s; WorkerLost: b": Taken(1000.25, "a", 4, 1, 3),
        f"{AGENT}workers started in 76 ms: pids 18 19": Started(1000.25, "a", (18, 19)),
        f"{AGENT}workers taken along in 3 ms: pids 18 19": Started(1000.25, "a", (18, 19)),
        "[rank0]: start at step 20/800  workers 3": Init(1000.25, "a", 0, 3),
        "step 21/800  loss 3.272  workers 3  86 ms/step": Step(1000.25, "a", 21, 3, total=800, loss=3.272),
        "done at step 800/800  validation loss 1.639": Done(1000.25, "a", 800, 1.639),
        f"{AGENT}warm after 4.91 s": None,
        "[rank0]: RuntimeError: Connection reset by peer": None,
        "": None,
    }
    assert {line: read_worker_line("a", STAMP + line) for line in lines} == {
        line: [record] if record else [] for line, record in lines.items()
    }
    assert read_worker_line("a", "step 21/800  loss 3.272  workers 3  86 ms/step") == [], "it has no time"
    said = {"time": "1970-01-01T00:16:40.250Z", "job": "ns/all-reduce", "pod": "d", "message": "created pod"}
    round_ = {"message": "declared a round", "round": 2, "members": ["a", "b"], "reason": "WorkerLost", "cause": "c"}
    told = [said, said | round_, said | {"job": "other/all-reduce"}, said | {"message": "deleted pod"}, 3]
    found = [read_operator_line("ns/all-reduce", STAMP + json.dumps(line)) for line in told]
    assert found == [[PodCreated(1000.25, "d")], [Declared(1000.25, 2, ("a", "b"), "WorkerLost", "c")], [], [], []]


TORN = "step 21/800  loss 3.272  workers 3"  # killed there
STEP_21, INIT, DONE = Step(1000.25, "a", 21, 3, total=800, loss=3.272), Init(1000.25, "a", 0, 2), Done(1000.25, "a", 800, 1.639)
TAKEN, STARTED = Taken(1000.25, "a", 4, 1, 3), Started(1000.25, "a", (18,))


@pytest.mark.parametrize(
    ("line", "records"),
    [
        (f"{TORN}  86 ms/stepstart at step 20/800  workers 2", [STEP_21, INIT]),
        (f"{TORN}{TORN}", [STEP_21, STEP_21]),
        (f"step 21/800  lo{TORN}", [STEP_21]),
        (f"{TORN}{AGENT}round 4: rank 1 of 3, store 10.0.0.1:29500, waited", [STEP_21, TAKEN]),
        (f"start at step 20/800  workers 2{AGENT}workers started in 76 ms: pids 18{TORN}", [INIT, STARTED, STEP_21]),
        (f"{AGENT}workers sta{AGENT}workers started in 76 ms: pids 18", [STARTED]),
        ("STEP 5 world=3 time=1STEP 57 world=3 time=1000.250 host=bSTEP 58 wor", [Step(1000.25, "a", 57, 3)]),
        ("INIT rank=1 world=3 restart=2 time=1000.250INIT", [Init(1000.25, "a", 1, 3)]),
        (f" 10%|\ufffd\x1b[A\x00\rdone at step 800/800  validation loss 1.639{TORN}", [DONE, STEP_21]),
        ("x" * 10_000_000 + TORN, [STEP_21]),
        (f"step {'9' * 5000}/800  loss 3.272  workers 3  {TORN}", [STEP_21]),
        (f"step 20/800  loss 1.2.3.4  workers 3  {TORN}", [STEP_21]),
        (f"elastic_pytorch.agent 1970-99-99T00:16:40.250Z INFO workers started in 1 ms: pids 1 {TORN}", [STEP_21]),
        ("elastic_pytorch.agent " * 100_000, []),
    ],
)
def test_records_are_found_wherever_in_a_line_they_stand(line: str, records: list[Record]) -> None:
    assert read_worker_line("a", STAMP + line) == records


@given(st.text(), st.sampled_from([TORN, AGENT, STAMP, "start at step 20/800  workers 2"]), st.text())
def test_no_line_is_an_error_or_hides_a_record(before: str, record: str, after: str) -> None:
    read_worker_line("a", before + record + after)
    read_operator_line("ns/all-reduce", before + record + after)
    assert STEP_21 in read_worker_line("a", f"{STAMP}{before}{TORN} {after}")


@pytest.mark.parametrize(
    ("line", "objects"),
    [
        ('{"what": "step", "at": 1}', [{"what": "step", "at": 1}]),
        ('{"what": "st{"what": "step", "at": 1}{"what": "done"}', [{"what": "step", "at": 1}, {"what": "done"}]),
        ('Traceback {"what": "done"} "what": 3', [{"what": "done"}]),
        ('{"what": "step", "at": 1', []),
        ('{"what": ' * 10_000, []),
        ('{"what": ' + "[" * 100_000, []),
        ('{"what": ' + "9" * 5000 + "}", []),
        ("\ufffd\x00", []),
    ],
)
def test_whole_objects_are_found_wherever_in_a_line_they_stand(line: str, objects: list[dict[str, object]]) -> None:
    assert objects_of(line, "what") == objects


def steps(pod: str, first: int, last: int, *, at: float, world: int) -> list[Step]:
    return [Step(at + 0.1 * (n - first), pod, n, world) for n in range(first, last + 1)]


def test_pause_is_found_where_training_went_on_after_a_loss_and_then_at_full_size() -> None:
    records: list[Record] = [
        Init(0.0, "a", 0, 3),
        *steps("a", 1, 47, at=1.0, world=3),  # the last at 5.6
        Init(6.0, "a", 0, 2),  # of a group that broke before its first step
        Init(6.5, "a", 0, 2),
        *steps("a", 41, 60, at=6.8, world=2),  # the last at 8.7
        Init(9.0, "a", 0, 3),
        *steps("a", 61, 70, at=9.2, world=3),
    ]
    seen = Timeline([*reversed(records), *records])
    survivors, whole = seen.resumption(5.65), seen.resumption(5.65, world=3)
    assert survivors and whole
    assert (survivors.last.world, survivors.step.world, survivors.steps_lost) == (3, 2, 7)
    assert (survivors.step.at, survivors.seconds, survivors.pause) == pytest.approx((6.8, 1.15, 1.2))
    assert (whole.last.world, whole.step.world, whole.steps_lost) == (2, 3, 0)
    assert (whole.seconds, whole.pause) == pytest.approx((3.55, 0.5))
    assert seen.resumption(9.5) is None is seen.resumption(5.65, world=4)
    assert len(seen.every(Step)) == 47 + 20 + 10
    assert seen.steps_per_second() == pytest.approx(10), "of the newest group"
    assert kept_seconds(seen.groups()) == pytest.approx((40 + 20 + 10) * 0.1)
    groups = [StepsOfGroup(1, 10, 1.0, 10.0), StepsOfGroup(8, 9, 20.0, 21.0), StepsOfGroup(5, 5, 30.0, 30.0)]
    assert kept_seconds(groups) == 4.0, "steps that two groups do again are kept once, and a group of one step has no pace"


def test_cell_has_the_fewer_digits_the_larger_its_worst_value_and_a_page_only_what_is_between_its_markers() -> None:
    cells = {(0.314,): "0.31 (0.31)", (1.0, 2.0, 9.99): "2.00 (9.99)", (1.0, 10.0): "5.5 (10.0)", (2.0, 1234.5): "618 (1,234)"}
    assert {values: markdown.spread(values, None) for values in cells} == cells
    assert (markdown.spread([], None), markdown.spread([3.0, 20.0], 0)) == ("-", "12 (20)")
    assert markdown.table(("job", "pause"), [("plain", "1")]).splitlines() == [
        "| job | pause |",
        "| --- | --- |",
        "| plain | 1 |",
    ]
    text = "before\n<begin>\nold\n<end>\nafter\n"
    assert markdown.page(text, "<begin>\n", "<end>\n", "new\n") == text.replace("old", "new")
    for lacking in ("", "<begin>\n", "<end>\n<begin>\n"):
        with pytest.raises(ValueError, match="lacks the lines <begin> and <end>"):
            markdown.page(lacking, "<begin>\n", "<end>\n", "")
