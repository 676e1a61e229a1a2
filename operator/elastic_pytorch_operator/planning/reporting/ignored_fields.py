"""What a valid spec asks for and the operator ignores."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.conditions import Condition
from elastic_pytorch_operator.spec.job import Job, training_container
from elastic_pytorch_operator.spec.pod_template import SET_FOR_PODS, is_set_for_processes


def _variables(job: Job) -> str:
    env = training_container(job.template).get("env") or ()
    found = dict.fromkeys(each["name"] for each in env if is_set_for_processes(each["name"]))
    if not found or job.stock:
        return ""
    where = "in env of spec.template, which the agent sets for each process"
    return f"{', '.join(found)} {where}"


def _pod_fields(job: Job) -> str:
    spec = job.template["spec"]
    found = [field for field, value in SET_FOR_PODS.items() if spec.get(field) not in (None, value)]
    where = "in spec.template.spec, which the operator sets for each pod"
    return f"{', '.join(found)} {where}" if found else ""


def _set_up(job: Job) -> str:
    if not job.prepare_seconds or not training_container(job.template).get("command"):
        return ""
    return "spec.prepare, as the container's own command starts its script with the group"


IGNORED: tuple[Callable[[Job], str], ...] = (_variables, _pod_fields, _set_up)


def explain_ignored_fields(job: Job) -> str:
    found = [words for ignored in IGNORED if job.template and (words := ignored(job))]
    return f"to be removed, as it is ignored: {'; '.join(found)}" if found else ""


def with_ignored_fields(conditions: Sequence[Condition], job: Job) -> list[Condition]:
    words = explain_ignored_fields(job)
    if not words:
        return list(conditions)
    return [_naming(each, words) if each.type == names.DEGRADED else each for each in conditions]


def _naming(degraded: Condition, words: str) -> Condition:
    reason = names.FIELDS_IGNORED if degraded.true is False else degraded.reason
    return replace(degraded, reason=reason, message=f"{degraded.message}; {words}")
