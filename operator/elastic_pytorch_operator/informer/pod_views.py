"""Reduces the API server's objects to the views that decisions read."""

from collections.abc import Iterable
from dataclasses import replace

from elastic_pytorch_operator.api import kueue, names
from elastic_pytorch_operator.api.conditions import find_condition, is_true
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.api.numbers import parse_count
from elastic_pytorch_operator.informer.owned_objects import Owner, owner_of
from elastic_pytorch_operator.model.announced_ends import MARKS, Mark, Taint, announced_end
from elastic_pytorch_operator.model.observed import TERMINAL_PHASES, NodeView, PodView
from elastic_pytorch_operator.spec.job import DEFAULT_GRACE_SECONDS

EXCLUDING_EFFECTS = ("NoSchedule", "NoExecute")


def job_of_pod(pod: Manifest) -> Owner | None:
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    if labels.get(names.LABEL_ROLE) not in (names.ROLE_WORKER, names.ROLE_STORE):
        return None
    return owner_of(metadata)


def view_pod(pod: Manifest, *, seen_at: float, at_start: bool = False) -> PodView:
    """`at_start`: the pod was there when this operator started."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    training = annotations.get(names.ANNOTATION_TRAINING_CONTAINER, names.TRAINING_CONTAINER)
    statuses = status.get("containerStatuses") or ()
    own: Manifest = next((c for c in statuses if c.get("name") == training), {})
    state = own.get("state") or {}
    terminated = state.get("terminated") or _failed_init(spec, status)
    phase = status.get("phase", "Pending")
    waiting_reason, waiting = _find_wait(status, own, state)
    grace = spec.get("terminationGracePeriodSeconds")
    view = PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        index=parse_count(labels.get(names.LABEL_WORKER_INDEX)) or 0,
        phase=phase,
        node=spec.get("nodeName") or "",
        address=status.get("podIP") or "",
        deleting=bool(metadata.get("deletionTimestamp")),
        started="running" in state,
        exit_code=terminated.get("exitCode"),
        exit_reason=status.get("reason") or terminated.get("reason") or "",
        exit_message=_exit_message(status, terminated),
        disrupted=is_true(status, "DisruptionTarget"),
        sidecar_runs=phase not in TERMINAL_PHASES and _runs_beside(training, status),
        waiting=waiting,
        waiting_reason=waiting_reason,
        unschedulable=_unscheduled(status).get("reason") == "Unschedulable"
        and not status.get("nominatedNodeName"),
        avoids=frozenset(_listed(annotations, names.ANNOTATION_AVOIDS)),
        prefers_others_to=frozenset(_listed(annotations, names.ANNOTATION_PREFERS_OTHERS)),
        conditions=frozenset(
            (str(c.get("type")), str(c.get("status"))) for c in status.get("conditions") or ()
        ),
        group_restarts=parse_count(annotations.get(names.ANNOTATION_GROUP_RESTARTS)) or 0,
        failed_starts=_listed(annotations, names.ANNOTATION_FAILED_STARTS),
        created_at=seen_at,
        ended_at=seen_at,
        stuck_since=seen_at,
        role=labels.get(names.LABEL_ROLE, names.ROLE_WORKER),
        rendezvous=parse_count(labels.get(names.LABEL_RENDEZVOUS)) or 0,
        workload=annotations.get(kueue.ANNOTATION_WORKLOAD, ""),
        topology=not annotations.keys().isdisjoint(kueue.TOPOLOGY_REQUESTS),
        unhealthy=_unhealthy_resources(status),
        grace_seconds=DEFAULT_GRACE_SECONDS if grace is None else grace,
        creation_time=metadata.get("creationTimestamp") or "",
    )
    if at_start and view.ended:
        return replace(view, ended_before_takeover=True)
    return view


def follow_view(known: PodView, view: PodView, now: float) -> PodView:
    return replace(
        view,
        ended_before_takeover=known.ended_before_takeover,
        ended_before_deletion=known.ended_before_deletion or (known.ended and not known.deleting),
        stuck_since=now if view.stuck and not known.stuck else known.stuck_since,
        ended_at=now if view.ended and not known.ended else known.ended_at,
    )


def view_node(node: Manifest, marks: Iterable[Mark] = MARKS) -> NodeView:
    """A node is ready unless its condition denies that, which a new node lacks."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    labels, unschedulable = metadata.get("labels") or {}, bool(spec.get("unschedulable"))
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    taints = [Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()]
    deleting = bool(metadata.get("deletionTimestamp"))
    return NodeView(
        name=metadata["name"],
        ready=conditions.get("Ready", "True") == "True",
        unschedulable=unschedulable,
        labels=labels,
        taints=tuple(taint for taint in taints if taint.effect in EXCLUDING_EFFECTS),
        allocatable=status.get("allocatable") or {},
        end=announced_end(
            taints, labels, conditions, deleting=deleting, unschedulable=unschedulable, marks=marks
        ),
    )


def _runs_beside(training: str, status: Manifest) -> bool:
    """Whether another container has not ended; the kubelet itself stops native sidecars."""
    others = (c for c in status.get("containerStatuses") or () if c.get("name") != training)
    return any("terminated" not in (c.get("state") or {}) for c in others)


def _exit_message(status: Manifest, terminated: Manifest) -> str:
    """The message for the reason of a pod's end: the kubelet's if it has ended the pod."""
    of_pod, of_container = status.get("message") or "", terminated.get("message") or ""
    return (of_pod or of_container) if status.get("reason") else (of_container or of_pod)


def _unhealthy_resources(status: Manifest) -> str:
    """The resources with an unhealthy device, as plugins and DRA drivers report them (KEP-4680).

    Unknown is no fault: a plugin that restarts reports nothing for a while.
    """
    reported = (
        r
        for c in status.get("containerStatuses") or ()
        for r in c.get("allocatedResourcesStatus") or ()
    )
    found = {
        str(r.get("name"))
        for r in reported
        if any(d.get("health") == "Unhealthy" for d in r.get("resources") or ())
    }
    return ", ".join(sorted(found))


def _failed_init(spec: Manifest, status: Manifest) -> Manifest:
    """The end of an init container that has failed, so that the training never ran.

    Native sidecars do not count: they are stopped whenever their pod ends.
    """
    sidecars = {
        c.get("name")
        for c in spec.get("initContainers") or ()
        if c.get("restartPolicy") == "Always"
    }
    for container in status.get("initContainerStatuses") or ():
        terminated = (container.get("state") or {}).get("terminated") or {}
        if (
            terminated.get("exitCode")
            and status.get("phase") == "Failed"
            and container["name"] not in sidecars
        ):
            reason = terminated.get("message") or terminated.get("reason") or "failed"
            text = f"init container {container['name']}: {reason}"
            return {**terminated, "message": text}
    return {}


def _find_wait(status: Manifest, own: Manifest, state: Manifest) -> tuple[str, str]:
    """Why a pod's training container does not run yet: a reason, and a text.

    Both are empty while it is starting, or has started. It waits for init containers, native
    sidecars among them, but not for other containers.
    """
    if "running" in state or "terminated" in state:
        return "", ""
    for container in (*(status.get("initContainerStatuses") or ()), own):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason", "")
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            message = waiting.get("message") or ""
            named = "Image" in reason and container.get("image")
            image = f" of image {container['image']}" if named else ""
            return reason, f"{reason}{image}{': ' + message if message else ''}"
    if unscheduled := _unscheduled(status):
        reason = unscheduled.get("reason", "Unschedulable")
        return reason, f"{reason}: {unscheduled.get('message', '')}".rstrip(": ")
    return "", ""


def _unscheduled(status: Manifest) -> Manifest:
    condition = find_condition(status, "PodScheduled")
    return condition if condition.get("status") == "False" else {}


def _listed(annotations: Manifest, name: str) -> tuple[str, ...]:
    return tuple(filter(None, annotations.get(name, "").split(",")))
