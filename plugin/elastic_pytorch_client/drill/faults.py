"""Which faults a job can be put to, what each does, and what it may cost. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from elastic_pytorch_client import names
from elastic_pytorch_client.cluster import training_container
from elastic_pytorch_client.reading.job_view import JobView, view_job

KILLED = 137  # the exit code of a process that SIGKILL has ended, as rules have it
FIXED_SIZE = "the job has a fixed size (no minReplicas): without a worker it stops and waits for the replacement"


class Fault(StrEnum):
    """What is done to the job."""

    PROCESS = "process"  # a training process is killed
    POD = "pod"  # a worker's pod is deleted
    NODE = "node"  # a worker's node is drained
    SCALE = "scale"  # the job is scaled by one and back


@dataclass(frozen=True, slots=True)
class Target:
    """A worker's pod."""

    pod: str
    uid: str
    container: str


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault, and what it is done to.

    Attributes:
        does: what is done, for people.
        cost: what it may cost, for people.
        skipped: why it is not done; empty: it is.
        targets: the pods that it affects.
        node: that it drains.
        replicas: the size that it scales to.
    """

    fault: Fault
    does: str
    cost: str = ""
    skipped: str = ""
    targets: tuple[Target, ...] = ()
    node: str = ""
    replicas: int = 0

    def skip(self, reason: str) -> "PlannedFault":
        """The fault, left out for a reason."""
        return replace(self, skipped=reason)


def refusal(job: JobView) -> str:
    """Why no drill may begin; empty: it may."""
    if job.ended:
        return f"{job.name} has ended ({job.state})"
    if job.suspended:
        return f"{job.name} is suspended: resume it first"
    if job.managed_by not in ("", names.MANAGER):
        return f"{job.name} is managed by {job.managed_by}"
    if job.backend != names.BACKEND_OPERATOR:
        return f"stock torchrun forms the groups of {job.name} (rendezvous.backend: {job.backend}), and their interruptions are not known"
    if not (job.seen and job.at_wanted_size and job.members):
        return f"not all {job.wanted} workers of {job.name} train: `kubectl epj why {job.name}` says why. Begin once they do"
    return ""


def plan_faults(
    manifest: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], chosen: Collection[Fault]
) -> list[PlannedFault]:
    """The chosen faults in the order in which they are done, each with its target, or with the reason why it is left out.

    Args:
        manifest: the job.
        pods: with its label; those that are not its own are never touched.
        chosen: of the faults.
    """
    job, spec = view_job(manifest), manifest["spec"]
    targets = _targets(job, pods)
    plans = {
        Fault.PROCESS: lambda: _plan_process(job, spec, targets),
        Fault.POD: lambda: _plan_pod(job, targets),
        Fault.NODE: lambda: _plan_node(job, spec, targets, pods),
        Fault.SCALE: lambda: _plan_scale(job),
    }
    found = [plans[fault]() for fault in Fault if fault in chosen]
    policy = spec.get("failurePolicy") or {}
    if not spec.get("templateRef") or {"rules", "maxFailures"} <= policy.keys():
        return found
    why = "its template may say what a failure does to it: set failurePolicy.rules and maxFailures in the job itself"
    return [plan if plan.fault is Fault.SCALE else plan.skip(why) for plan in found]


def _targets(job: JobView, pods: Sequence[Mapping[str, Any]]) -> list[Target]:
    """The pods of the group's members, by rank."""
    own = {str(pod["metadata"]["name"]): pod for pod in pods if _is_own(pod, job)}
    return [
        Target(worker.name, str(own[worker.name]["metadata"]["uid"]), training_container(own[worker.name]))
        for worker in job.members
        if worker.name in own
    ]


def _is_own(pod: Mapping[str, Any], job: JobView) -> bool:
    metadata = pod["metadata"]
    owners = [owner.get("uid") for owner in metadata.get("ownerReferences") or ()]
    is_worker = (metadata.get("labels") or {}).get(names.LABEL_ROLE, names.ROLE_WORKER) == names.ROLE_WORKER
    return bool(job.uid) and job.uid in owners and is_worker and not metadata.get("deletionTimestamp")


def _plan_process(job: JobView, spec: Mapping[str, Any], targets: Sequence[Target]) -> PlannedFault:
    if not targets:
        return PlannedFault(Fault.PROCESS, "kill a training process").skip("no pod of the group was found")
    target = targets[-1]
    planned = PlannedFault(
        Fault.PROCESS,
        f"kill -9 a training process in pod {target.pod}",
        f"all workers form their group again; {_steps_again(job)}",
        targets=(target,),
    )
    index, action = _action_on_kill(spec)
    if action == "FailJob":
        return planned.skip(f"failurePolicy.rules[{index}] fails the job at exit code {KILLED}")
    if action == "RestartGroup":
        return replace(
            planned, cost=f"failurePolicy.rules[{index}] replaces all pods at exit code {KILLED}; {_steps_again(job)}"
        )
    if action == "Count":
        left = (job.max_failures or 0) - job.failures
        if job.backoff_limit is not None:
            left = min(left, job.backoff_limit - job.total_failures)
        if left < 1:
            return planned.skip(
                f"failurePolicy.rules[{index}] counts it, and no failure is left of those that the job may have"
            )
    return planned


def _plan_pod(job: JobView, targets: Sequence[Target]) -> PlannedFault:
    planned = PlannedFault(Fault.POD, "delete a worker's pod")
    if reason := _no_room(job, 1):
        return planned.skip(reason)
    if not targets:
        return planned.skip("no pod of the group was found")
    target = targets[-1]
    return replace(
        planned,
        does=f"delete pod {target.pod}",
        cost=f"{job.size - 1} workers train until its replacement is ready; {_steps_again(job, orderly=True)}",
        targets=(target,),
    )


def _plan_node(
    job: JobView, spec: Mapping[str, Any], targets: Sequence[Target], pods: Sequence[Mapping[str, Any]]
) -> PlannedFault:
    planned = PlannedFault(Fault.NODE, "drain a worker's node")
    if reason := _no_room(job, 1):
        return planned.skip(reason)
    nodes = {str(pod["metadata"]["name"]): str(pod["spec"].get("nodeName") or "") for pod in pods}
    by_node: dict[str, list[Target]] = {}
    for target in targets:
        by_node.setdefault(nodes.get(target.pod, ""), []).append(target)
    by_node.pop("", None)
    if not by_node:
        return planned.skip("no worker's node is known")
    # Of the nodes with the fewest workers, one without rank 0.
    node = min(by_node, key=lambda name: (len(by_node[name]), targets[0] in by_node[name], name))
    there = by_node[node]
    planned = replace(planned, does=f"cordon node {node}, evict {', '.join(target.pod for target in there)}, uncordon it")
    if reason := _no_room(job, len(there)):
        return planned.skip(f"{len(there)} workers run on {node}, the node with the fewest: {reason}")
    for number, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or ()):
        if rule.get("action") == "FailJob" and rule.get("onPodConditions"):
            return planned.skip(f"failurePolicy.rules[{number}] may fail the job when a pod is evicted")
    cost = f"no pod of any job can start on {node} meanwhile; {_steps_again(job, orderly=True)}"
    return replace(planned, cost=cost, targets=tuple(there), node=node)


def _plan_scale(job: JobView) -> PlannedFault:
    planned = PlannedFault(Fault.SCALE, "scale by one worker and back")
    if not job.elastic:
        return planned.skip("the job has a fixed size (no minReplicas)")
    more = next((size for size in job.sizes if size > job.wanted), None)
    fewer = next((size for size in reversed(job.sizes) if size < job.wanted), None)
    replicas = more if more is not None else fewer
    if replicas is None:
        return planned.skip("minReplicas, maxReplicas and allowedReplicas allow no other size")
    needs = "needs room for one more worker; " if replicas > job.wanted else ""
    return replace(
        planned,
        does=f"scale from {job.wanted} to {replicas} workers, and back",
        cost=f"{needs}two changes of the group; {_steps_again(job, orderly=True)}",
        replicas=replicas,
    )


def _no_room(job: JobView, lost: int) -> str:
    """Why the job cannot train without some of its workers; empty: it can."""
    if not job.elastic:
        return FIXED_SIZE
    if any(job.minimum <= size <= job.size - lost for size in job.sizes):
        return ""
    smallest = min((size for size in job.sizes if size >= job.minimum), default=job.minimum)
    left = job.size - lost
    return f"the job trains with {smallest} workers at least, and {left} would be left"


def _steps_again(job: JobView, *, orderly: bool = False) -> str:
    """How many steps may have to be done again."""
    progress = job.progress
    if progress.commit_every_steps is not None:
        return "no step is repeated" if orderly else f"at most {progress.commit_every_steps} steps are repeated"
    if progress.step is None:
        return "the script reports no steps, so the number of repeated steps is unknown"
    if progress.checkpoint_step is None:
        return "the steps since its last checkpoint are repeated; the script does not report its checkpoints"
    since = max(0, progress.step - progress.checkpoint_step)
    return f"the steps since its last checkpoint are repeated ({since} now)"


def _action_on_kill(spec: Mapping[str, Any]) -> tuple[int, str]:
    """The first rule of failurePolicy that matches a killed process, and its action; empty: none does."""
    for number, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or ()):
        codes = rule.get("onExitCodes")
        if codes and (KILLED in codes.get("values", ())) is (codes.get("operator", "In") == "In"):
            return number, str(rule.get("action", ""))
    return -1, ""
