"""The events of a job: one for each change."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import find_condition
from elastic_pytorch_operator.model.actions import RecordEvent
from elastic_pytorch_operator.model.failure import Ending, FailureRecord
from elastic_pytorch_operator.model.observed import Observed, UnreadableObject
from elastic_pytorch_operator.model.operator_state import read_operator_state
from elastic_pytorch_operator.model.round import Round
from elastic_pytorch_operator.planning.failed_writes import name_some
from elastic_pytorch_operator.planning.nodes.objections import ENDS, Objections, nodes_of
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.reporting.failing_saves import explain_slow_saves
from elastic_pytorch_operator.planning.reporting.interruption import (
    Interruption,
    set_up_seconds,
)
from elastic_pytorch_operator.planning.reporting.quota_conditions import (
    WITHOUT_QUOTA,
    explain_lack,
    reason_of,
)
from elastic_pytorch_operator.planning.workers.schedule_timeout import ScheduleWait
from elastic_pytorch_operator.spec.failure_rules import FailureAction
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.sizes import largest_allowed

MAX_CAUSE_CHARACTERS = 1024
BAD_NEWS = (
    names.WORKER_LOST,
    names.WORKER_FAILED,
    names.BELOW_MINIMUM,
    names.PROGRESS_STALLED,
    names.PROCESSES_DIFFER,
    names.GROUP_RESTARTED,
)


@dataclass(frozen=True, slots=True)
class News:
    declared: Round | None = None
    resumed: Interruption | None = None
    ending: Ending | None = None
    refusals: Sequence[str] = ()  # new ones
    waited: str = ""  # how a wait for a checkpoint has ended
    failed: FailureRecord | None = None


def record_events(job: Job, target: Target, observed: Observed, news: News) -> list[RecordEvent]:
    declared, resumed, failed = news.declared, news.resumed, news.failed
    events = []
    known = find_condition(job.status, names.SUSPENDED)
    suspended = known.get("status") == "True" or known.get("reason") == names.SUSPENDING
    if job.suspend and not suspended:
        slow = explain_slow_saves(job, observed.agents.values())
        note = "The workers save and stop; spec.suspend: false resumes the job"
        note = f"{note}. But {slow}" if slow else note
        events.append(_with_status(names.JOB_SUSPENDED, note, warning=bool(slow)))
    elif suspended and not job.suspend:
        events.append(_with_status(names.JOB_RESUMED, f"{target.wanted} workers are started again"))
    events += _events_of_quota(job, target)
    new_spec = job.generation != job.status.get("observedGeneration")
    allowed = largest_allowed(job.requested, job.allowed)
    if new_spec and not job.suspend and job.requested != allowed:
        note = f"{job.requested} workers are not {_allowed(job)}: {allowed} are wanted"
        events.append(_with_status(names.SCALE_REFUSED, note))
    events += record_refusals(news.refusals)
    if news.waited:
        events.append(RecordEvent(names.CHECKPOINT_WAIT_ENDED, news.waited))
    rule = failed.rule if failed is not None else None
    if rule is not None and rule.action is FailureAction.IGNORE:
        events.append(RecordEvent(names.FAILURE_IGNORED, f"{rule} ignores a failure: {failed}"))
    if declared is not None and declared.reason != names.JOB_SUSPENDED:
        before = observed.group_size
        change = f"{before} -> " if before != declared.size else ""
        note = f"Round {declared.number}, {change}{declared.size} workers: {declared.cause}"
        if (set_up := set_up_seconds(declared, observed)) is not None:
            note += f"; the last set-up (spec.prepare) took {set_up:.1f} s"
        facts = {
            names.ANNOTATION_ROUND: str(declared.number),
            names.ANNOTATION_WORKERS: str(declared.size),
            names.ANNOTATION_CAUSE: declared.cause[:MAX_CAUSE_CHARACTERS],
        }
        bad = declared.reason in BAD_NEWS
        events.append(RecordEvent(declared.reason, note, bad, annotations=facts))
    if resumed is not None:
        note = f"Training resumed with {resumed.size} workers {resumed.seconds:.1f} s after "
        note += resumed.reason
        if steps := resumed.steps_lost:
            note += f"; {steps} {'step' if steps == 1 else 'steps'} repeated"
        if phases := resumed.phases:
            slowest = max(phases, key=lambda phase: phases[phase])
            note += f"; the slowest phase was {slowest} ({phases[slowest]:.1f} s)"
        facts = {
            names.ANNOTATION_WORKERS: str(resumed.size),
            names.ANNOTATION_CAUSE: resumed.reason,
            names.ANNOTATION_SECONDS: f"{resumed.seconds:.3f}",
            names.ANNOTATION_STEPS_LOST: str(resumed.steps_lost or 0),
        }
        events.append(RecordEvent(names.TRAINING_RESUMED, note, annotations=facts))
    if (ending := news.ending) is not None:
        reason = names.JOB_COMPLETED if ending.complete else names.JOB_FAILED
        events.append(_with_status(reason, ending.message, warning=not ending.complete))
    return events


def record_announcements(
    observed: Observed, before: Objections, after: Objections
) -> list[RecordEvent]:
    found = nodes_of(after, ENDS).keys() - nodes_of(before, ENDS).keys()
    workers: defaultdict[str, list[str]] = defaultdict(list)
    for pod in observed.pods:
        if pod.node in found and not pod.ended:
            workers[pod.node].append(pod.name)
    return [
        RecordEvent(
            names.NODE_ENDING,
            f"Node {name} {observed.nodes[name].end}. On it: {', '.join(workers[name])}",
        )
        for name in sorted(found)
    ]


def record_timeout(job: Job, wait: ScheduleWait) -> list[RecordEvent]:
    if wait.timeouts <= read_operator_state(job.status).schedule_timeouts:
        return []
    note = _sentence(wait.explain(job))
    return [_with_status(names.SCHEDULE_TIMEOUT, note, warning=True)]


def _allowed(job: Job) -> str:
    if job.rounded_by == "unitReplicas":
        return f"a multiple of {job.rounded_by} ({job.unit_replicas})"
    return f"one of {job.rounded_by} ({', '.join(str(size) for size in job.allowed)})"


def _events_of_quota(job: Job, target: Target) -> list[RecordEvent]:
    known = find_condition(job.status, names.RESIZING).get("reason")
    quota = target.quota
    if target.held:
        reason = reason_of(quota)
        reported = (names.WAITING_FOR_QUOTA, names.KUEUE_DISABLED, names.LEAVING_QUEUE)
        if reason == known or reason not in reported:
            return []
        disabled = reason == names.KUEUE_DISABLED
        return [_with_status(reason, f"The job {explain_lack(quota)}", warning=disabled)]
    if known in WITHOUT_QUOTA and quota.limited and quota.size:
        where = f" in queue {job.queue.name}" if job.queue else ""
        note = f"The job has quota for {quota.size} of {target.wanted} workers{where}"
        return [_with_status(names.QUOTA_GRANTED, note)]
    return []


def record_refusals(refusals: Sequence[str]) -> list[RecordEvent]:
    return [RecordEvent(names.REFUSED, _sentence(words), warning=True) for words in refusals]


def record_unreadable(
    now: Sequence[UnreadableObject], before: Collection[UnreadableObject]
) -> list[RecordEvent]:
    known = frozenset(before)
    named = [f"{each.kind} {each.name} ({each.fault})" for each in now if each not in known]
    if not named:
        return []
    note = "The operator cannot read these objects, and uses their last readable versions: "
    return [RecordEvent(names.UNREADABLE, note + name_some(named), warning=True)]


def _sentence(clause: str) -> str:
    return clause[:1].upper() + clause[1:]


def _with_status(reason: str, note: str, *, warning: bool = False) -> RecordEvent:
    return RecordEvent(reason, note, warning, with_status=True)
