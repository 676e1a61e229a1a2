"""Checks the parts of a pod template that the operator touches, and adds tolerations.

The API server checks the rest: a whole PodTemplateSpec would make the CRD 30 times as long.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.schema.validator import Schema, compiled

PATH = "spec.template"


def an_object(**fields: Schema) -> Schema:
    return {"type": "object", "properties": fields}


def a_list(items: Schema, **bounds: object) -> Schema:
    return {"type": "array", "items": items, **bounds}


# Each is compared with the taints or the labels of many nodes whenever a pod is planned.
MAX_TOLERATIONS = 200
MAX_REQUIREMENTS = 100

# What a worker's pod has whatever its template says; "": what the operator chooses.
SET_FOR_PODS: Mapping[str, str] = {"hostname": "", "subdomain": "", "restartPolicy": "Never"}
# What torchrun and other launchers set for each process of a group.
SET_FOR_PROCESSES = re.compile(
    r"(GROUP_|LOCAL_|NODE_|ROLE_)?RANK|((GROUP|LOCAL|ROLE)_)?WORLD_SIZE|ROLE_NAME|MASTER_(ADDR|PORT)"
    r"|TORCHELASTIC_(ERROR_FILE|MAX_RESTARTS|RESTART_COUNT|RUN_ID|USE_AGENT_STORE)"
)

TEXT: Schema = {"type": "string"}
OBJECT, LIST = an_object(), a_list({})
OBJECTS, NAMED = a_list(OBJECT), an_object(name=TEXT)
RESOURCES = an_object(requests=OBJECT, limits=OBJECT)
CONTAINERS = a_list(
    an_object(
        name=TEXT,
        env=a_list({**NAMED, "required": ["name"]}),
        volumeMounts=OBJECTS,
        resources=RESOURCES,
    )
)
REQUIREMENTS = a_list(an_object(key=TEXT, values=LIST))
NODE_AFFINITY = an_object(
    requiredDuringSchedulingIgnoredDuringExecution=an_object(
        nodeSelectorTerms=a_list(an_object(matchExpressions=REQUIREMENTS, matchFields=REQUIREMENTS))
    ),
    preferredDuringSchedulingIgnoredDuringExecution=LIST,
)
# What the operator reads or changes for a pod, its PodGroup or its Workload, or to find a node.
TEMPLATE = an_object(
    metadata=an_object(labels=OBJECT, annotations=OBJECT),
    spec=an_object(
        volumes=a_list(NAMED),
        nodeSelector=OBJECT,
        priorityClassName=TEXT,
        tolerations=a_list(OBJECT, maxItems=MAX_TOLERATIONS),
        schedulingGates=LIST,
        securityContext=OBJECT,
        overhead=OBJECT,
        resources=RESOURCES,
        affinity=an_object(nodeAffinity=NODE_AFFINITY),
        initContainers=CONTAINERS,
        containers=CONTAINERS,
        # At most 115 days: agents accept no more.
        terminationGracePeriodSeconds={"type": "integer", "minimum": 0, "maximum": 10**7},
    ),
)
_check = compiled(TEMPLATE)


def is_set_for_processes(variable: str) -> bool:
    return SET_FOR_PROCESSES.fullmatch(variable) is not None


def check_template(template: Mapping[str, Any]) -> None:
    """Refuses a template that the schema admits but no pod can be made from."""
    _check(template, PATH, False)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = (template["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(required) or {}).get("nodeSelectorTerms") or ()
    kinds = ("matchExpressions", "matchFields")
    count = sum(1 + sum(len(term.get(kind) or ()) for kind in kinds) for term in terms)
    if count > MAX_REQUIREMENTS:
        raise InvalidJob(
            f"{PATH}.spec.affinity.nodeAffinity.{required}.nodeSelectorTerms",
            f"must have at most {MAX_REQUIREMENTS} entries and requirements in all",
        )


def with_tolerations(
    template: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    own = template["spec"].get("tolerations") or []
    missing = [toleration for toleration in tolerations if toleration not in own]
    if not missing:
        return template
    return {**template, "spec": {**template["spec"], "tolerations": [*own, *missing]}}
