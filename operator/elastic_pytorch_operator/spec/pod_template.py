"""Checks the form of those parts of a pod template that the operator touches, and adds tolerations; the API server checks the rest."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from elastic_pytorch_operator.api import names


class Form(NamedTuple):
    """What a part has to be.

    Attributes:
        words: for people.
        fields: of the object, or of each object in the list; others may be anything, and each of them may be absent.
    """

    words: str
    fields: Mapping[str, "Form"] = MappingProxyType({})


def an_object(**fields: Form) -> Form:
    """An object with these fields."""
    return Form("an object", fields)


def objects(**fields: Form) -> Form:
    """A list of objects with these fields."""
    return Form("a list of objects", fields)


TEXT, OBJECT, LIST = Form("a string"), an_object(), Form("a list")
RESOURCES = an_object(requests=OBJECT, limits=OBJECT)
CONTAINERS = objects(name=TEXT, env=objects(), volumeMounts=objects(), resources=RESOURCES)
REQUIREMENTS = objects(key=TEXT, values=LIST)
NODE_AFFINITY = an_object(
    requiredDuringSchedulingIgnoredDuringExecution=an_object(
        nodeSelectorTerms=objects(matchExpressions=REQUIREMENTS, matchFields=REQUIREMENTS)
    ),
    preferredDuringSchedulingIgnoredDuringExecution=LIST,
)
# What is read or added to when a pod, its PodGroup or its Workload is made, or a node is looked for.
TEMPLATE = an_object(
    metadata=an_object(labels=OBJECT, annotations=OBJECT),
    spec=an_object(
        volumes=objects(name=TEXT),
        nodeSelector=OBJECT,
        priorityClassName=TEXT,
        tolerations=objects(),
        schedulingGates=LIST,
        securityContext=OBJECT,
        overhead=OBJECT,
        resources=RESOURCES,
        affinity=an_object(nodeAffinity=NODE_AFFINITY),
        initContainers=CONTAINERS,
        containers=CONTAINERS,
    ),
)
# Kubernetes restarts a container in place by these, from 1.34 on (KEP-5307). The operator has replaced its pod by then: two would train
# as one worker.
RESTARTS = ("restartPolicy", "restartPolicyRules")
NO_RESTARTS = "may not be set for the container that trains: the operator replaces its pod, as spec.failurePolicy says"
NO_DEADLINE = (
    "may not be set: the kubelet would end each worker after that time; spec.activeDeadlineSeconds limits the time of the job"
)
MAX_GRACE_SECONDS = 10**7  # 115 days; agents accept no more
# Each is compared with the taints or the labels of many nodes whenever a pod is planned.
MAX_TOLERATIONS = 200
MAX_REQUIREMENTS = 100


def find_problem(template: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first part of a template that no pod can be made from: its path below the template, and what is wrong with it."""
    spec = template.get("spec")
    if not isinstance(spec, Mapping):
        return "spec", f"must be {OBJECT.words}"
    return (
        _find_wrong(template, TEMPLATE, "")
        or _find_too_many(spec)
        or _find_wrong_grace(spec)
        or (("spec.activeDeadlineSeconds", NO_DEADLINE) if spec.get("activeDeadlineSeconds") is not None else None)
        or _find_wrong_container(spec.get("containers") or ())
    )


def with_tolerations(template: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A template with the tolerations that it does not have itself; the same object if it has all of them."""
    own = template["spec"].get("tolerations") or []
    missing = [toleration for toleration in tolerations if toleration not in own]
    if not missing:
        return template
    return {**template, "spec": {**template["spec"], "tolerations": [*own, *missing]}}


def _find_wrong(value: Any, form: Form, path: str) -> tuple[str, str] | None:
    if not _has_form(value, form):
        return path, f"must be {form.words}"
    each = enumerate(value) if isinstance(value, list) else [(None, value)]
    for number, item in each if form.fields else ():
        above = path if number is None else f"{path}[{number}]"
        for name, inner in form.fields.items():
            part = item.get(name)
            if part is not None and (wrong := _find_wrong(part, inner, f"{above}.{name}" if above else name)):
                return wrong
    return None


def _has_form(value: object, form: Form) -> bool:
    if form is TEXT:
        return isinstance(value, str)
    if form.words == OBJECT.words:
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    return isinstance(value, list) and (form is LIST or all(isinstance(item, Mapping) for item in value))


def _find_too_many(spec: Mapping[str, Any]) -> tuple[str, str] | None:
    if len(spec.get("tolerations") or ()) > MAX_TOLERATIONS:
        return "spec.tolerations", f"must have at most {MAX_TOLERATIONS} entries"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    if (
        sum(1 + sum(len(term.get(kind) or ()) for kind in ("matchExpressions", "matchFields")) for term in terms)
        > MAX_REQUIREMENTS
    ):
        path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        return path, f"must have at most {MAX_REQUIREMENTS} entries and requirements in all"
    return None


def _find_wrong_grace(spec: Mapping[str, Any]) -> tuple[str, str] | None:
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is None or (isinstance(grace, int) and not isinstance(grace, bool) and 0 <= grace <= MAX_GRACE_SECONDS):
        return None
    return "spec.terminationGracePeriodSeconds", f"must be a whole number of seconds from 0 to {MAX_GRACE_SECONDS}"


def _find_wrong_container(containers: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    for number, container in enumerate(containers):
        path = f"spec.containers[{number}]"
        for place, variable in enumerate(container.get("env") or ()):
            if not isinstance(variable.get("name"), str):
                return f"{path}.env[{place}].name", "is missing: each variable needs one"
        if len(containers) == 1 or container.get("name") == names.TRAINING_CONTAINER:
            for field in RESTARTS:
                if container.get(field) is not None:
                    return f"{path}.{field}", NO_RESTARTS
    return None
