"""Checks the form of those parts of a pod template that the operator touches; the API server checks the rest."""

from collections.abc import Mapping
from typing import Any

OBJECT, LIST = "an object", "a list of objects"
# Below the template, and below each of its containers: what is read or added to when a worker pod is made.
TEMPLATE = {
    "metadata": OBJECT,
    "metadata.labels": OBJECT,
    "metadata.annotations": OBJECT,
    "spec": OBJECT,
    "spec.volumes": LIST,
    "spec.initContainers": LIST,
    "spec.tolerations": LIST,
    "spec.affinity": OBJECT,
    "spec.affinity.nodeAffinity": OBJECT,
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution": OBJECT,
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms": LIST,
    "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution": LIST,
    "spec.containers": LIST,
}
CONTAINER = {"env": LIST, "volumeMounts": LIST}
GRACE = "spec.terminationGracePeriodSeconds"


def find_problem(template: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first part of a template that no pod can be made from: its path below the template, and what is wrong with it."""
    for path, form in TEMPLATE.items():
        if not _has_form(_find(template, path), form):
            return path, f"must be {form}"
    for number, container in enumerate(template["spec"].get("containers") or ()):
        for field, form in CONTAINER.items():
            if not _has_form(container.get(field), form):
                return f"spec.containers[{number}].{field}", f"must be {form}"
        for place, variable in enumerate(container.get("env") or ()):
            if not isinstance(variable.get("name"), str):
                return f"spec.containers[{number}].env[{place}].name", "is missing: each variable needs one"
    grace = _find(template, GRACE)
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool) or grace < 0):
        return GRACE, "must be a whole number of seconds"
    return None


def _find(template: Mapping[str, Any], path: str) -> object:
    found: object = template
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _has_form(value: object, form: str) -> bool:
    if value is None:
        return True
    if form == OBJECT:
        return isinstance(value, Mapping)
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)
