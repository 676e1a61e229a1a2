from dataclasses import replace
from typing import Any

from elastic_pytorch_operator.api.conditions import Condition
from elastic_pytorch_operator.planning.reporting.ignored_fields import (
    explain_ignored_fields,
    with_ignored_fields,
)
from elastic_pytorch_operator.spec.job import Job, JobKey

from tests.operator.builders import a_job
from tests.situations import situations

ENV = [
    {"name": "MASTER_ADDR", "value": "other"},
    {"name": "LR", "value": "1"},
    {"name": "RANK"},
    {"name": "PET_NNODES"},
]


def job_with(
    pod: dict[str, Any] | None = None, *, spec: dict[str, Any] | None = None, **container: Any
) -> Job:
    containers = [{"name": "proxy", "env": ENV}, {"name": "pytorch", "image": "torch", **container}]
    return a_job(template={"spec": {"containers": containers, **(pod or {})}}, **(spec or {}))


@situations(
    "job, words",
    {
        "nothing is ignored": (job_with(env=[{"name": "PET_NNODES", "value": "9"}]), ""),
        "variables of another launcher": (
            job_with(env=ENV),
            "MASTER_ADDR, RANK in env of spec.template, which the agent sets for each process",
        ),
        "the same in a command": (
            job_with(env=ENV[:1], command=["torchrun", "train.py"]),
            "MASTER_ADDR in env of spec.template, which the agent sets for each process",
        ),
        "stock torchrun reads its own": (
            job_with(env=ENV, spec={"rendezvous": {"backend": "c10d"}}),
            "",
        ),
        "what a worker's pod has anyway": (
            job_with({"restartPolicy": "Never", "hostname": ""}),
            "",
        ),
        "what the operator sets": (
            job_with(
                {"restartPolicy": "OnFailure", "hostname": "a"},
                spec={"rendezvous": {"backend": "c10d"}},
            ),
            "hostname, restartPolicy in spec.template.spec, which the operator sets for each pod",
        ),
        "no set-up without the agent as the command": (
            job_with(command=["torchrun", "train.py"], spec={"prepare": {}}),
            "spec.prepare, as the container's own command starts its script with the group",
        ),
        "several": (
            job_with({"subdomain": "a"}, env=ENV[:1]),
            "MASTER_ADDR in env of spec.template, "
            "which the agent sets for each process; "
            "subdomain in spec.template.spec, which the operator sets for each pod",
        ),
        "no template is known": (
            Job(JobKey("default", "lm"), "uid", 1, wanted=0, minimum=0, maximum=0),
            "",
        ),
    },
)
def test_each_is_named_with_the_remedy(job: Job, words: str) -> None:
    remedy = "to be removed, as it is ignored: "
    assert explain_ignored_fields(job) == (f"{remedy}{words}" if words else "")


def test_condition_degraded_names_them_without_being_true_for_it() -> None:
    job = job_with(env=ENV[:1])
    words = explain_ignored_fields(job)
    calm = Condition("Degraded", False, "AtWantedSize", "all 3 wanted workers train")
    named = replace(calm, reason="FieldsIgnored", message=f"all 3 wanted workers train; {words}")
    assert with_ignored_fields(calm, job) == named
    assert with_ignored_fields(calm, a_job()) == calm
    small = Condition("Degraded", True, "WorkersMissing", "trains with 2 of 3 workers")
    assert with_ignored_fields(small, job) == replace(small, message=f"{small.message}; {words}")
