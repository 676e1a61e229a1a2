"""Why a job does not run at the wanted size, and what to do about it. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.advice import OF_A_WAIT, advise_on_failure
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.reading.nodes import NodeView, shortage_of_room
from elastic_pytorch_client.reading.pods.troubles import PodTrouble, pod_troubles, silent_pods
from elastic_pytorch_client.reading.stragglers import slowest_by_worker
from elastic_pytorch_client.reading.text import first_line, seconds_since, spell
from elastic_pytorch_client.reading.timeline import JobEvent

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
UNSEEN_SECONDS = 10.0
MAX_NAMED = 3
# The states of workers whose agents have contacted the operator.
REPORTING = ("Ready", "Spare", "Running", "Saving", "Succeeded", "Leaving", "Lost")


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    do: str = ""  # with commands on lines of their own; empty: it passes


@dataclass(frozen=True, slots=True)
class Diagnosis:
    headline: str
    well: bool  # all is as wanted
    findings: tuple[Finding, ...] = ()
    good: bool = False  # the headline is good news, whatever the findings


@dataclass(frozen=True, slots=True)
class Evidence:
    pods: Sequence[Mapping[str, Any]]  # of the API
    nodes: Sequence[NodeView] | None  # None: the user may not read nodes
    events: Sequence[JobEvent]  # oldest first
    pod_warnings: Mapping[str, str]  # the newest, by the name of the pod
    now: datetime


def diagnose(job: JobView, evidence: Evidence) -> Diagnosis:
    name = job.name
    if job.ended:
        return _ended(job)
    if job.managed_by and job.managed_by != names.MANAGER:
        what = (
            f"spec.managedBy is {job.managed_by}: the operator does not reconcile the job, and "
            "that controller decides when it runs."
        )
        do = ""
        if job.managed_by == MULTIKUEUE:
            do = (
                "MultiKueue does not support this kind of job. Delete it, and create it again "
                "without spec.managedBy."
            )
        return Diagnosis(f"{name} is managed by {job.managed_by}.", False, (Finding(what, do),))
    if not job.seen and seconds_since(job.created, evidence.now) >= UNSEEN_SECONDS:
        headline = f"The operator has not seen the newest spec of {name}."
        return Diagnosis(headline, False, (_operator_away(),))
    if job.suspended:
        do = f"To continue from its checkpoint:\n  kubectl epj resume {name}"
        suspended = job.condition("Suspended")
        refused = tuple(_refused(job))
        said = "spec.suspend is true"
        if suspended and suspended.message and not refused:
            said = suspended.message
        headline = f"{name} is suspended."
        if job.stopping:
            headline = f"{name} is being suspended: its workers save and stop."
        return Diagnosis(headline, not refused, (*refused, Finding(f"{said}.", do)))
    trains = job.size if job.world else 0
    if job.at_wanted_size:
        notes = (
            *_waits(job),
            *_refused(job),
            *_missing_spares(job, evidence),
            *_notes(job, evidence),
        )
        spares = f", and {job.described_spares}" if job.spares else ""
        headline = f"{name} runs at the wanted size: all {trains} workers train{spares}."
        return Diagnosis(headline, not notes, notes, good=True)
    findings = [
        *_backing_off(job),
        *_waits(job),
        *_from_pods(job, evidence),
        *_silent(job, evidence),
        *_preparing(job, evidence.now),
        *_refused(job),
        *_unlike(job),
        *_node_ending(job),
        *_notes(job, evidence),
    ]
    if not findings:
        findings = _passing(job, evidence.now)
    if job.world:
        headline = f"{name} trains with {trains} of {job.wanted} workers."
        return Diagnosis(headline, False, tuple(findings))
    start = "its size is fixed, so training starts when all are ready"
    if job.elastic:
        start = f"training starts with {job.minimum}"
    headline = f"{name} does not train: {job.ready} of {job.wanted} workers are ready, and {start}."
    return Diagnosis(headline, False, tuple(findings))


def _ended(job: JobView) -> Diagnosis:
    if job.complete:
        return Diagnosis(f"{job.name} is complete: all its workers have succeeded.", True)
    failed = job.condition("Failed")
    reason, message = (failed.reason, failed.message) if failed else ("", "")
    said = first_line(message).rstrip(".") + "."
    finding = Finding(said, advise_on_failure(job, reason))
    return Diagnosis(f"{job.name} has failed: {reason}.", False, (finding,))


def _operator_away() -> Finding:
    return Finding(
        "Its status is older than its spec. The operator is not running, or cannot reach the API "
        "server. A group that trains continues.",
        "Check whether the operator runs:\n"
        "  kubectl get deployments -A -l app.kubernetes.io/name=elastic-pytorch-operator",
    )


def _backing_off(job: JobView) -> Iterable[Finding]:
    running = job.condition("Running")
    if running is None or running.reason != names.BACKING_OFF:
        return
    why = first_line(running.message)
    yield Finding(
        f"Its script fails soon after each start: {why}. The operator waits longer before each "
        "restart.",
        f"Read the end of the log:\n  kubectl epj logs {job.name} --tail 50",
    )


def _waits(job: JobView) -> Iterable[Finding]:
    said = ""
    for type_ in ("Running", "Degraded"):
        condition = job.condition(type_)
        if condition is not None and condition.reason in OF_A_WAIT and condition.reason != said:
            said = condition.reason
            do = OF_A_WAIT[said].format(namespace=job.namespace)
            yield Finding(_sentence(condition.message), do)


def _from_pods(job: JobView, evidence: Evidence) -> Iterable[Finding]:
    groups: dict[tuple[str, str], list[PodTrouble]] = defaultdict(list)
    for trouble in pod_troubles(evidence.pods, evidence.pod_warnings, evidence.now):
        groups[trouble.kind, trouble.said].append(trouble)
    for (kind, said), troubles in sorted(groups.items(), key=lambda group: -len(group[1])):
        first, one = troubles[0], len(troubles) == 1
        who = first.pod if one else f"{len(troubles)} pods ({first.pod} is one)"
        if kind == "unscheduled":
            room = shortage_of_room(first.requests, evidence.nodes or ())
            what = f"{who} {'has' if one else 'have'} no node: {said.rstrip('.')}."
            if room:
                yield Finding(f"{what} {room.what}", _make_room(job, room.do))
            else:
                yield Finding(what, _make_room(job, ""))
        else:
            joint = " " if said.startswith("does") else ": "
            yield Finding(f"{who}{joint}{said.rstrip('.')}.", first.do)


def _missing_spares(job: JobView, evidence: Evidence) -> Iterable[Finding]:
    if job.ready_spares < job.spares:
        yield from _from_pods(job, evidence)
        yield from _silent(job, evidence)


def _silent(job: JobView, evidence: Evidence) -> Iterable[Finding]:
    if job.backend != names.BACKEND_OPERATOR:
        return
    spoken = [worker.name for worker in job.workers if worker.state in REPORTING]
    silent = silent_pods(evidence.pods, spoken, evidence.now)
    if silent:
        who = silent[0] if len(silent) == 1 else f"{len(silent)} pods ({silent[0]} is one)"
        yield Finding(
            f"{who} has run for more than a minute, and its agent has not contacted the operator.",
            "Check that the command starts the agent or torchrun, and that no NetworkPolicy keeps "
            "the pod from the operator's Service. Its log:\n"
            f"  kubectl logs -n {job.namespace} {silent[0]} --tail=30",
        )


def _preparing(job: JobView, now: datetime) -> Iterable[Finding]:
    """The longest set-up of a script, as each may take its time."""
    preparing = (worker for worker in job.workers if worker.state == "Preparing")
    waits = sorted(
        (since, worker.name, worker.describe_state(now))
        for worker in preparing
        if (since := worker.state_since)
    )
    if waits:
        _, worker, state = waits[0]
        more = f", and {len(waits) - 1} more" if len(waits) > 1 else ""
        do = "It joins when its script has set itself up (spec.prepare). What it writes meanwhile:"
        logs = f"kubectl logs -n {job.namespace} {worker} --tail=30"
        yield Finding(f"{worker}: {state}{more}.", f"{do}\n  {logs}")


def _make_room(job: JobView, do: str) -> str:
    then = "has its spares" if job.at_wanted_size else "grows" if job.world else "starts"
    do = do or f"Free resources, or add a node: the job then {then} without further action."
    if job.elastic and job.world and not job.at_wanted_size and job.size >= job.minimum:
        do += f"\nOr keep the size that trains now:\n  kubectl epj resize {job.name} {job.size}"
    return do


def _refused(job: JobView) -> Iterable[Finding]:
    for said in job.refusals:
        do = (
            "A policy, a quota or a webhook of the cluster refuses it, as the message says. Change "
            "spec.template, or ask for a change of the policy. The operator retries."
        )
        if "spec.scheduling.gangScheduler" in said:
            do = "Do what the message says. The operator retries."
        elif "exceeded quota" in said:
            do = (
                "Free some of the quota, or ask for a larger one. The operator retries:\n"
                f"  kubectl describe quota -n {job.namespace}"
            )
        yield Finding(f"{said[:1].upper()}{said[1:].rstrip('.')}.", do)


def _unlike(job: JobView) -> Iterable[Finding]:
    """Workers that may be in no group, as their processes differ from spec.nprocPerNode."""
    apart = [worker for worker in job.workers if worker.processes is not None]
    if apart:
        named = ", ".join(
            f"{w.name} on node {w.node} runs {w.processes}" for w in apart[:MAX_NAMED]
        )
        more = f", and {len(apart) - MAX_NAMED} more" if len(apart) > MAX_NAMED else ""
        yield Finding(
            "Workers are left out because the others run another number of processes: "
            f"{named}{more}.",
            "All workers of a group run the same number of processes. Suspend the job, then set "
            "spec.nprocPerNode to a number, or add a nodeSelector for nodes of one type:\n"
            "  kubectl get nodes -L node.kubernetes.io/instance-type",
        )


def _node_ending(job: JobView) -> Iterable[Finding]:
    resizing = job.condition("Resizing")
    if resizing is not None and resizing.true and resizing.reason == names.NODE_ENDING:
        do = (
            "The group loses nothing if a node has room for the replacement. "
            "Without one, the worker leaves just before the node ends."
        )
        yield Finding(_sentence(resizing.message), do)


def _notes(job: JobView, evidence: Evidence) -> Iterable[Finding]:
    if job.wanted not in job.sizes:
        smaller = max((size for size in job.sizes if size < job.wanted), default=job.sizes[0])
        among = f"among resizePolicy.allowedReplicas ({', '.join(map(str, job.allowed))})"
        allowed = f"a multiple of unitReplicas ({job.unit})" if job.wanted % job.unit else among
        yield Finding(
            f"replicas is {job.wanted}, which is not {allowed}: the next smaller size is used.",
            f"Set one of them:\n  kubectl epj resize {job.name} {smaller}",
        )
    unready = {node.name for node in evidence.nodes or () if not node.ready}
    hit = sorted({worker.node for worker in job.workers} & unready)
    if hit and not job.at_wanted_size:
        are = "is" if len(hit) == 1 else "are"
        yield Finding(
            f"{' and '.join(hit)} {are} not ready: workers there are replaced on other nodes with "
            "room.",
            f"See why:\n  kubectl describe node {hit[0]}",
        )
    if job.failures and not job.ended:
        cause, do = job.root_cause, f"Read what happened:\n  kubectl epj status {job.name}"
        if cause is not None and cause.hang and cause.node:
            do += f"\n{_move(job, cause.worker, cause.node)}"
        allowed = "" if job.max_failures is None else f" of {job.max_failures} allowed"
        last = f", the last in {cause.where}: {_last_line(cause.message)}" if cause else ""
        yield Finding(f"{job.failures}{allowed} failures since the last progress{last}.", do)
    if job.backoff_limit is not None and job.total_failures and not job.ended:
        yield Finding(
            f"{job.total_failures} of {job.backoff_limit} failures that failurePolicy.backoffLimit "
            "allows in the job's life have occurred. Progress does not reset this count."
        )
    yield from _failing_saves(job)
    yield from _slow(job)


def _failing_saves(job: JobView) -> Iterable[Finding]:
    degraded = job.condition("Degraded")
    if degraded is None:
        return
    message = _sentence(degraded.message)
    if degraded.reason == names.CHECKPOINTS_SLOW:
        do = "Raise terminationGracePeriodSeconds in spec.template, or write to a faster volume."
        yield Finding(message, do)
    if degraded.reason != names.CHECKPOINTS_FAILING:
        return
    yield Finding(
        f"{message} Training goes on, and would lose the steps since the last checkpoint with its "
        "pods.",
        "Free or repair the volume of the checkpoints; the next save that succeeds ends this. Read "
        f"the log:\n  kubectl epj logs {job.name} --tail 50",
    )


def _slow(job: JobView) -> Iterable[Finding]:
    if not job.stragglers or not job.world:
        return
    worst, by_worker = job.stragglers[0], slowest_by_worker(job.stragglers)
    others = [worker for worker in by_worker if worker != worst.worker]
    what = f"The group waits for slow ranks in each step: {worst}."
    if others:
        are = "worker is" if len(others) == 1 else "workers are"
        what += f" {len(others)} other {are} slow, too: {', '.join(others)}."
    do = "Look for what else runs there, for a hot or throttled device, and for a slow disk"
    if not worst.node:
        yield Finding(what, f"{do}.")
        return
    do += f":\n  kubectl describe node {worst.node}\n{_move(job, worst.worker, worst.node)}"
    yield Finding(what, do)


def _move(job: JobView, worker: str, node: str) -> str:
    return (
        "If the node is at fault, keep pods away and move the worker:\n"
        f"  kubectl cordon {node}\n  kubectl delete pod -n {job.namespace} {worker}"
    )


def _passing(job: JobView, now: datetime) -> list[Finding]:
    """Without trouble of a pod, the operator's own words are the best."""
    resizing = job.condition("Resizing")
    cooling = resizing is not None and resizing.reason == names.COOLING_DOWN
    for type_ in ("Resizing",) if cooling else ("Degraded", "Resizing", "Running"):
        condition = job.condition(type_)
        if condition is not None and (condition.true or type_ == "Running") and condition.message:
            since = ""
            if condition.since:
                since = f", for {spell(seconds_since(condition.since, now))} now"
            message = first_line(condition.message)
            what = f"{message[:1].upper()}{message[1:]}{since}."
            do = "This should pass within seconds. Watch it:\n"
            do += f"  kubectl epj status {job.name} --watch"
            if cooling:
                do = (
                    "resizePolicy.minSecondsBetweenGrowths delays growth, and only growth. The "
                    "workers join then."
                )
            return [Finding(what, do)]
    do = f"Ask again in a few seconds:\n  kubectl epj why {job.name}"
    return [Finding("The job is new to the operator.", do)]


def _sentence(message: str) -> str:
    said = first_line(message).rstrip(".")
    return f"{said[:1].upper()}{said[1:]}."


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1].rstrip(".")
