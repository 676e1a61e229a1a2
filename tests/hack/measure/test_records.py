import json

import pytest
from measure.records import (
    Declared,
    Done,
    Init,
    PodCreated,
    Record,
    Started,
    Step,
    Taken,
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
    assert read_worker_line("a", STAMP + line) == record


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
    assert read_worker_line("a", f"1970-01-01T00:16:40.250000123Z {text}") == record


def test_a_line_without_a_time_is_no_record() -> None:
    assert read_worker_line("a", "step 21/800  loss 3.272  workers 3  86 ms/step") is None


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
    assert read_operator_line("ns/all-reduce", STAMP + line) == record
