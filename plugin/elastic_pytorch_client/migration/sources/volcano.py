"""Job of Volcano (batch.volcano.sh/v1alpha1): one task that trains, or master and workers."""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_client.migration.failure_policy import failure_policy
from elastic_pytorch_client.migration.job_metadata import (
    QUEUE_LABEL,
    gang_scheduling,
    migrate_metadata,
)
from elastic_pytorch_client.migration.job_size import group_size
from elastic_pytorch_client.migration.remarks import Remarks
from elastic_pytorch_client.migration.sources.job import PASSED, job_trains, leave_out_others
from elastic_pytorch_client.migration.sources.replica_templates import read_replicas
from elastic_pytorch_client.migration.sources.training_pods import (
    Claim,
    TrainingPods,
    make_job,
    part,
    processes_of,
    replicas_of,
    say_hosts,
    shared_claims,
)

Manifest = dict[str, Any]

API_GROUP, KIND = "batch.volcano.sh", "Job"
SCHEDULER = "volcano"
VOLUME = "volume"
DEFAULT_QUEUE = "default"
QUEUE = (
    f"becomes the label {QUEUE_LABEL}: Kueue admits the workers together. Create a LocalQueue of "
    "this name, or remove the label"
)
# Other plugins get a remark.
PLUGINS = ("pytorch", "svc", "env")
POLICIES = (
    "a lost pod is replaced and a failed process restarted, and the job is complete "
    "when all its workers have succeeded. See spec.failurePolicy"
)


def migrate_volcano_job(
    manifest: Mapping[str, Any], remarks: Remarks, entrypoint: Sequence[str]
) -> list[Mapping[str, Any]]:
    spec = part(manifest, "spec")
    tasks = spec.get("tasks") or ()
    plugins = part(spec, "plugins")
    roles = _roles(plugins)
    training = [
        task
        for task in tasks
        if ("pytorch" in plugins and task.get("name") in roles) or job_trains(task, entrypoint)
    ]
    if not training:
        remarks.add("spec.tasks", PASSED)
        return [manifest]
    has_master = roles[0] in [task.get("name") for task in training]
    leave_out_others("spec.tasks", tasks, training, remarks, most=2 if has_master else 1)
    # Workers first: their values win over the master's.
    training.sort(key=lambda task: task.get("name") == roles[0])
    templates = [
        (f"spec.tasks[{task.get('name')}].template", _with_volumes(task, spec)) for task in training
    ]
    pods = read_replicas(templates, remarks, entrypoint)
    sizes = group_size("spec.tasks", sum(map(replicas_of, training)), pods.options, remarks)
    _tell_of_least(spec, sizes, remarks)
    metadata = migrate_metadata(manifest, remarks)
    hosts = "|".join(re.escape(str(task.get("name"))) for task in training)
    say_hosts("spec.tasks", metadata, rf"({hosts})-[0-9]+\b", pods, remarks)
    _schedule(spec, pods, remarks)
    gang = _place_together(spec, metadata, remarks)
    migrated = make_job(
        metadata,
        pods,
        sizes,
        processes_of(pods, remarks),
        {"ttlSecondsAfterFinished": spec.get("ttlSecondsAfterFinished")},
        _failure_policy(spec, training, pods, remarks),
        shared_claims(_claims(spec), pods, remarks),
        gang,
    )
    return [migrated]


def _roles(plugins: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the master's and the workers' task, as the pytorch plugin is set."""
    named = {"master": "master", "worker": "worker"}
    for word in plugins.get("pytorch") or ():
        name, _, value = str(word).lstrip("-").partition("=")
        if name in named and value:
            named[name] = value
    return named["master"], named["worker"]


def _with_volumes(task: Mapping[str, Any], spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """A task's template, whose containers all mount the job's volumes."""
    changed = copy.deepcopy(dict(part(task, "template")))
    pod = changed.setdefault("spec", {})
    for place, volume in enumerate(spec.get("volumes") or ()):
        name = f"{VOLUME}-{place}"
        if not volume.get("volumeClaim"):
            source = {"persistentVolumeClaim": {"claimName": volume.get("volumeClaimName")}}
            pod["volumes"] = [*(pod.get("volumes") or ()), {"name": name, **source}]
        for container in pod.get("containers") or ():
            container["volumeMounts"] = [
                *(container.get("volumeMounts") or ()),
                {"name": name, "mountPath": volume.get("mountPath")},
            ]
    return changed


def _claims(spec: Mapping[str, Any]) -> list[Claim]:
    return [
        (
            f"spec.volumes[{volume.get('mountPath')}].volumeClaim",
            f"{VOLUME}-{place}",
            volume["volumeClaim"],
        )
        for place, volume in enumerate(spec.get("volumes") or ())
        if volume.get("volumeClaim")
    ]


def _tell_of_least(spec: Mapping[str, Any], sizes: Manifest, remarks: Remarks) -> None:
    """Volcano starts `minAvailable` pods at once, but the group had the size of all."""
    least = spec.get("minAvailable")
    if least is None or "minReplicas" in sizes or not 1 <= int(least) < sizes["replicas"]:
        return
    text = f"is left out: the group trains with all {sizes['replicas']} workers, or waits"
    remarks.add("spec.minAvailable", f"{text}. If the script may train with fewer, set minReplicas")


def _failure_policy(
    spec: Mapping[str, Any], training: Sequence[Manifest], pods: TrainingPods, remarks: Remarks
) -> Manifest:
    retries = spec.get("maxRetry")
    backoff = "spec.maxRetry", None if retries is None else int(retries)
    policy = failure_policy("spec.tasks", "", backoff, pods, remarks)
    remarks.drop_set("spec", spec, {"policies": POLICIES})
    for task in training:
        remarks.drop_set(f"spec.tasks[{task.get('name')}]", task, {"policies": POLICIES})
    return {"failurePolicy": policy}


def _place_together(spec: Mapping[str, Any], metadata: Manifest, remarks: Remarks) -> Manifest:
    queue = str(spec.get("queue") or DEFAULT_QUEUE)
    if queue != DEFAULT_QUEUE:
        metadata["labels"] = {QUEUE_LABEL: queue, **metadata.get("labels", {})}
        remarks.add("spec.queue", QUEUE)
    return gang_scheduling("spec.schedulerName", "Kubernetes", metadata, remarks)


def _schedule(spec: Mapping[str, Any], pods: TrainingPods, remarks: Remarks) -> None:
    pod = pods.template["spec"]
    if spec.get("priorityClassName") and not pod.get("priorityClassName"):
        pod["priorityClassName"] = spec["priorityClassName"]
    scheduler = spec.get("schedulerName")
    if scheduler and scheduler != SCHEDULER:
        pod.setdefault("schedulerName", scheduler)
    for plugin in spec.get("plugins") or ():
        if plugin not in PLUGINS:
            remarks.drop(f"spec.plugins.{plugin}", "the agent starts the processes without it")
    lost = dict.fromkeys(
        ("minSuccess", "networkTopology", "runningEstimate"), "it has no counterpart"
    )
    remarks.drop_set("spec", spec, lost)
