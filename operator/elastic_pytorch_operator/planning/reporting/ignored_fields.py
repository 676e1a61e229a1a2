"""What a valid spec asks for and the operator ignores."""

from dataclasses import replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import Condition
from elastic_pytorch_operator.spec.job import Job, training_container
from elastic_pytorch_operator.spec.pod_template import SET_FOR_PODS, is_set_for_processes


def explain_ignored_fields(job: Job) -> str:
    if not job.template:
        return ""
    container, spec = training_container(job.template), job.template["spec"]
    env = (each["name"] for each in container.get("env") or ())
    variables = dict.fromkeys(name for name in env if is_set_for_processes(name))
    fields = [
        field for field, value in SET_FOR_PODS.items() if spec.get(field) not in (None, value)
    ]
    found = []
    if variables and not job.stock:
        where = "in env of spec.template, which the agent sets for each process"
        found.append(f"{', '.join(variables)} {where}")
    if fields:
        where = "in spec.template.spec, which the operator sets for each pod"
        found.append(f"{', '.join(fields)} {where}")
    if job.prepare_seconds and container.get("command"):
        found.append(
            "spec.prepare, as the container's own command starts its script with the group"
        )
    return f"to be removed, as it is ignored: {'; '.join(found)}" if found else ""


def with_ignored_fields(degraded: Condition, job: Job) -> Condition:
    words = explain_ignored_fields(job)
    if not words:
        return degraded
    reason = names.FIELDS_IGNORED if degraded.true is False else degraded.reason
    return replace(degraded, reason=reason, message=f"{degraded.message}; {words}")
