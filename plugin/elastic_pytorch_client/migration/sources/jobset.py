"""JobSet (jobset.x-k8s.io/v1alpha2) of which one replicated job trains."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_client.migration.job_metadata import drop_manager, migrate_metadata, suspension
from elastic_pytorch_client.migration.job_size import group_size
from elastic_pytorch_client.migration.remarks import CannotMigrate, Remarks
from elastic_pytorch_client.migration.sources.job import (
    job_trains,
    pods_of,
    policy_of,
    read_pods,
    say_alone,
)
from elastic_pytorch_client.migration.sources.training_pods import (
    claims_of_policies,
    make_job,
    processes_of,
    say_hosts,
    set_fields,
    shared_claims,
)

Manifest = dict[str, Any]

API_GROUP, KIND = "jobset.x-k8s.io", "JobSet"
OWN_CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"
REPLICATED = "spec.replicatedJobs"
PLACEMENT = "alpha.jobset.sigs.k8s.io/"
JOB_BACKOFF_LIMIT = 6  # Kubernetes' default
MAX_BACKOFF_LIMIT = 2**31 - 1


def migrate_jobset(
    manifest: Mapping[str, Any], remarks: Remarks, entrypoint: Sequence[str]
) -> list[Mapping[str, Any]]:
    spec = manifest.get("spec") or {}
    jobs = spec.get("replicatedJobs") or ()
    training = [job for job in jobs if job_trains(_job_spec(job), entrypoint)]
    if not training:
        remarks.add(
            REPLICATED,
            "is passed on as it is: no job in it starts torchrun, has MASTER_ADDR, or runs a "
            "script named after training",
        )
        return [manifest]
    if len(training) > 1:
        names = ", ".join(str(job.get("name")) for job in training)
        raise CannotMigrate(
            REPLICATED,
            f"{names} train, and a job has pods of one kind: write a JobSet for each of them",
        )
    [job] = training
    path = f"{REPLICATED}[{job.get('name')}].template.spec"
    job_spec = _job_spec(job)
    copies = job.get("replicas")
    count = pods_of(path, job_spec) * (1 if copies is None else max(1, int(copies)))
    pods = read_pods(path, job_spec, remarks, entrypoint)
    sizes = group_size(f"{path}.completions", count, pods.options, remarks)
    say_alone(f"{path}.completions", count, job_spec, pods, remarks)
    metadata = migrate_metadata(manifest, remarks)
    _drop_placement(metadata, remarks)
    hosts = rf"{re.escape(str(job.get('name')))}-[0-9]+-[0-9]+\b[-a-z0-9.]*"
    say_hosts(REPLICATED, metadata.get("name"), hosts, pods, remarks)
    _say_what_is_dropped(spec, job, remarks)
    drop_manager("spec.managedBy", spec.get("managedBy"), OWN_CONTROLLER, remarks)
    migrated = make_job(
        metadata,
        pods,
        sizes,
        processes_of(pods, remarks),
        suspension("spec.suspend", spec.get("suspend"), metadata, remarks),
        set_fields(spec, "ttlSecondsAfterFinished"),
        set_fields(job_spec, "activeDeadlineSeconds"),
        policy_of(path, job_spec, _backoff_limit(spec, job_spec), pods, remarks),
        shared_claims(claims_of_policies("spec", spec), pods, remarks),
    )
    return [migrated]


def _job_spec(job: Mapping[str, Any]) -> Mapping[str, Any]:
    return (job.get("template") or {}).get("spec") or {}


def _backoff_limit(spec: Mapping[str, Any], job_spec: Mapping[str, Any]) -> int | None:
    """How many failures the JobSet survives: its Job's limit, for each attempt."""
    restarts = (spec.get("failurePolicy") or {}).get("maxRestarts")
    limit = job_spec.get("backoffLimit")
    if restarts is None:
        return limit
    return min(
        (int(restarts) + 1) * (int(JOB_BACKOFF_LIMIT if limit is None else limit) + 1) - 1,
        MAX_BACKOFF_LIMIT,
    )


def _drop_placement(metadata: Manifest, remarks: Remarks) -> None:
    annotations = metadata.get("annotations") or {}
    for key in [key for key in annotations if key.startswith(PLACEMENT)]:
        del annotations[key]
        remarks.add(
            f"metadata.annotations[{key}]",
            "is dropped: use an affinity or topologySpreadConstraints in spec.template",
        )
    if not annotations:
        metadata.pop("annotations", None)


def _say_what_is_dropped(
    spec: Mapping[str, Any], training: Mapping[str, Any], remarks: Remarks
) -> None:
    for job in spec.get("replicatedJobs") or ():
        if job is not training:
            text = (
                "is dropped, for it does not train. Run it as a Job of its own, before the "
                "training or beside it"
            )
            remarks.add(f"{REPLICATED}[{job.get('name')}]", text)
    if training.get("dependsOn"):
        remarks.add(
            f"{REPLICATED}[{training.get('name')}].dependsOn",
            "is dropped: create the job once what it depends on is done",
        )
    _say_rules(spec, _job_spec(training), remarks)
    if (spec.get("successPolicy") or {}).get("operator") == "Any" and int(
        training.get("replicas") or 1
    ) > 1:
        remarks.add(
            "spec.successPolicy",
            "is dropped: the job is complete when all its workers have succeeded",
        )
    for field, text in (
        ("startupPolicy", "is dropped: all workers start at once"),
        ("coordinator", "is dropped: in the training processes, MASTER_ADDR is rank 0's address"),
    ):
        if spec.get(field):
            remarks.add(f"spec.{field}", text)


def _say_rules(spec: Mapping[str, Any], job_spec: Mapping[str, Any], remarks: Remarks) -> None:
    """Rules name reasons of failed Jobs; the one for PodFailurePolicy is as here."""
    policy = spec.get("failurePolicy") or {}
    rules = policy.get("rules") or ()
    own = [
        rule
        for rule in rules
        if (rule.get("action"), rule.get("onJobFailureReasons"))
        == ("FailJobSet", ["PodFailurePolicy"])
    ]
    if len(own) < len(rules):
        text = (
            "are dropped: failurePolicy.rules of the job match exit codes and conditions of "
            "pods, not reasons of Jobs"
        )
        remarks.add("spec.failurePolicy.rules", text)
    if job_spec.get("podFailurePolicy") and policy.get("maxRestarts") and not own:
        text = (
            "with FailJob, the JobSet started all Jobs again, up to maxRestarts times. Here "
            "FailJob fails the job"
        )
        remarks.add(f"{REPLICATED}.podFailurePolicy", text)
