"""JobSet (jobset.x-k8s.io/v1alpha2) of which one replicated job trains."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_client.migration.job_metadata import migrate_metadata, run_fields
from elastic_pytorch_client.migration.remarks import Remarks
from elastic_pytorch_client.migration.sources.job import (
    PASSED,
    job_trains,
    leave_out_others,
    policy_of,
    read_group,
)
from elastic_pytorch_client.migration.sources.training_pods import (
    claims_of_policies,
    make_job,
    part,
    processes_of,
    replicas_of,
    say_hosts,
    shared_claims,
)

API_GROUP, KIND = "jobset.x-k8s.io", "JobSet"
REPLICATED = "spec.replicatedJobs"
JOB_BACKOFF_LIMIT = 6  # Kubernetes' default
MAX_BACKOFF_LIMIT = 2**31 - 1
DROPPED = {
    "startupPolicy": "all workers start at once",
    "coordinator": "in the training processes, MASTER_ADDR is rank 0's address",
}


def migrate_jobset(
    manifest: Mapping[str, Any], remarks: Remarks, entrypoint: Sequence[str]
) -> list[Mapping[str, Any]]:
    spec = part(manifest, "spec")
    jobs = spec.get("replicatedJobs") or ()
    training = [job for job in jobs if job_trains(part(job, "template", "spec"), entrypoint)]
    if not training:
        remarks.add(REPLICATED, PASSED)
        return [manifest]
    leave_out_others(REPLICATED, jobs, training, remarks)
    [job] = training
    path = f"{REPLICATED}[{job.get('name')}].template.spec"
    job_spec, copies = part(job, "template", "spec"), max(1, replicas_of(job))
    pods, sizes = read_group(path, job_spec, copies, remarks, entrypoint)
    metadata = migrate_metadata(manifest, remarks)
    hosts = rf"{re.escape(str(job.get('name')))}-[0-9]+-[0-9]+\b[-a-z0-9.]*"
    say_hosts(REPLICATED, metadata, hosts, pods, remarks)
    _say_what_is_dropped(spec, job, remarks)
    fields = run_fields("spec", spec, metadata, remarks)
    migrated = make_job(
        metadata,
        pods,
        sizes,
        processes_of(pods, remarks),
        {**fields, "activeDeadlineSeconds": job_spec.get("activeDeadlineSeconds")},
        policy_of(path, job_spec, _backoff_limit(spec, job_spec), pods, remarks),
        shared_claims(claims_of_policies("spec", spec), pods, remarks),
    )
    return [migrated]


def _backoff_limit(spec: Mapping[str, Any], job_spec: Mapping[str, Any]) -> int | None:
    """How many failures the JobSet survives: its Job's limit, for each attempt."""
    restarts = part(spec, "failurePolicy").get("maxRestarts")
    limit = job_spec.get("backoffLimit")
    if restarts is None:
        return limit
    return min(
        (int(restarts) + 1) * (int(JOB_BACKOFF_LIMIT if limit is None else limit) + 1) - 1,
        MAX_BACKOFF_LIMIT,
    )


def _say_what_is_dropped(
    spec: Mapping[str, Any], training: Mapping[str, Any], remarks: Remarks
) -> None:
    text = "create the job once what it depends on is done"
    remarks.drop_set(f"{REPLICATED}[{training.get('name')}]", training, {"dependsOn": text})
    _say_rules(spec, part(training, "template", "spec"), remarks)
    if part(spec, "successPolicy").get("operator") == "Any" and replicas_of(training) > 1:
        remarks.drop(
            "spec.successPolicy",
            "the job is complete when all its workers have succeeded",
        )
    remarks.drop_set("spec", spec, DROPPED)


def _say_rules(spec: Mapping[str, Any], job_spec: Mapping[str, Any], remarks: Remarks) -> None:
    """Rules name reasons of failed Jobs; the one for PodFailurePolicy is as here."""
    policy = part(spec, "failurePolicy")
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
