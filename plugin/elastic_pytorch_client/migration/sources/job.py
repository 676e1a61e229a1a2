"""Job (batch/v1) whose pods train: as an Indexed group or as one pod."""

from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_client.migration.failure_policy import (
    failure_policy,
    failure_rules,
    say_exit_codes,
)
from elastic_pytorch_client.migration.job_metadata import migrate_metadata, run_fields
from elastic_pytorch_client.migration.job_size import group_size
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.training_pods import (
    TrainingPods,
    has_group,
    make_job,
    part,
    processes_of,
    read_training_pods,
    say_hosts,
    trains,
)

Manifest = dict[str, Any]

API_GROUP, KIND = "batch", "Job"
OLD_LABELS = ("job-name", "controller-uid")  # beside those with a prefix
DROPPED = {
    "backoffLimitPerIndex": (
        "workers form one group, which fails or succeeds as a whole. See failurePolicy.backoffLimit"
    ),
    "maxFailedIndexes": "workers form one group, which fails or succeeds as a whole",
    "successPolicy": "the job is complete when all its workers have succeeded",
    "podReplacementPolicy": "the operator replaces a worker once its pod is ending",
}
PASSED = (
    "is passed on as it is: nothing says that it trains (torchrun, MASTER_ADDR, Volcano's plugin "
    "pytorch, or a Python script that is named after training). If it does, write torchrun before "
    "its script"
)


def migrate_job(
    manifest: Mapping[str, Any], remarks: Remarks, entrypoint: Sequence[str]
) -> list[Mapping[str, Any]]:
    spec = part(manifest, "spec")
    if not job_trains(spec, entrypoint):
        remarks.add("spec.template", PASSED)
        return [manifest]
    pods, sizes = read_group("spec", spec, 1, remarks, entrypoint)
    metadata = migrate_metadata(manifest, remarks)
    say_hosts("spec.template", metadata, r"[0-9]+\.[-a-z0-9.]+", pods, remarks)
    fields = run_fields("spec", spec, metadata, remarks)
    job = make_job(
        metadata,
        pods,
        sizes,
        processes_of(pods, remarks),
        fields,
        policy_of("spec", spec, spec.get("backoffLimit"), pods, remarks),
    )
    return [job]


def job_trains(spec: Mapping[str, Any], entrypoint: Sequence[str]) -> bool:
    return any(trains(container, entrypoint) for container in _containers(spec))


def leave_out_others(
    path: str,
    jobs: Sequence[Mapping[str, Any]],
    training: Sequence[Mapping[str, Any]],
    remarks: Remarks,
    most: int = 1,
) -> None:
    """Says that the other jobs of a list, or tasks, are dropped; refuses several that train."""
    if len(training) > most:
        names = ", ".join(str(job.get("name")) for job in training)
        raise CannotMigrate(
            path, f"{names} train, and a job has pods of one kind: write a job for each of them"
        )
    for job in jobs:
        if job not in training:
            why = "it does not train. Run it as a Job of its own"
            remarks.drop(f"{path}[{job.get('name')}]", why)


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


def read_group(
    path: str, spec: Mapping[str, Any], copies: int, remarks: Remarks, entrypoint: Sequence[str]
) -> tuple[TrainingPods, Manifest]:
    """The pods of the copies of a Job, and the size of the group that they form."""
    count = pods_of(path, spec) * copies
    template = part(spec, "template")
    given = part(template, "metadata")
    labels = {key: value for key, value in part(given, "labels").items() if key not in OLD_LABELS}
    template = {**template, "metadata": {**given, "labels": labels}}
    pods = read_training_pods(f"{path}.template", template, remarks, entrypoint)
    remarks.drop_set(path, spec, DROPPED)
    sizes = group_size(f"{path}.completions", count, pods.options, remarks)
    if count > 1 and pods.launch.by == "python" and not any(map(has_group, _containers(spec))):
        remarks.add(
            f"{path}.completions",
            f"nothing tells the {count} pods of each other, unless the script does. Now they form "
            "one group",
        )
    return pods, sizes


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
    # Never and OnFailure both start failed pods again.
    backoff = f"{path}.backoffLimit", backoff_limit
    policy = failure_policy(f"{path}.template.spec.restartPolicy", "", backoff, pods, remarks)
    given = part(spec, "podFailurePolicy").get("rules") or ()
    rules = failure_rules(f"{path}.podFailurePolicy.rules", given, pods.container, remarks)
    if any("onExitCodes" in rule for rule in rules):
        say_exit_codes(f"{path}.podFailurePolicy", pods.launch, remarks)
    if rules:
        policy["rules"] = rules
    return {"failurePolicy": policy}


def subdomain_of(manifest: Mapping[str, Any]) -> str:
    return str(part(manifest, "spec", "template", "spec").get("subdomain") or "")


def _containers(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return part(spec, "template", "spec").get("containers") or ()
