from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.failure import FailureRecord, Fault
from elastic_pytorch_operator.model.observed import (
    AgentState,
    AgentView,
    Failure,
    Observed,
    PodView,
)
from elastic_pytorch_operator.planning.failures.failed_pods import (
    ended_pods,
    excused_members,
    judge_pods,
    rule_on_worker,
)
from elastic_pytorch_operator.planning.workers.liveness import assess_workers, without_victims
from elastic_pytorch_operator.spec.failure_rules import FailureRule, parse_rules

from tests.operator.builders import (
    NOW,
    TIME,
    a_dead_pod,
    a_failure,
    a_pod,
    a_round,
    an_agent,
    observed,
)
from tests.operator.spec.test_failure_rules import DISRUPTED, on_codes, on_condition
from tests.situations import situations

EVICTED = frozenset({DISRUPTED})
GOING: dict[str, Any] = {"deleting": True, "conditions": EVICTED}


def judge(
    seen: Observed, rules: tuple[FailureRule, ...] = (), ours: frozenset[str] = frozenset()
) -> list[tuple[str, int | None]]:
    """Each pod that matters, and the rule that decides on it."""
    found = judge_pods(
        seen, without_victims(assess_workers(seen), ours, {}), rules, ended_pods(seen), ours
    )
    return [(record.worker, record.rule.index if record.rule else None) for record in found]


def test_only_pods_that_failed_or_were_ended_from_outside_under_this_operator_are_judged() -> None:
    pods = [
        a_dead_pod(0),
        a_dead_pod(1, exit_code=137),
        a_dead_pod(2, ended_before_takeover=True),
        a_dead_pod(3, exit_code=128, exit_reason="StartError"),
        a_dead_pod(4, exit_code=0),
        a_dead_pod(5, exit_code=0),
        a_dead_pod(6, exit_code=0, ended_before_takeover=True),
    ]
    seen = observed(pods, [an_agent("w4", "succeeded"), an_agent("w5")], round=a_round(4, 5))
    assert judge(seen) == [("w0", None), ("w1", None), ("w5", None)]


def test_failure_before_a_worker_has_a_group_is_none_of_the_job_unless_by_a_rule() -> None:
    pods = [a_dead_pod(0), a_dead_pod(1, exit_code=42), a_dead_pod(2)]
    agents = [an_agent("w0", "failed", 0), an_agent("w1", "failed", 0), an_agent("w2", "failed")]
    seen = observed(pods, agents, round=a_round(3))
    assert judge(seen, parse_rules([on_codes("FailJob", 42)])) == [("w1", 0), ("w2", None)]


def test_start_error_counts_if_an_operator_before_this_one_has_heard_the_agent() -> None:
    seen = observed([a_dead_pod(0, exit_code=127)], heard_before=frozenset({"w0"}))
    assert judge(seen) == [("w0", None)]


@situations(
    "seen, rule",
    {
        "its container has failed": (observed([a_dead_pod(0, exit_code=42)]), 1),
        "it was killed from outside": (observed([a_dead_pod(0, exit_code=137)]), 2),
        "the kubelet has evicted it": (
            observed([a_dead_pod(0, exit_code=137, conditions=EVICTED)]),
            0,
        ),
        "the kubelet has never started it": (
            observed([a_dead_pod(0, exit_code=None, conditions=EVICTED)]),
            0,
        ),
        "it ended with success": (
            observed(
                [a_dead_pod(0, exit_code=0, conditions=EVICTED)],
                [an_agent("w0", "succeeded")],
                round=a_round(0),
            ),
            None,
        ),
        "the kubelet has evicted it, and a shell has hidden torchrun's exit code": (
            observed(
                [a_dead_pod(0, exit_code=0, disrupted=True, conditions=EVICTED)], [an_agent("w0")]
            ),
            0,
        ),
        "it ended since it was deleted": (
            observed([a_dead_pod(0, exit_code=42, deleting=True)]),
            None,
        ),
        "it was deleted since it had ended": (
            observed([a_dead_pod(0, exit_code=42, deleting=True, ended_before_deletion=True)]),
            1,
        ),
        "it had ended before this operator led": (
            observed([a_dead_pod(0, exit_code=137, ended_before_takeover=True)]),
            None,
        ),
        "it had, and fails the job once more": (
            observed([a_dead_pod(0, exit_code=42, ended_before_takeover=True)]),
            1,
        ),
        "a member is evicted": (
            observed([a_pod(0, **GOING)], [an_agent("w0")], round=a_round(0)),
            0,
        ),
        "a member is deleted": (
            observed([a_pod(0, deleting=True)], [an_agent("w0")], round=a_round(0)),
            None,
        ),
        "a member will be evicted": (
            observed([a_pod(0, conditions=EVICTED)], [an_agent("w0")], round=a_round(0)),
            None,
        ),
        "a member that is done is evicted": (
            observed([a_pod(0, **GOING)], [an_agent("w0", AgentState.SUCCEEDED)], round=a_round(0)),
            None,
        ),
        "a pod outside the group is evicted": (
            observed([a_pod(0, **GOING)], round=a_round(1)),
            None,
        ),
    },
)
def test_rule_that_decides_on_a_pod(seen: Observed, rule: int | None) -> None:
    rules = parse_rules([on_condition("Ignore"), on_codes("FailJob", 42), on_codes("Count", 137)])
    assert judge(seen, rules) == ([] if rule is None else [("w0", rule)])


def test_what_the_operator_deletes_is_not_lost() -> None:
    seen = observed([a_pod(0, **GOING)], [an_agent("w0")], round=a_round(0))
    assert judge(seen, parse_rules([on_condition("FailJob")]), ours=frozenset({"w0"})) == []


def test_lost_pod_in_words() -> None:
    seen = observed([a_pod(0, **GOING)], [an_agent("w0")], round=a_round(0))
    [record] = judge_pods(
        seen, assess_workers(seen), parse_rules([on_condition("FailJob")]), ended_pods(seen)
    )
    assert str(record) == "w0 is being deleted (DisruptionTarget=True)"
    assert record.as_status() == {
        "worker": "w0",
        "node": "node-0",
        "time": TIME,
        "message": "is being deleted (DisruptionTarget=True)",
    }


@pytest.mark.parametrize(("exit_code", "index"), [(42, 0), (139, 1), (1, None), (None, None)])
def test_rule_that_decides_on_a_process(exit_code: int | None, index: int | None) -> None:
    rules = parse_rules([on_codes("FailJob", 42), on_codes("Ignore", 139), on_condition("Ignore")])
    cause = FailureRecord("w0", 0, exit_code, "", "boom", NOW, Fault.CODE)
    found = rule_on_worker(cause, observed([a_pod(0, group_restarts=3, conditions=EVICTED)]), rules)
    assert (found.rule.index if found.rule else None, found.group_restarts) == (index, 3)


BOOM, ECHO = (
    a_failure(traceback="in step 10"),
    a_failure("RuntimeError: gloo: Connection closed by peer"),
)
ENDED = a_dead_pod(0, exit_code=0)


def gave_up(worker: str, failure: Failure | None, **fields: Any) -> AgentView:
    return an_agent(worker, "failed", failure=failure, gives_up=True, **fields)


@situations(
    "agents, others, expected",
    {
        "the shell hides the code of a torchrun that gave up": (
            [gave_up("w0", BOOM)],
            [a_pod(1)],
            "code of round 1: in step 10",
        ),
        "torchrun was killed alone": (
            [an_agent("w0")],
            [a_pod(1)],
            "code of round 1: has not reported success",
        ),
        "the agent has failed, but its torchrun would go on": (
            [an_agent("w0", "failed", failure=BOOM)],
            [],
            "code of round 1: hide",
        ),
        "it was not in a round": (
            [an_agent("w0", "ready")],
            [a_pod(1)],
            "code of round 0: has not reported success",
        ),
        "its agent has never spoken": ([], [a_pod(1)], "code of round 0: has not reported success"),
        "it gave up as a peer was lost": (
            [gave_up("w0", ECHO)],
            [a_dead_pod(1, exit_code=137)],
            "echo of round 1: closed by peer",
        ),
        "it gave up as a peer has gone": (
            [gave_up("w0", ECHO)],
            [],
            "echo of round 1: closed by peer",
        ),
        "a peer that is there is no excuse": (
            [gave_up("w0", ECHO)],
            [a_pod(1)],
            "code of round 1: closed by peer",
        ),
        "its peer gave up, too": (
            [gave_up("w0", ECHO), gave_up("w1", ECHO)],
            [a_dead_pod(1)],
            "code of round 1: closed by peer",
        ),
        "the group is another by now": (
            [gave_up("w0", ECHO, round_=0)],
            [a_pod(1)],
            "echo of round 0: closed by peer",
        ),
    },
)
def test_end_with_exit_code_0(
    agents: list[AgentView], others: list[PodView], expected: str
) -> None:
    found = ended_pods(observed([ENDED, *others], agents, round=a_round(0, 1)))[0]
    fault, words = expected.split(": ")
    assert found.pod_uid == "uid-w0"
    assert f"{found.fault} of round {found.round}" == fault
    assert words in found.message


def test_container_that_ran_out_of_memory_is_told_before_the_end_of_its_log() -> None:
    killed = a_dead_pod(
        0, exit_code=137, exit_reason="OOMKilled", exit_message="STEP 11 loss=2.3\n"
    )
    [record] = ended_pods(observed([killed], [an_agent("w0")], round=a_round(0)))
    assert record.kind == "OutOfMemory"
    first, last = record.message.splitlines()
    assert first.startswith("the container ran out of memory (OOMKilled): all its processes")
    assert last == "STEP 11 loss=2.3"


def test_member_is_excused_until_the_group_does_without_it() -> None:
    rule = parse_rules([on_condition("Ignore")])[0]
    record = FailureRecord("w0", None, None, "", "lost", NOW, Fault.PLACE, "uid-w0", rule=rule)
    seen = observed(round=a_round(0, 1))
    excused = excused_members(seen, frozenset(), [record, replace(record, worker="w1", rule=None)])
    assert excused == {"w0"}
    assert excused_members(seen, excused, []) == {"w0"}, "its pod has gone"
    assert excused_members(observed(round=a_round(1)), excused, []) == frozenset()
