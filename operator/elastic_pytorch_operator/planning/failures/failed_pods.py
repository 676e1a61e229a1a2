"""Which rules of `failurePolicy.rules` decide on failed rounds, and on failed or lost pods.

An agent may report SIGTERM before the operator sees why its pod ends, so the operator watches the
pod until then even if the group does without it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from elastic_pytorch_operator.model.failure import (
    OOM_KILLED,
    FailureRecord,
    Fault,
    describe_end,
    failed_to_prepare,
    fault_of_pod,
    has_own_end,
    has_spoken,
    has_succeeded,
    name_end,
    record_of,
)
from elastic_pytorch_operator.model.observed import AgentState, AgentView, Observed, PodView
from elastic_pytorch_operator.planning.workers.liveness import Candidate, Liveness
from elastic_pytorch_operator.spec.failure_rules import FailureAction, FailureRule, find_rule

# An earlier operator may have found these: to find them again changes nothing.
REPEATABLE = (FailureAction.FAIL_JOB, FailureAction.RESTART_GROUP)


def rule_on_worker(
    cause: FailureRecord, observed: Observed, rules: Sequence[FailureRule]
) -> FailureRecord:
    return _ruled(cause, find_rule(rules, cause.exit_code), observed)


def _ruled(record: FailureRecord, rule: FailureRule | None, observed: Observed) -> FailureRecord:
    pod = observed.pods_by_name.get(record.worker)
    return replace(
        record,
        node=pod.node if pod else "",
        time=observed.time_of(record.failed_at),
        rule=rule,
        group_restarts=pod.group_restarts if pod else 0,
    )


def ended_pods(observed: Observed) -> list[FailureRecord]:
    records = []
    explained = any(pod.ended for pod in observed.pods) and _has_lost_member(observed)
    for pod in observed.pods:
        spoken, succeeded = has_spoken(pod, observed), has_succeeded(pod.name, observed)
        fault = fault_of_pod(pod, spoken=spoken, succeeded=succeeded)
        if fault is None:
            continue
        agent, record, round_ = observed.agents.get(pod.name), None, 0
        if agent is not None and fault is Fault.CODE:
            record = _last_words(agent, observed, explained=explained)
        if record is None:
            message = pod.exit_message.strip()
            killed = pod.exit_reason == OOM_KILLED or fault is Fault.OUTSIDE
            if has_own_end(pod):
                message = f"the pod {describe_end(pod)}"
            elif killed or not message:  # the log does not report a kill
                message = f"the container {describe_end(pod)}\n{message}".strip()
            record = _record(pod, pod.exit_code, message, observed.now, fault)
        if agent is not None and agent.state in (AgentState.RUNNING, AgentState.FAILED):
            round_ = agent.round
        records.append(replace(record, pod_uid=pod.uid, round=round_))
    return records


def _last_words(agent: AgentView, observed: Observed, *, explained: bool) -> FailureRecord | None:
    """Why an ended pod's torchrun gave up, if its agent said so; `explained` excuses echoes."""
    if agent.state is not AgentState.FAILED or not agent.gives_up:
        return None
    record, round_ = record_of(agent), observed.round
    over = round_ is None or round_.number != agent.round
    if explained or over or record.fault is not Fault.ECHO:
        return record
    return replace(record, fault=Fault.CODE)


def _has_lost_member(observed: Observed) -> bool:
    if observed.round is None:
        return False
    heard_out = {name for name, agent in observed.agents.items() if agent.gives_up}
    here = {pod.name for pod in observed.pods if pod.stays}
    return len(observed.ranks.keys() & (here | heard_out)) < observed.round.size


def judge_pods(
    observed: Observed,
    candidates: Iterable[Candidate],
    rules: Sequence[FailureRule],
    ended: Sequence[FailureRecord],
    ours: Collection[str] = (),
    leaving: Collection[str] = (),
) -> list[FailureRecord]:
    """Failed pods that count or have a rule, and lost ones that have a rule and are not `ours`."""
    records = []
    for record in ended:
        pod = observed.pods_by_name[record.worker]
        rule = None
        if not pod.deleting or pod.ended_before_deletion:
            rule = find_rule(rules, record.exit_code, pod.conditions)
        repeatable = rule is not None and rule.action in REPEATABLE
        # start_backoff decides on failed set-ups.
        own = record.fault in (Fault.CODE, Fault.OUTSIDE) and not failed_to_prepare(pod, observed)
        if (rule is not None or own) and (repeatable or not pod.ended_before_takeover):
            records.append(_ruled(record, rule, observed))
    begun_to_leave = {*observed.ranks, *leaving}
    for candidate in candidates:
        worker, group = candidate.worker, observed.ranks if candidate.gone else begun_to_leave
        lost = not candidate.alive and worker in group and worker in observed.pods_by_name
        if not lost or worker in ours or candidate.succeeded:
            continue
        pod = observed.pods_by_name[worker]
        if not pod.ended and (rule := find_rule(rules, None, pod.conditions)):
            matched = ", ".join(f"{t}={s}" for t, s in sorted(rule.conditions & pod.conditions))
            message = f"{candidate.why} ({matched})"
            record = _record(pod, None, message, observed.now, Fault.PLACE)
            records.append(_ruled(record, rule, observed))
    return records


def leaving_members(
    observed: Observed,
    candidates: Iterable[Candidate],
    known: Collection[str],
    ours: Collection[str],
) -> frozenset[str]:
    begin = {
        c.worker
        for c in candidates
        if c.liveness is Liveness.LEAVING and c.worker in observed.ranks and c.worker not in ours
    }
    return frozenset(pod.name for pod in observed.pods if pod.name in begin or pod.name in known)


def excused_members(
    observed: Observed,
    known: frozenset[str],
    pods: Sequence[FailureRecord],
    leaving: Collection[str] = (),
) -> frozenset[str]:
    return (known | {record.worker for record in pods if record.rule is not None}).intersection(
        {*observed.ranks, *leaving}
    )


def _record(
    pod: PodView, exit_code: int | None, message: str, now: float, fault: Fault
) -> FailureRecord:
    oom_killed = pod.exit_reason == OOM_KILLED
    end = name_end(pod) if fault is Fault.OUTSIDE else ""
    return FailureRecord(
        pod.name, None, exit_code, "", message, now, fault, pod.uid, oom_killed=oom_killed, end=end
    )
