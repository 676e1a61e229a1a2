"""The hostile tenant's objects, and those of a platform team for it. Pure."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from elastic_pytorch_operator.api import names
from measure import recorded_job
from measure.kind_cluster import SECURITY, USER

from soak.hostile.acts import unreadable

# Of all objects to be removed, whichever run made them.
LABEL = {"elastic-pytorch-soak": "hostile"}
SELECTOR = "elastic-pytorch-soak%3Dhostile"
# Pods that only need to exist stay Pending, and cost no core.
NO_NODE = {"elastic-pytorch-soak": "no-node"}
IMAGE = "elastic-pytorch-worker:dev"
ACCOUNT = "tenant"
WEBHOOK = "elastic-pytorch-soak-hostile"
WEBHOOK_SECONDS = 30
HANG, HANG_PORT = "hang", 8443
ANNOTATED_JOB, WORDY_JOB, STRAY = "annotated", "words", "stray"
SCRIPTS = ("ask", "claims", "flood", "hang", "tally", "words")
# The limits keep the cost of any program from starving a cluster on two cores, which is not the
# test. Each is a job or a Deployment: its script with arguments, and its cores.
SPEAKING: Mapping[str, tuple[str, str]] = {
    "flood": ("flood.py", "200m"),
    "claims": ("claims.py", "100m"),
}
PROGRAMS: Mapping[str, tuple[str, str]] = {
    HANG: ("hang.py", "50m"),
    "scrape": ("ask.py scrape", "150m"),
    "tokens": ("ask.py tokens", "100m"),
}
WORDY_CPU = "300m"


class Namespaces(NamedTuple):
    own: str  # for its programs, its flood and its unreadable objects
    hanging: str  # whose pods a webhook must admit
    full: str  # with a quota of no pods
    passing: str  # which is deleted and made again


def namespaces_of(run: str) -> Namespaces:
    return Namespaces(*(f"{run}-{name}" for name in ("tenant", "hanging", "full", "passing")))


def namespace(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": LABEL}}


def role_binding(own: str) -> dict[str, Any]:
    return {
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": own}],
    }


def no_pods() -> dict[str, Any]:
    return {"metadata": {"name": "no-pods"}, "spec": {"hard": {"pods": "0"}}}


def hanging_webhook(namespaces: Namespaces, authority: str) -> dict[str, Any]:
    service = {"namespace": namespaces.own, "name": HANG, "path": "/", "port": 443}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
        "scope": "Namespaced",
    }
    webhook = {
        "name": "hang.elasticpytorch.dev",
        "clientConfig": {"service": service, "caBundle": b64encode(authority.encode()).decode()},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespaces.hanging}},
        "rules": [rule],
        "timeoutSeconds": WEBHOOK_SECONDS,
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {"metadata": {"name": WEBHOOK, "labels": LABEL}, "webhooks": [webhook]}


def hang_service() -> dict[str, Any]:
    return {
        "metadata": {"name": HANG},
        "spec": {"selector": {"app": HANG}, "ports": [{"port": 443, "targetPort": HANG_PORT}]},
    }


def scripts(certificate: str) -> dict[str, Any]:
    """The ConfigMap of the programs, with the webhook server's certificate and key (PEM)."""
    made = recorded_job.scripts(f"hack/soak/scripts/hostile/{name}.py" for name in SCRIPTS)
    made["data"]["hang.pem"] = certificate
    return made


def program(name: str, namespaces: Namespaces) -> dict[str, Any]:
    labels = {"app": name}
    pod = {
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "securityContext": USER,
        "containers": [{"name": name, "image": IMAGE, **_script(*PROGRAMS[name])}],
        "volumes": _volumes(namespaces),
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return {"metadata": {"name": name}, "spec": spec}


def job(
    name: str, *, replicas: int = 1, changes: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """A job whose pods find no node.

    Args:
        changes: to `metadata`, `spec`, `template` (its metadata), `pod` (its spec) and `container`.
    """
    changes = changes or {}
    resources = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    container = {
        "name": names.TRAINING_CONTAINER,
        "image": IMAGE,
        "args": ["train.py"],
        "resources": resources,
    }
    container |= {"securityContext": SECURITY, **changes.get("container", {})}
    pod = {
        "nodeSelector": NO_NODE,
        "terminationGracePeriodSeconds": 1,
        "securityContext": USER,
        "containers": [container],
    }
    template = {
        "metadata": dict(changes.get("template", {})),
        "spec": {**pod, **changes.get("pod", {})},
    }
    spec: dict[str, Any] = {"replicas": replicas, "injectAgent": False, "template": template}
    metadata = {"name": name, **changes.get("metadata", {})}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": metadata,
        "spec": {**spec, **changes.get("spec", {})},
    }


def speaking_job(name: str, namespaces: Namespaces) -> dict[str, Any]:
    pod = {"nodeSelector": {}, "volumes": _volumes(namespaces)}
    return job(name, changes={"pod": pod, "container": _script(*SPEAKING[name])})


def wordy_job(namespaces: Namespaces) -> dict[str, Any]:
    script = ["/scripts/words.py"]
    made = recorded_job.recorded_job(WORDY_JOB, namespaces.own, script, stock=False)
    made["spec"] |= {"replicas": 1, "minReplicas": 1, "maxReplicas": 1}
    [container] = made["spec"]["template"]["spec"]["containers"]
    container["env"] += _environment("/checkpoints")
    container["resources"] = _resources(WORDY_CPU, "1Gi")
    return made


def stray_pod(turn: int, owner: Mapping[str, Any]) -> dict[str, Any]:
    """The tenant's own pod that claims to be a job's worker, with unreadable metadata."""
    metadata = unreadable(turn)
    metadata["labels"] |= {names.LABEL_ROLE: names.ROLE_WORKER, names.LABEL_JOB_NAME: owner["name"]}
    reference = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": owner["name"],
        "uid": owner["uid"],
        "controller": True,
    }
    pod = job(STRAY)["spec"]["template"]["spec"]
    return {
        "metadata": {"name": f"{STRAY}-{turn}", **metadata, "ownerReferences": [reference]},
        "spec": pod,
    }


def _script(program: str, cpu: str) -> dict[str, Any]:
    return {
        "command": ["python3", *f"/scripts/{program}".split()],
        "env": _environment("/tally"),
        "resources": _resources(cpu, "128Mi"),
        "securityContext": SECURITY,
        "volumeMounts": [
            {"name": "scripts", "mountPath": "/scripts"},
            {"name": "tally", "mountPath": "/tally"},
        ],
    }


def _resources(cpu: str, memory: str) -> dict[str, dict[str, str]]:
    requests = {"cpu": "10m", "memory": "32Mi"}
    return {"requests": requests, "limits": {"cpu": cpu, "memory": memory}}


def _environment(folder: str) -> list[dict[str, Any]]:
    return [
        {"name": "TALLY", "value": folder},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]


def _volumes(namespaces: Namespaces) -> list[dict[str, Any]]:
    return [
        {"name": "scripts", "configMap": {"name": "scripts"}},
        {"name": "tally", "hostPath": {"path": f"/shared/{namespaces.own}"}},
    ]
