"""What the page shows of one job."""

import json
from dataclasses import replace

import pytest
from elastic_pytorch_client.page.details import details_of, log_of, plain
from elastic_pytorch_client.reading.diagnosis import Evidence
from elastic_pytorch_client.reading.job_view import JobView, RootCause, Straggler, Worker
from elastic_pytorch_client.reading.nodes import view_node
from elastic_pytorch_client.worker_logs import Line

from tests.plugin.recorded_cluster import events_of, job_of, moment_of, recorded


def details(name: str, job: JobView | None = None) -> dict[str, object]:
    found = recorded(name)
    evidence = Evidence(
        found["pods"],
        [view_node(node) for node in found["nodes"]],
        events_of(name),
        {},
        moment_of(name),
    )
    shown: dict[str, object] = json.loads(
        json.dumps(details_of(job or job_of(name), evidence), allow_nan=False)
    )
    return shown


def test_it_says_why_as_the_verb_does() -> None:
    why = details("too-large")["why"]
    assert isinstance(why, dict)
    assert not why["well"]
    assert "asks for" in why["findings"][0]["what"]
    assert details("whole")["why"] == {
        "well": True,
        "headline": "char-lm runs at the wanted size: all 4 workers train.",
        "findings": [],
    }


def test_ranks_pods_nodes_and_slowdowns() -> None:
    job = job_of("whole")
    slow = Straggler(0, job.members[1].name, "n", "1.42", "1")
    workers = details("whole", replace(job, stragglers=(slow,)))["workers"]
    assert isinstance(workers, list)
    assert [(w["rank"], w["name"], w["node"], w["slowdown"]) for w in workers] == [
        (w.rank, w.name, w.node, "1.42" if w is job.members[1] else "") for w in job.members
    ]


def test_a_root_cause_keeps_its_traceback() -> None:
    cause = details("failed")["rootCause"]
    assert isinstance(cause, dict)
    assert cause["whereAndHow"].endswith(", exit code 1")
    assert cause["message"].startswith("Traceback (most recent call last):\n  File")
    hang = replace(job_of("failed"), root_cause=RootCause("w", 1, None, "", "", "n"))
    assert details("failed", hang)["rootCause"] == {
        "whereAndHow": "w, rank 1, on n, a hang",
        "message": "",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07left", "left"),
        (" 10%\r 20%\r 30%", " 30%"),
        (" 10%\r 20%\r", " 20%"),
        ("<b>\tbold</b>\x00\x08", "<b>\tbold</b>"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_texts_are_plain(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_a_log() -> None:
    worker = Worker("w", 0, 0, "", "Running")
    assert log_of([Line(worker, "2026-01-01T00:00:00Z", "\x1b[1mstep 1")]) == [
        {"at": "2026-01-01T00:00:00Z", "text": "step 1"}
    ]
