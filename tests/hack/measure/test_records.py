import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
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

STAMP = "1970-01-01T00:16:40.260000123Z "
AGENT = "elastic_pytorch.agent 1970-01-01T00:16:40.250Z INFO "


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("STEP 57 world=3 time=1000.250 host=all-reduce-worker-0", Step(1000.25, "a", 57, 3)),
        ("INIT rank=1 world=3 restart=2 time=1000.250 host=all-reduce-worker-1", Init(1000.25, "a", 1, 3)),
        ("INIT rank=0 world=3 restart=-1 time=1000.250 host=all-reduce-worker-0", Init(1000.25, "a", 0, 3)),
        (AGENT + "round 4: rank 1 of 3, store 10.0.0.1:29500, waited 0.013 s; WorkerLost: b", Taken(1000.25, "a", 4, 1, 3)),
        (AGENT + "workers started in 76 ms: pids 18", Started(1000.25, "a", (18,))),
        (AGENT + "workers started in 76 ms: pids 18 19", Started(1000.25, "a", (18, 19))),
        (AGENT + "workers taken along in 3 ms: pids 18 19", Started(1000.25, "a", (18, 19))),
        (AGENT + "warm after 4.91 s", None),
        ("[rank0]: RuntimeError: Connection reset by peer", None),
        ("DONE rank=0 time=1000.250 host=a", None),
        ("", None),
    ],
)
def test_reads_the_lines_of_all_reduce_and_of_the_agent(line: str, record: Record | None) -> None:
    assert read_worker_line("a", STAMP + line) == ([record] if record else [])


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("start at step 20/800  workers 3", Init(1000.25, "a", 0, 3)),
        ("[rank0]: start at step 20/800  workers 3", Init(1000.25, "a", 0, 3)),
        ("step 21/800  loss 3.272  workers 3  86 ms/step", Step(1000.25, "a", 21, 3, total=800, loss=3.272)),
        ("done at step 800/800  validation loss 1.639", Done(1000.25, "a", 800, 1.639)),
        ("cannot read step-00000020.pt (RuntimeError), trying the one before", None),
        ("", None),
    ],
)
def test_reads_the_lines_of_char_lm_with_the_times_of_the_log(text: str, record: Record | None) -> None:
    assert read_worker_line("a", f"1970-01-01T00:16:40.250000123Z {text}") == ([record] if record else [])


def test_a_line_without_a_time_is_no_record() -> None:
    assert read_worker_line("a", "step 21/800  loss 3.272  workers 3  86 ms/step") == []


TORN = "step 21/800  loss 3.272  workers 3"  # killed there
STEP_21, INIT, DONE = Step(1000.26, "a", 21, 3, total=800, loss=3.272), Init(1000.26, "a", 0, 2), Done(1000.26, "a", 800, 1.639)
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


def operator_line(message: str, job: str = "ns/all-reduce", **fields: object) -> str:
    return json.dumps({"time": "1970-01-01T00:16:40.250Z", "level": "INFO", "message": message, "job": job, **fields})


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (
            operator_line("declared a round", round=2, members=["a", "b"], reason="WorkerLost", cause="c was deleted"),
            Declared(1000.25, 2, ("a", "b"), "WorkerLost", "c was deleted"),
        ),
        (operator_line("created pod", pod="d"), PodCreated(1000.25, "d")),
        (operator_line("created pod", job="other/all-reduce", pod="d"), None),
        (operator_line("deleted pod", pod="d"), None),
        ('{"time": "1970-01-01T00:16:40.250Z", "message": "ready"}', None),
        ("Traceback (most recent call last):", None),
        ("3", None),
    ],
)
def test_reads_the_lines_of_the_operator_about_the_job(line: str, record: Record | None) -> None:
    assert read_operator_line("ns/all-reduce", STAMP + line) == ([record] if record else [])


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
