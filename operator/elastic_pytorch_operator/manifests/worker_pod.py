"""Builds the objects that a job owns: its headless Service and its worker pods. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import Manifest, MutableManifest, append, copied
from elastic_pytorch_operator.api.resources import REVISIONS
from elastic_pytorch_operator.manifests.affinity import (
    keep_away,
    place_in_unit,
    prefer_alone,
    prefer_others,
)
from elastic_pytorch_operator.manifests.agent_injection import (
    INJECTED_COMMAND,
    INSTALLED_COMMAND,
    AgentImage,
    inject_agent,
)
from elastic_pytorch_operator.model.actions import CreatePod
from elastic_pytorch_operator.spec.fields import MAX_WORDS
from elastic_pytorch_operator.spec.job import Job, training_container
from elastic_pytorch_operator.spec.pod_template import SET_FOR_PODS, is_set_for_processes
from elastic_pytorch_operator.spec.scheduling import ALLOW, FORBID
from elastic_pytorch_operator.spec.volumes import (
    ClaimTemplate,
    add_claim_volumes,
    add_shared_memory,
)

APPLICATION = "elastic-pytorch-job"
TOKEN_VOLUME = "elastic-pytorch-token"
TOKEN_FOLDER = "/var/run/secrets/elasticpytorch.dev"
TOKEN_SECONDS = 3600
# On a node that is gone, unless the template says otherwise; Kubernetes' own default is 300.
NODE_LOSS_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
NODE_LOSS_SECONDS = 10


class UnbuildableError(ValueError):
    """A builder cannot read what `spec` should have refused; no further try would help."""

    def __init__(self, kind: str, fault: Exception) -> None:
        super().__init__(f"{kind}: the operator cannot build it: {fault!r}"[:MAX_WORDS])


@contextmanager
def building(kind: str) -> Iterator[None]:
    """Decorates a builder, so that it raises only UnbuildableError."""
    try:
        yield
    except Exception as fault:
        raise UnbuildableError(kind, fault) from fault


def owner_reference(job: Job) -> MutableManifest:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": job.key.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned(job: Job, name: str) -> MutableManifest:
    return {
        "name": name,
        "namespace": job.key.namespace,
        "labels": {
            names.LABEL_NAME: APPLICATION,
            names.LABEL_MANAGED_BY: names.OPERATOR,
            names.LABEL_JOB_NAME: job.key.name,
        },
        "ownerReferences": [owner_reference(job)],
    }


def headless_service(job: Job) -> MutableManifest:
    """Gives each worker its name, ready or not: `{job}-worker-{index}.{job}`."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned(job, job.key.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            # The pods of stores have their names from here, too.
            "selector": {names.LABEL_JOB_NAME: job.key.name},
            "ports": [{"name": "c10d", "port": job.store_port, "protocol": "TCP"}],
        },
    }


def template_revision(job: Job, name: str, spec: Manifest) -> MutableManifest:
    return {
        "apiVersion": REVISIONS.api_version,
        "kind": REVISIONS.kind,
        "metadata": owned(job, name),
        "data": spec,
        "revision": 1,
    }


@building("PersistentVolumeClaim")
def volume_claim(job: Job, template: ClaimTemplate) -> MutableManifest:
    metadata = owned(job, template.claim_name(job.key.name))
    if job.keep_claims:
        del metadata["ownerReferences"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": copied(dict(template.spec)),
    }


# By default, Cluster Autoscaler does not remove a node with pods of a custom controller.
DISRUPTION_ANNOTATIONS: Mapping[str, Mapping[str, str]] = {
    ALLOW: {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
    FORBID: {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    },
}


@dataclass(frozen=True, slots=True)
class AgentSettings:
    operator_url: str
    image: AgentImage | None = None  # brings the agent into pods; None: the jobs' images do
    authorities: str = ""  # certificates, PEM, one of which has signed the operator's


@building("Pod")
def worker_pod(job: Job, action: CreatePod, suffix: str, agent: AgentSettings) -> MutableManifest:
    pod, container = pod_from_template(job, action, suffix)
    annotations, spec = pod["metadata"]["annotations"], pod["spec"]
    if action.group_restarts:
        annotations[names.ANNOTATION_GROUP_RESTARTS] = str(action.group_restarts)
    image = agent.image if job.inject_agent else None
    own_command = bool(container.get("command"))
    if not own_command:
        container["command"] = list(INJECTED_COMMAND if image else INSTALLED_COMMAND)
    # What scripts read as the most restarts is the job's own budget.
    restarts: MutableManifest = {"name": "PET_MAX_RESTARTS", "value": str(job.max_failures)}
    joining = _torchrun_environment(job) if own_command else [restarts]
    own = container.get("env") or ()
    container["env"] = [variable for variable in own if not is_set_for_processes(variable["name"])]
    provide(container, [*_agent_environment(job, action.index, agent), *joining])
    mount = {"name": TOKEN_VOLUME, "mountPath": TOKEN_FOLDER, "readOnly": True}
    append(container, "volumeMounts", mount)
    append(spec, "volumes", _token_volume())
    if image is not None:
        inject_agent(spec, container, image, own_command=own_command)
    if action.avoid:
        keep_away(spec, action.avoid)
        annotations[names.ANNOTATION_AVOIDS] = ",".join(action.avoid)
    if action.unwanted:
        prefer_others(spec, action.unwanted)
        annotations[names.ANNOTATION_PREFERS_OTHERS] = ",".join(action.unwanted)
    if action.apart:
        prefer_alone(spec, job)
    if job.unit_replicas > 1:
        place_in_unit(pod, job, action.index)
    return pod


def pod_from_template(
    job: Job, action: CreatePod, suffix: str
) -> tuple[MutableManifest, MutableManifest]:
    """A worker pod with either backend, and its training container."""
    index = action.index
    extra = action.grant.extra if action.grant else job.is_extra(index)
    template = copied(dict(job.template_of(extra=extra)))
    metadata: MutableManifest = template.get("metadata") or {}
    spec: MutableManifest = template["spec"]
    host = f"{job.key.name}-worker-{index}"
    container = cast(MutableManifest, training_container(template))
    container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    spec["tolerations"] = tolerations(spec.get("tolerations") or [])
    # Training needs neither the API server nor a variable for each Service, unless the user asks.
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("enableServiceLinks", False)
    # A new pod replaces an agent that has died: one pod name is one incarnation of a worker.
    spec |= {**SET_FOR_PODS, "hostname": host, "subdomain": job.key.name}
    if spec.get("hostNetwork"):
        # The node's own resolver does not know the cluster's Services.
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    add_claim_volumes(spec, job.claims, job.key.name)
    add_shared_memory(spec, container, job.shared_memory)
    gang, gang_labels = job.scheduling.gang, {}
    if gang is not None and gang.built_in:
        spec["schedulingGroup"] = {"podGroupName": job.key.name}
    elif gang is not None:
        spec.setdefault("schedulerName", gang.scheduler_name)
        gang_labels = {gang.group_label: job.key.name}
    owner = owned(job, f"{host}-{suffix}")
    pod: MutableManifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **owner,
            "annotations": {
                **DISRUPTION_ANNOTATIONS[job.scheduling.disruption],
                **(metadata.get("annotations") or {}),
                # Webhooks may add containers to the pod.
                names.ANNOTATION_TRAINING_CONTAINER: container["name"],
            },
            # The operator selects by none of those that the template may set.
            "labels": {
                **owner["labels"],
                **(metadata.get("labels") or {}),
                **gang_labels,
                names.LABEL_JOB_NAME: job.key.name,
                names.LABEL_WORKER_INDEX: str(index),
                names.LABEL_ROLE: names.ROLE_WORKER,
            },
        },
        "spec": spec,
    }
    if action.failed_starts:
        starts = ",".join(action.failed_starts)
        pod["metadata"]["annotations"][names.ANNOTATION_FAILED_STARTS] = starts
    return pod, container


def provide(container: MutableManifest, environment: Sequence[MutableManifest]) -> None:
    """A container's own variables of the same name stay."""
    own = list(container.get("env") or [])
    taken = {variable["name"] for variable in own}
    container["env"] = [v for v in environment if v["name"] not in taken] + own


def variables(values: Mapping[str, str]) -> list[MutableManifest]:
    return [{"name": name, "value": value} for name, value in values.items() if value]


def _agent_environment(job: Job, index: int, agent: AgentSettings) -> list[MutableManifest]:
    values = {
        names.OPERATOR_URL_VARIABLE: agent.operator_url,
        names.AUTHORITIES_VARIABLE: agent.authorities,
        "ELASTIC_PYTORCH_TOKEN_FILE": f"{TOKEN_FOLDER}/token",
        "ELASTIC_PYTORCH_JOB": job.key.name,
        "ELASTIC_PYTORCH_JOB_UID": job.uid,
        "ELASTIC_PYTORCH_WORKER_INDEX": str(index),
        "ELASTIC_PYTORCH_GRACE_SECONDS": str(job.grace_seconds),
        "ELASTIC_PYTORCH_STORE_PORT": str(job.store_port),
        "ELASTIC_PYTORCH_UNIT_REPLICAS": str(job.unit_replicas) if job.unit_replicas > 1 else "",
        "ELASTIC_PYTORCH_CHECKPOINT_PATH": job.checkpoint_path,
        "ELASTIC_PYTORCH_PREPARE_SECONDS": str(job.prepare_seconds or ""),
        "PET_NPROC_PER_NODE": job.nproc_per_node,
    }
    fields = {
        "ELASTIC_PYTORCH_WORKER": "metadata.name",
        "ELASTIC_PYTORCH_NODE": "spec.nodeName",
    }
    return [
        *variables(values),
        *(
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in fields.items()
        ),
    ]


def _torchrun_environment(job: Job) -> list[MutableManifest]:
    values = {
        "PET_NNODES": f"{job.minimum}:{job.maximum}",
        "PET_RDZV_BACKEND": "elastic-pytorch",
        "PET_RDZV_ENDPOINT": f"{job.key.name}:{job.store_port}",
        "PET_RDZV_ID": job.uid,
        # The operator keeps the budget: a torchrun that exhausts its own would end its pod.
        "PET_MAX_RESTARTS": "1000000",
    }
    return variables(values)


def tolerations(own: list[MutableManifest]) -> list[MutableManifest]:
    # As for Kubernetes' own 300 s: one of another effect does not say when a pod leaves a node.
    ends = [t.get("key") or "" for t in own if (t.get("effect") or "NoExecute") == "NoExecute"]
    missing = [taint for taint in NODE_LOSS_TAINTS if taint not in ends and "" not in ends]
    short = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": NODE_LOSS_SECONDS}
    return [*own, *({"key": taint, **short} for taint in missing)]


def _token_volume() -> MutableManifest:
    token = {"audience": names.TOKEN_AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    return {"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}
