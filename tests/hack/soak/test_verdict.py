"""What a run comes to: a run without a flaw breaks no promise, and each kind has its pauses."""

from dataclasses import replace

from elastic_pytorch_client.reading.goodput import Goodput
from rich.console import Console
from soak.checks.training import Expected
from soak.pauses import Compared
from soak.report import around, show, to_json
from soak.timeline import (
    SUSPEND,
    Done,
    Hit,
    PodSeen,
    Restart,
    SetUpFailure,
    StatusSeen,
    Step,
    Violation,
    read_refusals,
)
from soak.verdict import Row, Seen, table, violations

POD = "job-worker-0-aaaaa"
DRAIN = Hit(103.2, 108, "drain", "drain n1", frozenset({"job"}), node="n1")


def whole() -> Seen:
    """A job of six steps that lost two seconds by a drain."""
    numbers = ((100, 1, 1), (101, 2, 1), (102, 3, 1), (103, 4, 1), (106, 5, 2), (107, 6, 2))
    return Seen(
        expected={"job": Expected("job", 1, 2, 1, 6)},
        hits=[DRAIN],
        steps={"job": [Step(at, POD, 0, 1, number, group) for at, number, group in numbers]},
        done={"job": [Done(107.5, POD, ())]},
        undisturbed={},
        statuses={"job": [StatusSeen(101, "job", "Running", 1)]},
        ends=[PodSeen(109, "job", POD, "n1", "deleted")],
        usages=[],
        states={"job": "Complete"},
    )


def test_a_run_without_a_flaw() -> None:
    assert violations(whole()) == []


def test_account_that_is_not_what_was_seen_is_a_flaw() -> None:
    seen = whole()
    seen.expected = {"job": replace(seen.expected["job"], commits=True)}
    seen.done = {"job": [Done(107.5, POD, ())]}
    seen.statuses = {"job": [StatusSeen(100, "job", "Running", 1), StatusSeen(1100, "job", "Complete", 0)]}
    seen.goodput = {"job": Goodput(0.006, {"Training": 6, "Recovering": 994})}
    assert violations(seen) == []
    seen.goodput = {"job": Goodput(0.1, {"Training": 100, "Recovering": 900})}
    assert [violation.rule for violation in violations(seen)] == ["goodput is what was seen"]


def test_flaws_are_listed_by_time() -> None:
    seen = whole()
    seen.states = {"job": "Failed"}
    seen.left = ["pods/x"]
    seen.violations = [Violation("a checkpoint can be loaded", "job", 104, "none can")]
    rules = [violation.rule for violation in violations(seen)]
    assert rules == ["nothing leaks", "every job ends Complete", "a checkpoint can be loaded"]


def test_an_operator_that_starts_again_by_itself_breaks_a_promise() -> None:
    seen = whole()
    seen.restarts = [Restart(105, "op", "n1", "its container ended with 1 (Error)")]
    assert [violation.rule for violation in violations(seen)] == ["the operator keeps running"]


def test_pod_that_has_trained_may_end_by_a_set_up_that_fails_on_purpose() -> None:
    seen = whole()
    seen.ends = [PodSeen(105, "job", POD, "n2", "its container ended with 1")]
    assert [violation.rule for violation in violations(seen)] == ["no healthy pod ends"]
    seen.set_up_failures = {"job": [SetUpFailure(104.8, POD, "kill")]}
    assert violations(seen) == []
    assert to_json(seen, [])["set_up_failures"] == {"job": [{"at": 104.8, "pod": POD, "how": "kill"}]}


def test_a_hostile_tenant_that_leaves_out_an_act_shows_nothing() -> None:
    seen = whole()
    seen.hostile = {"flood": 7, "webhook": 0}
    [found] = violations(seen)
    assert found.text == "webhook was never done"
    seen.hostile = {"flood": 7, "webhook": 1}
    assert violations(seen) == []


def test_a_kind_has_the_longest_pause_of_each_job_that_it_was_done_to() -> None:
    seen = whole()
    seen.hits = [DRAIN, replace(DRAIN, kind="scale", jobs=frozenset({"other"}))]
    assert table(seen) == [Row("scale", 1, None), Row("drain", 1, (3, 3, 3))]


def test_pauses_of_jobs_that_are_suspended_all_the_time_are_told_of_that_alone() -> None:
    seen = whole()
    seen.hits = [DRAIN, replace(DRAIN, kind=SUSPEND, node="")]
    assert table(seen) == [Row("drain", 1, None), Row(SUSPEND, 1, (3, 3, 3))]


def test_report_shows_what_was_done_around_a_violation() -> None:
    seen, console = whole(), Console(record=True, width=160)
    found = [Violation("no step left out", "job", 110.0, "step 5")]
    show(console, seen, found)
    text = console.export_text()
    assert "NOT KEPT: no step left out: job: step 5" in text
    assert "  -6.8 to   -2.0 s: drain n1" in text
    assert "3.00" in text, "the job's pause"
    assert "What the hostile tenant" not in text
    assert around([DRAIN], 500) == []
    assert to_json(seen, found)["groups"] == {"job": [[1, 1, 4, 1, 100, 103], [2, 5, 6, 1, 106, 107]]}


def test_report_shows_what_the_hostile_tenant_has_done_and_pauses_that_grew() -> None:
    seen, console = whole(), Console(record=True, width=160)
    seen.hostile = {"flood": 1234567}
    seen.restarts = [Restart(105, "op", "n1", "?")]
    show(console, seen, [], [Compared("job", "median", 3.0, 1.0)])
    text = console.export_text()
    assert "1,234,567" in text
    assert "restarts of operators: 1" in text
    assert "job, median of the pauses: 3.00 s, 3.00 times the 1.00 s of before: more than 2 times" in text
    kept = to_json(seen, [])
    assert (kept["pauses"], kept["hostile"]) == ({"job": (3, 3, 3)}, {"flood": 1234567})


def test_refused_process_is_a_flaw() -> None:
    lines = [
        {"what": "restored", "at": 1.0, "worker": POD},
        {"what": "refused", "at": 2.0, "worker": POD, "error": "torch 9 takes"},
    ]
    assert read_refusals("job", lines) == [
        Violation("in_process goes on with a sharded model", "job", 2.0, f"{POD}: torch 9 takes")
    ]
