"""Job (batch/v1) whose pods train: as an Indexed group or as one pod."""

from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_client.migration.failure_policy import AGENT_REPORTS, failure_policy
from elastic_pytorch_client.migration.job_metadata import drop_manager, migrate_metadata, suspension
from elastic_pytorch_client.migration.job_size import group_size
from elastic_pytorch_client.migration.launch import Launch
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.pod_failure_policy import failure_rules
from elastic_pytorch_client.migration.sources.training_pods import (
    OF_A_GROUP,
    TrainingPods,
    make_job,
    processes_of,
    read_training_pods,
    say_hosts,
    set_fields,
    trains,
)

Manifest = dict[str, Any]

API_GROUP, KIND = "batch", "Job"
OWN_CONTROLLER = "kubernetes.io/job-controller"
INDEX_VARIABLES = ("JOB_COMPLETION_INDEX",)
OLD_LABELS = ("job-name", "controller-uid")  # beside those with a prefix
DROPPED = {
    "backoffLimitPerIndex": (
        "is dropped: workers form one group, which fails or succeeds as a whole. See "
        "failurePolicy.backoffLimit"
    ),
    "maxFailedIndexes": "is dropped: workers form one group, which fails or succeeds as a whole",
    "successPolicy": "is dropped: the job is complete when all its workers have succeeded",
    "podReplacementPolicy": "is dropped: the operator replaces a worker once its pod is ending",
}
PASSED = (
    "is passed on as it is: nothing says that it trains (torchrun, MASTER_ADDR, or a Python "
    "script that is named after training). "
    "If it does, write torchrun before its script"
)


def migrate_job(
    manifest: Mapping[str, Any], remarks: Remarks, entrypoint: Sequence[str]
) -> list[Mapping[str, Any]]:
    spec = manifest.get("spec") or {}
    if not job_trains(spec, entrypoint):
        remarks.add("spec.template", PASSED)
        return [manifest]
    count = pods_of("spec", spec)
    pods = read_pods("spec", spec, remarks, entrypoint)
    sizes = group_size("spec.completions", count, pods.options, remarks)
    say_alone("spec.completions", count, spec, pods, remarks)
    metadata = migrate_metadata(manifest, remarks)
    say_hosts("spec.template", metadata.get("name"), r"[0-9]+\.[-a-z0-9.]+", pods, remarks)
    drop_manager("spec.managedBy", spec.get("managedBy"), OWN_CONTROLLER, remarks)
    job = make_job(
        metadata,
        pods,
        sizes,
        processes_of(pods, remarks),
        suspension("spec.suspend", spec.get("suspend"), metadata, remarks),
        set_fields(spec, "ttlSecondsAfterFinished", "activeDeadlineSeconds"),
        policy_of("spec", spec, spec.get("backoffLimit"), pods, remarks),
    )
    return [job]


def job_trains(spec: Mapping[str, Any], entrypoint: Sequence[str]) -> bool:
    pod = (spec.get("template") or {}).get("spec") or {}
    return any(trains(container, entrypoint) for container in pod.get("containers") or ())


def pods_of(path: str, spec: Mapping[str, Any]) -> int:
    """How many pods of a Job run side by side."""
    parallelism = spec.get("parallelism")
    pods = 1 if parallelism is None else int(parallelism)
    completions = int(spec.get("completions") or pods)
    if completions > pods >= 1:
        raise CannotMigrate(
            f"{path}.completions",
            f"{completions} pods run {pods} at a time, so that they are no group. Write a Job for "
            "each training",
        )
    return max(1, completions)  # parallelism 0 is a pause


def read_pods(
    path: str, spec: Mapping[str, Any], remarks: Remarks, entrypoint: Sequence[str]
) -> TrainingPods:
    template = spec.get("template") or {}
    metadata = template.get("metadata") or {}
    labels = {
        key: value for key, value in (metadata.get("labels") or {}).items() if key not in OLD_LABELS
    }
    template = {**template, "metadata": {**metadata, "labels": labels}}
    pods = read_training_pods(f"{path}.template", template, INDEX_VARIABLES, remarks, entrypoint)
    for field, text in DROPPED.items():
        if spec.get(field) is not None:
            remarks.add(f"{path}.{field}", text)
    return pods


def policy_of(
    path: str,
    spec: Mapping[str, Any],
    backoff_limit: int | None,
    pods: TrainingPods,
    remarks: Remarks,
) -> Manifest:
    if backoff_limit == 0:
        text = (
            "0 fails the Job with the first pod that is lost, too. Here that does not count, "
            "unless failurePolicy.onPodLoss is FailJob"
        )
        remarks.add(f"{path}.backoffLimit", text)
    policy = failure_policy(
        f"{path}.template.spec.restartPolicy",
        f"{pods.path}, --max-restarts" if backoff_limit is None else f"{path}.backoffLimit",
        "",  # Never and OnFailure both start failed pods again
        backoff_limit=backoff_limit,
        max_restarts=pods.max_restarts,
        launch=pods.launch,
        remarks=remarks,
    )
    given = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    rules = failure_rules(f"{path}.podFailurePolicy.rules", given, pods.container, remarks)
    if any("onExitCodes" in rule for rule in rules):
        _say_exit_codes(f"{path}.podFailurePolicy", pods.launch, remarks)
    if rules:
        policy["rules"] = rules
    return {"failurePolicy": policy} if policy else {}


def say_alone(
    path: str, count: int, spec: Mapping[str, Any], pods: TrainingPods, remarks: Remarks
) -> None:
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    told = any(
        variable.get("name") in OF_A_GROUP
        for container in containers
        for variable in container.get("env") or ()
    )
    if count > 1 and pods.launch.by == "python" and not told:
        remarks.add(
            path,
            f"nothing tells the {count} pods of each other, unless the script does. Now they form "
            "one group",
        )


def subdomain_of(manifest: Mapping[str, Any]) -> str:
    pod = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
    return str(pod.get("subdomain") or "")


def _say_exit_codes(path: str, launch: Launch, remarks: Remarks) -> None:
    if launch.by == "torchrun" and not launch.command:
        text = AGENT_REPORTS
    elif launch.command:
        text = (
            "the rules see the exit code of the `command`: torchrun in it does not report its "
            "script's"
        )
    else:
        return
    remarks.add(path, text)
