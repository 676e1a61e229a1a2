"""What keeps a pod from training, by its own status."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from elastic_pytorch_client.reading.nodes import requests_of
from elastic_pytorch_client.reading.text import first_line, parse_time, seconds_since

SLOW_START_SECONDS = 60.0
KUEUE = "kueue.x-k8s.io/"
KUEUE_ADMISSION = f"{KUEUE}admission"  # on a pod that Kueue treats as a job of its own

# kube-scheduler's words for a claim that is unbound, missing, or being deleted (volumebinding,
# volumerestrictions).
_CLAIM = re.compile(
    r"unbound immediate PersistentVolumeClaims|find available persistent volumes to bind"
    r"|persistentvolumeclaim \"|binding volumes",
    re.ASCII,
)

_MISSING = re.compile(r'\b(configmap|secret) "([^"]+)" not found')  # in a kubelet's words

_PULL = "Check the image's name, and that the node may pull it (imagePullSecrets)."
_WAITING = {
    "ErrImagePull": _PULL,
    "ImagePullBackOff": _PULL,
    "ErrImageNeverPull": (
        "imagePullPolicy is Never, and the node does not have the image: load it onto the node, "
        "or change the policy."
    ),
    "InvalidImageName": "Correct the image's name in spec.template, then create the job again.",
    "CreateContainerConfigError": (
        "Create the object that the container refers to, such as a ConfigMap or Secret."
    ),
    "CreateContainerError": (
        "The node cannot create the container from spec.template, as the message says."
    ),
    "CrashLoopBackOff": "The container ends soon after each start. Its log:",
}


@dataclass(frozen=True, slots=True)
class PodTrouble:
    pod: str
    kind: str  # `gated`, `unscheduled`, `claim`, `waiting`, `starting` or `leaving`
    said: str  # without the pod's name
    do: str = ""
    requests: Mapping[str, float] = field(default_factory=dict)


def pod_troubles(
    pods: Iterable[Mapping[str, Any]], warnings: Mapping[str, str], now: datetime
) -> list[PodTrouble]:
    named = ((pod, str(pod["metadata"]["name"])) for pod in pods)
    found = (_trouble(pod, warnings.get(name, ""), now) for pod, name in named)
    return [trouble for trouble in found if trouble]


def _trouble(pod: Mapping[str, Any], warning: str, now: datetime) -> PodTrouble | None:
    metadata, status = pod["metadata"], pod.get("status") or {}
    name, namespace = str(metadata["name"]), str(metadata.get("namespace", "default"))
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    if metadata.get("deletionTimestamp"):
        said = "it is being deleted, and its node has not confirmed that it has stopped"
        return PodTrouble(name, "leaving", said)
    describe = f"See its events:\n  kubectl describe pod -n {namespace} {name}"
    if gates := [str(gate.get("name")) for gate in pod["spec"].get("schedulingGates") or ()]:
        return _gated(name, namespace, gates)
    if not pod["spec"].get("nodeName"):
        scheduled: Mapping[str, Any] = next(
            (c for c in status.get("conditions") or () if c.get("type") == "PodScheduled"), {}
        )
        said = str(scheduled.get("message") or "it waits for the scheduler")
        if _CLAIM.search(said):
            show = f"kubectl describe persistentvolumeclaim -n {namespace} {_claims_of(pod)}"
            do = f"See which claim is not bound, and why:\n  {show}"
            return PodTrouble(name, "claim", f"waiting for a volume claim: {first_line(said)}", do)
        return PodTrouble(name, "unscheduled", first_line(said), describe, requests_of(pod))
    kinds = ("initContainerStatuses", "containerStatuses")
    for state in (each for kind in kinds for each in status.get(kind) or ()):
        waiting = (state.get("state") or {}).get("waiting") or {}
        reason, container = str(waiting.get("reason", "")), state.get("name")
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            message = str(waiting.get("message") or "").strip()
            said = f"container {container} cannot start, {reason}"
            said += f": {message}" if message else ""
            do = _create_missing(message, namespace) or _WAITING.get(reason, describe)
            if reason == "CrashLoopBackOff":
                log = f"kubectl logs -n {namespace} {name} -c {container} --previous --tail=30"
                do = f"{_WAITING[reason]}\n  {log}"
            return PodTrouble(name, "waiting", said, do)
    if warning and not _started(status):
        do = _create_missing(warning, namespace) or describe
        return PodTrouble(name, "starting", f"does not start: {warning}", do)
    age = seconds_since(parse_time(metadata.get("creationTimestamp")), now)
    if not _started(status) and age > SLOW_START_SECONDS:
        said = "its image and volumes have taken more than a minute so far"
        return PodTrouble(name, "starting", said, describe)
    return None


def _create_missing(message: str, namespace: str) -> str:
    """How to create an object that a kubelet does not find; empty: it reports something else."""
    if (found := _MISSING.search(message)) is None:
        return ""
    kind = "configmap" if found[1] == "configmap" else "secret generic"
    create = f"kubectl create {kind} {found[2]} --from-file=PATH -n {namespace}"
    return f"Create it, or correct its name in spec.template:\n  {create}"


def _gated(name: str, namespace: str, gates: Sequence[str]) -> PodTrouble:
    """A pod that the scheduler ignores until its gates are removed, whatever room there is."""
    said = f"held back by the scheduling gate {' and '.join(gates)}"
    do = (
        "The controller that set the gate removes it. Until then the scheduler does not place the "
        "pod."
    )
    if any(gate.startswith(KUEUE) for gate in gates):
        show = f"kubectl get workloads.kueue.x-k8s.io -n {namespace}"
        do = f"Kueue removes the gate when the queue has quota for the pod:\n  {show}"
    if KUEUE_ADMISSION in gates:
        said += (
            ", as Kueue queues this pod by itself: the namespace has a LocalQueue named "
            "`default`, or Kueue manages all pods"
        )
        do += (
            "\nTo queue the job as a whole, configure Kueue as docs/use/kueue.md says, or give the "
            "LocalQueue another name."
        )
    return PodTrouble(name, "gated", said, do)


def _claims_of(pod: Mapping[str, Any]) -> str:
    volumes = pod["spec"].get("volumes") or ()
    claims = ((each.get("persistentVolumeClaim") or {}).get("claimName") for each in volumes)
    return " ".join(str(claim) for claim in claims if claim)


def silent_pods(
    pods: Iterable[Mapping[str, Any]], spoken: Iterable[str], now: datetime
) -> list[str]:
    """Pods that have run for a while, without a report of their agent to the operator."""
    known = set(spoken)
    silent = []
    for pod in pods:
        name, statuses = str(pod["metadata"]["name"]), (pod.get("status") or {})
        states = (s.get("state") or {} for s in statuses.get("containerStatuses") or ())
        since = (parse_time(state.get("running", {}).get("startedAt")) for state in states)
        started = next(filter(None, since), None)
        late = started and seconds_since(started, now) > SLOW_START_SECONDS
        if late and name not in known:
            silent.append(name)
    return silent


def _started(status: Mapping[str, Any]) -> bool:
    return any((s.get("state") or {}).get("running") for s in status.get("containerStatuses") or ())
