from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.model.failure import FailureRecord
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.failures.group_restart import (
    GroupRestart,
    find_group_restart,
    outdated_pods,
)
from elastic_pytorch_operator.spec.failure_rules import find_rule, parse_rules

from tests.operator.builders import NOW, a_dead_pod, a_job, a_pod, a_round, observed
from tests.operator.spec.test_failure_rules import on_codes
from tests.situations import situations

RULE = find_rule(parse_rules([on_codes("RestartGroup", 42)]), 42, frozenset())
FAILED = FailureRecord("w1", 1, 42, "", "ValueError: boom", NOW, rule=RULE)
CAUSE = {"worker": "w1", "rank": 1, "exitCode": 42, "message": "ValueError: boom"}
OLD, NEW, MEMBERS = a_pod(0), a_pod(0, group_restarts=1), a_round(0)


@situations(
    "status, counted, pods, asked, stops",
    {
        "none": ({}, 0, [OLD], False, False),
        "asked for: nothing is deleted before the count is stored": ({}, 1, [OLD], True, False),
        "stored: the round stops, the pods go": ({"groupRestarts": 1}, 1, [OLD], False, True),
        "done": ({"groupRestarts": 1}, 1, [NEW], False, False),
        "continued by the next operator": ({"groupRestarts": 1}, 0, [OLD], False, True),
        "a pod that has ended is kept for its log": (
            {"groupRestarts": 1},
            1,
            [a_dead_pod(0)],
            False,
            False,
        ),
    },
)
def test_where_it_stands(
    status: dict[str, Any], counted: int, pods: list[Any], asked: bool, stops: bool
) -> None:
    job, seen = a_job(status=status), observed(pods, round=MEMBERS)
    found = find_group_restart(job, seen, Budget(group_restarts=counted, last=FAILED))
    assert (found.asked, found.stops, found.under_way) == (asked, stops, asked or stops)
    assert outdated_pods(job, seen) == ({"w0"} if stops else set())


def test_pod_outside_the_round_stops_nothing() -> None:
    job, seen = a_job(status={"groupRestarts": 1}), observed([OLD], round=a_round(3))
    found = find_group_restart(job, seen, Budget(group_restarts=1, last=FAILED))
    assert (found.stops, found.cause) == (False, FAILED)


@situations(
    "status, cause",
    {
        "root cause": ({"rootCause": CAUSE}, "rank 1 (w1) failed, exit code 42: ValueError: boom"),
        "no root cause": ({}, "None"),
    },
)
def test_next_operator_reads_the_cause_in_the_status(status: dict[str, Any], cause: str) -> None:
    job = a_job(status={"groupRestarts": 1, **status})
    found = find_group_restart(job, observed([OLD], round=MEMBERS), Budget())
    assert str(found.cause) == cause


@situations(
    "cause, text",
    {
        "ruled": (
            FAILED,
            f"{RULE} replaces all workers: rank 1 (w1) failed, exit code 42: ValueError: boom",
        ),
        "read from the status": (
            replace(FAILED, rule=None),
            "failurePolicy.rules replaces all workers: "
            "rank 1 (w1) failed, exit code 42: ValueError: boom",
        ),
        "unknown": (None, "failurePolicy.rules replaces all workers: see status.rootCause"),
    },
)
def test_words_of_a_restart(cause: FailureRecord | None, text: str) -> None:
    assert GroupRestart(under_way=True, cause=cause).explain() == text
