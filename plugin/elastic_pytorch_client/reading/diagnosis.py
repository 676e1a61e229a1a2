"""Why a job does not run at the wanted size, and what to do about it.

Pure: judges what was read.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.reading.nodes import NodeView, shortage_of_room
from elastic_pytorch_client.reading.pods.troubles import PodTrouble, pod_troubles, silent_pods
from elastic_pytorch_client.reading.stragglers import slowest_by_worker
from elastic_pytorch_client.reading.text import first_line, seconds_since, spell
from elastic_pytorch_client.reading.timeline import JobEvent

MULTIKUEUE = "kueue.x-k8s.io/multikueue"
UNSEEN_SECONDS = 10.0
MAX_NAMED = 3

_AGAIN = "then delete the job and create it again: it continues from its checkpoint if the script loads one"

_CORRECT = "Correct the script"
# What to do in its place, by the words of the root cause: torch reports a device's memory, the
# kernel or Python that of the container.
_CORRECT_MEMORY = {
    re.compile(
        r"(CUDA|HIP|XPU|NPU|MPS) .{0,40}out of memory|torch\S*\.OutOfMemoryError", re.IGNORECASE
    ): (
        "Have the script use less of the device's memory, with a smaller micro-batch or a sharded model"
    ),
    re.compile(
        r"OOMKilled|container is out of memory|^MemoryError\b|DefaultCPUAllocator: .*allocate memory",
        re.MULTILINE,
    ): ("Raise the container's memory limit in spec.template, or have the script use less"),
}

_ADVICE = {  # by the reason of the condition Failed
    "TooManyFailures": f"{_CORRECT}, {_AGAIN}.",
    "BackoffLimitExceeded": f"{_CORRECT}, or raise failurePolicy.backoffLimit, {_AGAIN}.",
    "FailurePolicyRule": f"A rule of failurePolicy.rules fails the job after such a failure. Correct the cause or the rule, {_AGAIN}.",
    "InvalidTemplate": "Correct the template as the message says, then delete the job and create it again.",
    "NeverJoined": "Write the script into args and remove the command, or start it with torchrun. Then create the job again.",
    "CannotStart": "Correct the image, the command or what the container refers to in spec.template. Then create the job again.",
    "PodLost": "failurePolicy.onPodLoss is FailJob, so the loss of a worker fails the job. With Replace, the group continues without it.",
    "DeadlineExceeded": f"Raise activeDeadlineSeconds, {_AGAIN}.",
    "LastCheckpointNotWritten": f"Free or repair the volume or bucket of the checkpoints, or raise saveDeadlineSeconds, {_AGAIN}.",
}


WAIT_ADVICE = {  # by the reason of the condition Running or Degraded
    "QuotaRequested": "Check that Kueue runs:\n  kubectl get deployments -n kueue-system",
    "WaitingForQuota": "It passes when the queue has quota. What it is used for:\n  kubectl get workloads.kueue.x-k8s.io -n {namespace}",
    "Evicted": "The workers save and stop, and the job waits in its queue.",
    "LeavingQueue": "It passes when the pods are gone: the job then waits in the queue of its label, or starts without a queue.",
    "TemplateMissing": "The operator looks for it every 30 s. Who may read templates finds their names by:\n  kubectl get cepjt",
    "InvalidSpec": "Correct the field of spec that the message names. A job that runs goes on by its last valid spec until then.",
    "FieldsIgnored": "Remove them the next time that the job is suspended or created: until then they change nothing.",
    "KueueDisabled": "Set kueue.enabled in the operator's chart, or remove the label kueue.x-k8s.io/queue-name from the job.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    # What to do about it, commands among it on lines of their own; empty: nothing, it passes.
    do: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    headline: str
    well: bool  # whether it stands as wanted
    findings: tuple[Finding, ...] = ()
    good: bool = False  # whether the headline is good news, whatever the findings say


@dataclass(frozen=True, slots=True)
class Evidence:
    pods: Sequence[Mapping[str, Any]]  # as the API has them
    nodes: Sequence[NodeView] | None  # all; None: the user may not look at nodes
    events: Sequence[JobEvent]  # oldest first
    pod_warnings: Mapping[str, str]  # the newest of each pod, by its name
    now: datetime


def diagnose(job: JobView, evidence: Evidence) -> Diagnosis:
    name = job.name
    if job.ended:
        return _ended(job)
    if job.managed_by and job.managed_by != names.MANAGER:
        what = f"spec.managedBy is {job.managed_by}: the operator does not reconcile the job, and that controller decides when it runs."
        do = ""
        if job.managed_by == MULTIKUEUE:
            do = "MultiKueue does not support this kind of job. Delete it, and create it again without spec.managedBy."
        return Diagnosis(f"{name} is managed by {job.managed_by}.", False, (Finding(what, do),))
    if not job.seen and seconds_since(job.created, evidence.now) >= UNSEEN_SECONDS:
        return Diagnosis(
            f"The operator has not seen the newest spec of {name}.", False, (_operator_away(),)
        )
    if job.suspended:
        do = f"To continue from its checkpoint:\n  kubectl epj resume {name}"
        suspended = job.condition("Suspended")
        refused = tuple(_refused(job))
        said = (
            suspended.message
            if suspended and suspended.message and not refused
            else "spec.suspend is true"
        )
        headline = (
            f"{name} is being suspended: its workers save and stop."
            if job.stopping
            else f"{name} is suspended."
        )
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
        *_gave_places_back(job),
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
        return Diagnosis(
            f"{name} trains with {trains} of {job.wanted} workers.", False, tuple(findings)
        )
    start = (
        f"training starts with {job.minimum}"
        if job.elastic
        else "its size is fixed, so training starts when all are ready"
    )
    headline = f"{name} does not train: {job.ready} of {job.wanted} workers are ready, and {start}."
    return Diagnosis(headline, False, tuple(findings))


def _ended(job: JobView) -> Diagnosis:
    if job.complete:
        return Diagnosis(f"{job.name} is complete: all its workers have succeeded.", True)
    failed = job.condition("Failed")
    reason, message = (failed.reason, failed.message) if failed else ("", "")
    said = first_line(message).rstrip(".") + "."
    return Diagnosis(
        f"{job.name} has failed: {reason}.", False, (Finding(said, _advise_on_end(job, reason)),)
    )


def _advise_on_end(job: JobView, reason: str) -> str:
    advice = _ADVICE.get(reason, f"Read the message, {_AGAIN}.")
    if (cause := job.root_cause) is not None:
        instead = next(
            (do for words, do in _CORRECT_MEMORY.items() if words.search(cause.message)), _CORRECT
        )
        advice = advice.replace(_CORRECT, instead)
        where = f"It failed in {cause.where}. The end of that worker's log:"
        return f"{advice} {where}\n  kubectl logs -n {job.namespace} {cause.worker} --tail=50"
    return advice


def _operator_away() -> Finding:
    return Finding(
        "Its status is older than its spec. The operator is not running, or cannot reach the API server. A group that trains continues.",
        "Check whether the operator runs:\n  kubectl get deployments -A -l app.kubernetes.io/name=elastic-pytorch-operator",
    )


def _backing_off(job: JobView) -> Iterable[Finding]:
    running = job.condition("Running")
    if running is None or running.reason != names.BACKING_OFF:
        return
    yield Finding(
        f"Its script fails soon after each start: {first_line(running.message)}. The operator waits longer before each restart.",
        f"Read the end of the log:\n  kubectl epj logs {job.name} --tail 50",
    )


def _gave_places_back(job: JobView) -> Iterable[Finding]:
    running = job.condition("Running")
    if running is None or running.reason != names.SCHEDULE_TIMEOUT:
        return
    do = "Free resources, or add a node. Other jobs can use these nodes now, and this job retries later."
    yield Finding(_sentence(running.message), do)


def _waits(job: JobView) -> Iterable[Finding]:
    for type_ in ("Running", "Degraded"):
        condition = job.condition(type_)
        if condition is not None and condition.reason in WAIT_ADVICE:
            do = WAIT_ADVICE[condition.reason].format(namespace=job.namespace)
            yield Finding(_sentence(condition.message), do)
            return


def _from_pods(job: JobView, evidence: Evidence) -> Iterable[Finding]:
    groups: dict[tuple[str, str], list[PodTrouble]] = defaultdict(list)
    for trouble in pod_troubles(evidence.pods, evidence.pod_warnings, evidence.now):
        groups[trouble.kind, trouble.said].append(trouble)
    for (kind, said), troubles in sorted(groups.items(), key=lambda group: -len(group[1])):
        who = (
            troubles[0].pod
            if len(troubles) == 1
            else f"{len(troubles)} pods ({troubles[0].pod} is one)"
        )
        if kind == "unscheduled":
            room = (
                shortage_of_room(troubles[0].requests, evidence.nodes)
                if evidence.nodes is not None
                else None
            )
            what = f"{who} {'has' if len(troubles) == 1 else 'have'} no node: {said.rstrip('.')}."
            yield Finding(
                what + (f" {room.what}" if room else ""), _make_room(job, room.do if room else "")
            )
        else:
            joint = " " if said.startswith("does") else ": "
            yield Finding(f"{who}{joint}{said.rstrip('.')}.", troubles[0].do)


def _missing_spares(job: JobView, evidence: Evidence) -> Iterable[Finding]:
    if job.ready_spares < job.spares:
        yield from _from_pods(job, evidence)
        yield from _silent(job, evidence)


def _silent(job: JobView, evidence: Evidence) -> Iterable[Finding]:
    spoken = [
        w.name
        for w in job.workers
        if w.state in ("Ready", "Spare", "Running", "Saving", "Succeeded", "Leaving", "Lost")
    ]
    silent = (
        silent_pods(evidence.pods, spoken, evidence.now)
        if job.backend == names.BACKEND_OPERATOR
        else []
    )
    if silent:
        who = silent[0] if len(silent) == 1 else f"{len(silent)} pods ({silent[0]} is one)"
        yield Finding(
            f"{who} has run for more than a minute, and its agent has not contacted the operator.",
            "Check that the command starts the agent or torchrun, and that no NetworkPolicy keeps the pod from the operator's "
            f"Service. Its log:\n  kubectl logs -n {job.namespace} {silent[0]} --tail=30",
        )


def _preparing(job: JobView, now: datetime) -> Iterable[Finding]:
    """Says how long the set-up of scripts has taken by now: of the worker that has begun first, as each may take its time."""
    if waits := sorted(
        (since, w.name, w.describe_state(now))
        for w in job.workers
        if w.state == "Preparing" and (since := w.state_since)
    ):
        who = f"{waits[0][1]}: {waits[0][2]}" + (
            f", and {len(waits) - 1} more" if len(waits) > 1 else ""
        )
        do = (
            "It joins when its script has set itself up (spec.prepare). What it writes meanwhile:\n"
        )
        yield Finding(f"{who}.", f"{do}  kubectl logs -n {job.namespace} {waits[0][1]} --tail=30")


def _make_room(job: JobView, do: str) -> str:
    then = "has its spares" if job.at_wanted_size else "grows" if job.world else "starts"
    lines = (
        [do]
        if do
        else [f"Free resources, or add a node: the job then {then} without further action."]
    )
    if job.elastic and job.world and not job.at_wanted_size and job.size >= job.minimum:
        lines.append(
            f"Or keep the size that trains now:\n  kubectl epj resize {job.name} {job.size}"
        )
    return "\n".join(lines)


def _refused(job: JobView) -> Iterable[Finding]:
    for said in job.refusals:
        do = (
            "A policy, a quota or a webhook of the cluster refuses it, as the message says. Change spec.template, or ask for a change "
            "of the policy. The operator retries."
        )
        if "spec.scheduling.gangScheduler" in said:
            do = "Do what the message says. The operator retries."
        elif "exceeded quota" in said:
            do = f"Free some of the quota, or ask for a larger one. The operator retries:\n  kubectl describe quota -n {job.namespace}"
        yield Finding(f"{said[:1].upper()}{said[1:].rstrip('.')}.", do)


def _unlike(job: JobView) -> Iterable[Finding]:
    """Workers that may be in no group, as their nodes make another number of processes of spec.nprocPerNode."""
    apart = [worker for worker in job.workers if worker.processes is not None]
    if apart:
        named = ", ".join(
            f"{worker.name} on node {worker.node} runs {worker.processes}"
            for worker in apart[:MAX_NAMED]
        )
        more = f", and {len(apart) - MAX_NAMED} more" if len(apart) > MAX_NAMED else ""
        do = (
            "All workers of a group run the same number of processes. Suspend the job, then set spec.nprocPerNode to a number, or add "
            "a nodeSelector for nodes of one type:\n  kubectl get nodes -L node.kubernetes.io/instance-type"
        )
        yield Finding(
            f"Workers are left out because the others run another number of processes: {named}{more}.",
            do,
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
        yield Finding(
            f"{' and '.join(hit)} {'is' if len(hit) == 1 else 'are'} not ready: workers there are replaced on other nodes with room.",
            f"See why:\n  kubectl describe node {hit[0]}",
        )
    if job.failures and not job.ended:
        cause, do = job.root_cause, f"Read what happened:\n  kubectl epj status {job.name}"
        if cause is not None and cause.hang and cause.node:
            do += f"\n{_move(job, cause.worker, cause.node)}"
        allowed = "" if job.max_failures is None else f" of {job.max_failures} allowed"
        yield Finding(
            f"{job.failures}{allowed} failures since the last progress"
            + (f", the last in {cause.where}: {_last_line(cause.message)}." if cause else "."),
            do,
        )
    if job.backoff_limit is not None and job.total_failures and not job.ended:
        yield Finding(
            f"{job.total_failures} of {job.backoff_limit} failures that failurePolicy.backoffLimit allows in the job's life have "
            "occurred. Progress does not reset this count."
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
        f"{message} Training goes on, and would lose the steps since the last checkpoint with its pods.",
        "Free or repair the volume of the checkpoints; the next save that succeeds ends this. Read the log:\n"
        f"  kubectl epj logs {job.name} --tail 50",
    )


def _slow(job: JobView) -> Iterable[Finding]:
    if not job.stragglers or not job.world:
        return
    worst = job.stragglers[0]
    others = [
        each for each in slowest_by_worker(job.stragglers).values() if each.worker != worst.worker
    ]
    what = f"The group waits for slow ranks in each step: {worst}."
    if others:
        what += (
            f" {len(others)} other {'worker is' if len(others) == 1 else 'workers are'} slow, too: "
        )
        what += f"{', '.join(each.worker for each in others)}."
    do = "Look for what else runs there, for a hot or throttled device, and for a slow disk"
    if not worst.node:
        yield Finding(what, f"{do}.")
        return
    yield Finding(
        what, f"{do}:\n  kubectl describe node {worst.node}\n{_move(job, worst.worker, worst.node)}"
    )


def _move(job: JobView, worker: str, node: str) -> str:
    return (
        "If the node is at fault, keep pods away and move the worker:\n"
        f"  kubectl cordon {node}\n  kubectl delete pod -n {job.namespace} {worker}"
    )


def _passing(job: JobView, now: datetime) -> list[Finding]:
    """Nothing is wrong with any pod: the operator's own words are the best there are."""
    resizing = job.condition("Resizing")
    cooling = resizing is not None and resizing.reason == names.COOLING_DOWN
    for type_ in ("Resizing",) if cooling else ("Degraded", "Resizing", "Running"):
        condition = job.condition(type_)
        if condition is not None and (condition.true or type_ == "Running") and condition.message:
            since = (
                f", for {spell(seconds_since(condition.since, now))} now" if condition.since else ""
            )
            message = first_line(condition.message)
            what = f"{message[:1].upper()}{message[1:]}{since}."
            do = f"This should pass within seconds. Watch it:\n  kubectl epj status {job.name} --watch"
            if cooling:
                do = "resizePolicy.minSecondsBetweenGrowths delays growth, and only growth. The workers join then."
            return [Finding(what, do)]
    return [
        Finding(
            "The job is new to the operator.",
            f"Ask again in a few seconds:\n  kubectl epj why {job.name}",
        )
    ]


def _sentence(message: str) -> str:
    said = first_line(message).rstrip(".")
    return f"{said[:1].upper()}{said[1:]}."


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1].rstrip(".")
