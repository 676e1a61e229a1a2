"""`spec.rendezvous`: who forms the group, and what a job may not set if that is stock torchrun."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.spec.fields import InvalidJob, read_integer, read_object

PATH = "spec.rendezvous"
DEFAULT_PORT = 29500
LEAST_PORT = 1024
# What only the operator's own rendezvous, and its agent, carry out.
OWN = (
    "progressDeadlineSeconds",
    "saveDeadlineSeconds",
    "prepare",
    "spares",
    "unitReplicas",
    "scheduling.rankTopologyKey",
    "scheduling.scheduleTimeoutSeconds",
    "resizePolicy.allowedReplicas",
    "resizePolicy.checkpointPath",
    "resizePolicy.minSecondsBetweenGrowths",
)


class Rendezvous(NamedTuple):
    """How the workers of a job meet.

    Attributes:
        backend: who decides on the group: the operator, or stock torchrun over c10d or etcd-v2.
        endpoint: of the user's etcd, `host:port`.
        port: of the store.
    """

    backend: str
    endpoint: str
    port: int


def read_rendezvous(spec: Mapping[str, Any]) -> Rendezvous:
    """Reads `rendezvous`.

    Raises:
        InvalidJob: a field is wrong, or the job sets what stock torchrun does not offer.
    """
    fields = read_object(spec, "rendezvous")
    backend, endpoint = str(fields.get("backend") or names.BACKEND_OPERATOR), str(fields.get("endpoint") or "")
    if backend not in (names.BACKEND_OPERATOR, names.BACKEND_C10D, names.BACKEND_ETCD):
        raise InvalidJob(f"{PATH}.backend", f"must be operator, c10d or etcd-v2, not {backend}")
    if (backend == names.BACKEND_ETCD) != bool(endpoint):
        missing = "must be set with backend etcd-v2: the host and port of your etcd"
        problem = "may not be set unless backend is etcd-v2: the operator provides all others" if endpoint else missing
        raise InvalidJob(f"{PATH}.endpoint", problem)
    if backend != names.BACKEND_OPERATOR and (found := _find_own(spec)):
        raise InvalidJob(f"{PATH}.backend", f"must be operator if {found} is set: stock torchrun does not offer it")
    port = read_integer(fields, "port", DEFAULT_PORT, PATH, least=LEAST_PORT) or DEFAULT_PORT
    return Rendezvous(backend, endpoint, port)


def _find_own(spec: Mapping[str, Any]) -> str | None:
    for path in OWN:
        parent, _, name = path.rpartition(".")
        value = (read_object(spec, parent) if parent else spec).get(name)
        if value not in (None, 0, "", []) and (path, value) != ("unitReplicas", 1):
            return path
    rules = read_object(spec, "failurePolicy").get("rules")
    asked = isinstance(rules, list) and any(
        isinstance(rule, Mapping) and rule.get("action") == "RestartGroup" for rule in rules
    )
    return "failurePolicy.rules[].action RestartGroup" if asked else None
