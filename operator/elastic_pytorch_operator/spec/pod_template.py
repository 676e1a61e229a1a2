"""Checks the form of those parts of a pod template that the operator touches; the API server checks the rest."""

from collections.abc import Iterator, Mapping
from typing import Any

from elastic_pytorch_operator.api import names

TEXT, OBJECT, LIST, OBJECTS = "a string", "an object", "a list", "a list of objects"
_AFFINITY = "spec.affinity.nodeAffinity"
_REQUIRED = f"{_AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution"
# What is read or added to when a pod, its PodGroup or its Workload is made, or a node is looked for. `[]`: each item of a list. What
# holds a part stands before it.
FORMS = {
    "metadata": OBJECT,
    "metadata.labels": OBJECT,
    "metadata.annotations": OBJECT,
    "spec.volumes": OBJECTS,
    "spec.volumes[].name": TEXT,
    "spec.nodeSelector": OBJECT,
    "spec.priorityClassName": TEXT,
    "spec.tolerations": OBJECTS,
    "spec.schedulingGates": LIST,
    "spec.securityContext": OBJECT,
    "spec.overhead": OBJECT,
    "spec.resources": OBJECT,
    "spec.resources.requests": OBJECT,
    "spec.resources.limits": OBJECT,
    "spec.affinity": OBJECT,
    _AFFINITY: OBJECT,
    f"{_AFFINITY}.preferredDuringSchedulingIgnoredDuringExecution": LIST,
    _REQUIRED: OBJECT,
    f"{_REQUIRED}.nodeSelectorTerms": OBJECTS,
    **{
        f"{_REQUIRED}.nodeSelectorTerms[].{field}{part}": form
        for field in ("matchExpressions", "matchFields")
        for part, form in {"": OBJECTS, "[].key": TEXT, "[].values": LIST}.items()
    },
    **{
        f"spec.{kind}{part}": form
        for kind in ("initContainers", "containers")
        for part, form in {
            "": OBJECTS,
            "[].name": TEXT,
            "[].env": OBJECTS,
            "[].volumeMounts": OBJECTS,
            "[].resources": OBJECT,
            "[].resources.requests": OBJECT,
            "[].resources.limits": OBJECT,
        }.items()
    },
}
VARIABLES = "spec.containers[].env[].name"
GRACE = "spec.terminationGracePeriodSeconds"
# Kubernetes restarts a container in place by these, from 1.34 on (KEP-5307). The operator has replaced its pod by then: two would train
# as one worker.
RESTARTS = ("restartPolicy", "restartPolicyRules")
NO_RESTARTS = "may not be set for the container that trains: the operator replaces its pod, as spec.failurePolicy says"
MAX_GRACE_SECONDS = 10**7  # 115 days; agents accept no more


def find_problem(template: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first part of a template that no pod can be made from: its path below the template, and what is wrong with it."""
    if not isinstance(template.get("spec"), Mapping):
        return "spec", f"must be {OBJECT}"
    for path, form in FORMS.items():
        for place, value in _values(template, path):
            if value is not None and not _has_form(value, form):
                return place, f"must be {form}"
    for place, value in _values(template, VARIABLES):
        if not isinstance(value, str):
            return place, "is missing: each variable needs one"
    ((_, grace),) = _values(template, GRACE)
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool) or not 0 <= grace <= MAX_GRACE_SECONDS):
        return GRACE, f"must be a whole number of seconds from 0 to {MAX_GRACE_SECONDS}"
    containers = template["spec"].get("containers") or ()
    for number, container in enumerate(containers):
        if len(containers) == 1 or container.get("name") == names.TRAINING_CONTAINER:
            for field in RESTARTS:
                if container.get(field) is not None:
                    return f"spec.containers[{number}].{field}", NO_RESTARTS
    return None


def _values(found: object, path: str, above: str = "") -> Iterator[tuple[str, object]]:
    """What is at a path, each value with its own path; None where there is nothing."""
    head, _, rest = path.partition(".")
    name = head.removesuffix("[]")
    value, place = found.get(name) if isinstance(found, Mapping) else None, f"{above}{name}"
    each = [(place, value)]
    if name != head:
        each = [(f"{place}[{number}]", item) for number, item in enumerate(value if isinstance(value, list) else ())]
    for at, item in each:
        if rest:
            yield from _values(item, rest, f"{at}.")
        else:
            yield at, item


def _has_form(value: object, form: str) -> bool:
    if form == TEXT:
        return isinstance(value, str)
    if form == OBJECT:
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    return isinstance(value, list) and (form == LIST or all(isinstance(item, Mapping) for item in value))
