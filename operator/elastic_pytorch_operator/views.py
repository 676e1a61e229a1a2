"""From the API server's objects to the slim views that decisions read."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from elastic_pytorch_operator import names
from elastic_pytorch_operator.job import JobKey
from elastic_pytorch_operator.observed import NodeView, PodView

Manifest = Mapping[str, Any]


def job_of_pod(pod: Manifest) -> tuple[JobKey, str] | None:
    """The job that owns a worker's or a store's pod, with its UID; None if the pod is nobody's."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    if labels.get(names.LABEL_ROLE) not in (names.ROLE_WORKER, names.ROLE_STORE):
        return None
    for owner in metadata.get("ownerReferences") or ():
        if (
            owner.get("kind") == names.KIND
            and owner.get("controller")
            and str(owner.get("apiVersion", "")).startswith(names.GROUP)
        ):
            return JobKey(metadata["namespace"], owner["name"]), owner["uid"]
    return None


def view_pod(pod: Manifest, *, seen_at: float, at_start: bool = False) -> PodView:
    """A pod's view.

    Args:
        pod: the object.
        seen_at: monotonic seconds, when this operator first saw it.
        at_start: it was there when this operator started.
    """
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    state = _training_state(spec, status)
    terminated = state.get("terminated") or _failed_init(status)
    phase = status.get("phase", "Pending")
    reason = terminated.get("reason") or status.get("reason") or ""
    labels = metadata.get("labels") or {}
    index, rendezvous = labels.get(names.LABEL_WORKER_INDEX, ""), labels.get(names.LABEL_RENDEZVOUS, "")
    view = PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        index=int(index) if index.isdigit() else 0,
        phase=phase,
        node=spec.get("nodeName") or "",
        address=status.get("podIP") or "",
        deleting=bool(metadata.get("deletionTimestamp")),
        started="running" in state,
        exit_code=terminated.get("exitCode"),
        exit_reason="Evicted" if status.get("reason") == "Evicted" else reason,
        exit_message=terminated.get("message") or status.get("message") or "",
        waiting=_why_waiting(status, state),
        avoids=frozenset(filter(None, (metadata.get("annotations") or {}).get(names.ANNOTATION_AVOIDS, "").split(","))),
        created_at=seen_at,
        stuck_since=seen_at,
        role=labels.get(names.LABEL_ROLE, names.ROLE_WORKER),
        rendezvous=int(rendezvous) if rendezvous.isdigit() else 0,
        plain_http=not rendezvous and _knows_no_tls(spec.get("containers") or ()),
    )
    if at_start and view.ended:
        return replace(view, seen_dead_at_start=True)
    return view


def view_node(node: Manifest) -> NodeView:
    """A node's view. Ready unless its condition says otherwise: an absent condition means that the node has just come."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), "True")
    return NodeView(
        name=node["metadata"]["name"],
        ready=ready == "True",
        unschedulable=bool((node.get("spec") or {}).get("unschedulable")),
    )


def _training_state(spec: Manifest, status: Manifest) -> Manifest:
    """The state of the training container, which is the one named `pytorch`, or the only one."""
    declared = spec.get("containers") or []
    name = names.TRAINING_CONTAINER if len(declared) != 1 else declared[0].get("name")
    for container in status.get("containerStatuses") or ():
        if container.get("name") == name:
            return container.get("state") or {}
    return {}


def _knows_no_tls(containers: Sequence[Manifest]) -> bool:
    """Whether an agent was told to speak without TLS, and by an operator that had none.

    An operator with TLS gives authorities to each pod with an agent, whatever a template's own variables say.
    """
    told = [variable for container in containers for variable in container.get("env") or ()]
    plain = any(v["name"] == names.OPERATOR_URL_VARIABLE and (v.get("value") or "").startswith("http:") for v in told)
    return plain and not any(v["name"] == names.AUTHORITIES_VARIABLE for v in told)


def _failed_init(status: Manifest) -> Manifest:
    """How an init container has failed, if one has: the training container has never run then."""
    for container in status.get("initContainerStatuses") or ():
        terminated = (container.get("state") or {}).get("terminated") or {}
        if terminated.get("exitCode") and status.get("phase") == "Failed":
            text = f"init container {container['name']}: {terminated.get('message') or terminated.get('reason') or 'failed'}"
            return {**terminated, "message": text}
    return {}


def _why_waiting(status: Manifest, state: Manifest) -> str:
    """Why a pod's training container does not run yet, for people; empty while it is simply starting."""
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            reason = waiting.get("reason", "")
            if reason and reason not in ("ContainerCreating", "PodInitializing"):
                message = waiting.get("message") or ""
                image = f" of image {container['image']}" if "Image" in reason and container.get("image") else ""
                return f"{reason}{image}{': ' + message if message else ''}"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', 'Unschedulable')}: {condition.get('message', '')}".rstrip(": ")
    return ""
