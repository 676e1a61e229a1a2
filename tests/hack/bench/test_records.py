import json

import pytest
from records import Declared, Init, PodCreated, Record, Started, Step, Taken, read_operator_line, read_worker_line

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
        (AGENT + "warm after 4.91 s", None),
        ("[rank0]: RuntimeError: Connection reset by peer", None),
        ("DONE rank=0 time=1000.250 host=a", None),
        ("", None),
    ],
)
def test_reads_the_lines_of_script_and_agent(line: str, record: Record | None) -> None:
    assert read_worker_line("a", line) == record


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
    assert read_operator_line("ns/all-reduce", line) == record
