"""The CRD's rules in CEL, each beside its twin in Python, for where no API server judges them.

A twin takes CEL's `self`, whose types, bounds and required fields are right; null means absent. It
returns None for what the rule admits, and otherwise what the message shows of it. Rules that
compare a job with its past have no twin.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from operator import gt, lt
from typing import Any

from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.numbers import parse_quantity
from elastic_pytorch_operator.spec.resources import is_process_count

Broken = tuple[object, ...] | None
Twin = Callable[[Any], Broken]

MAX_NAME_LENGTH = 45  # `{name}-worker-{index}` must be a host name of at most 63 characters
# Only for the operator's own rendezvous, and its agent.
OWN = (
    *("progressDeadlineSeconds", "saveDeadlineSeconds", "prepare", "spares", "unitReplicas"),
    *("scheduling.rankTopologyKey", "scheduling.scheduleTimeoutSeconds"),
    *("resizePolicy.allowedReplicas", "resizePolicy.checkpointPath"),
    "resizePolicy.minSecondsBetweenGrowths",
)
# Values that say as much as nothing.
NOTHING = {
    "spares": 0,
    "unitReplicas": 1,
    "resizePolicy.minSecondsBetweenGrowths": 0,
    "resizePolicy.allowedReplicas": [],
}
_GROUP_OPTIONS = (
    *("--nnodes", "--node-rank", "--node_rank", "--standalone"),
    *("--rdzv-", "--rdzv_", "--master-", "--master_"),
)
_OPTIONS_READ = 6  # CEL cannot bound the cost of reading all
_OWN = f"{names.GROUP}/"
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def at(it: Mapping[str, Any], path: str) -> Any:
    found: Any = it
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def has(it: Mapping[str, Any], path: str) -> bool:
    return at(it, path) is not None


def _holds(judge: Callable[[Any], object]) -> Twin:
    """A twin whose message shows nothing."""
    return lambda it: None if judge(it) else ()


def _if(fault: object, *shown: object) -> Broken:
    return shown if fault else None


def _first(faults: Iterable[object]) -> Broken:
    return next(((fault,) for fault in faults), None)


def _long_name(it: Any) -> Broken:
    length = len(it["metadata"]["name"])
    return _if(length > MAX_NAME_LENGTH, length)


def _unnamed_beside_a_template(it: Any) -> Broken:
    own = at(it, "template.spec.containers") if at(it, "templateRef") is not None else None
    return _if(own is not None and all(each["name"] != names.TRAINING_CONTAINER for each in own))


def _needs_minimum(field: str) -> Twin:
    return lambda it: _if(at(it, field) not in (None, []) and at(it, "minReplicas") is None)


def _beyond(bound: str, field: str, is_beyond: Callable[[int, int], bool]) -> Twin:
    def twin(it: Any) -> Broken:
        limit, count = at(it, bound), at(it, field)
        return _if(None not in (limit, count) and is_beyond(count, limit), limit, count)

    return twin


def _torn_unit(it: Any) -> Broken:
    # `replicas` of an elastic job is rounded down: any client may scale it.
    sizes = "replicas" if at(it, "minReplicas") is None else "minReplicas"
    counts = [(field, at(it, field) or 0) for field in (sizes, "maxReplicas", "spares")]
    allowed = at(it, "resizePolicy.allowedReplicas") or ()
    counts += [("resizePolicy.allowedReplicas", size) for size in allowed]
    unit = at(it, "unitReplicas") or 1
    return _first(f"{field} {count}" for field, count in counts if count % unit)


def _size_out_of_bounds(it: Any) -> Broken:
    least, most = at(it, "minReplicas"), at(it, "maxReplicas")
    sizes = at(it, "resizePolicy.allowedReplicas") or () if least is not None else ()
    return _first(size for size in sizes if size < least or (most is not None and size > most))


def _below_the_smallest(it: Any) -> Broken:
    count, sizes = at(it, "replicas"), at(it, "resizePolicy.allowedReplicas")
    if count is None or not sizes or count >= min(sizes):
        return None
    return (f"{count}, and the smallest is {min(sizes)}",)


def _not_of_stock_torchrun(it: Any) -> Broken:
    if at(it, "rendezvous.backend") in (None, names.BACKEND_OPERATOR):
        return None
    own = [field for field in OWN if at(it, field) not in (None, NOTHING.get(field))]
    rules = at(it, "failurePolicy.rules") or ()
    return _first([*own, *(rule["action"] for rule in rules if rule["action"] == "RestartGroup")])


def _no_size(it: Any) -> Broken:
    amount = parse_quantity(it)
    return _if(amount is None or amount < 0, it)


def _same_claims(it: Any) -> Broken:
    claims = [claim["metadata"]["name"] for claim in it]
    return _first(name for name in claims if claims.count(name) > 1)


def _training(containers: Any) -> list[Any]:
    """The container that trains, if there is one."""
    name = names.TRAINING_CONTAINER
    return [each for each in containers if len(containers) == 1 or each["name"] == name]


def _group_options(it: Any) -> Broken:
    found = [each.get("args") or () for each in _training(it) if each.get("command") is None]
    read = [takewhile(lambda word: word.startswith("-"), args[:_OPTIONS_READ]) for args in found]
    return _first(word for words in read for word in words if word.startswith(_GROUP_OPTIONS))


def _restarted(it: Any) -> Broken:
    fields = [field for each in _training(it) for field in each if each[field] is not None]
    return _first(field for field in fields if field in ("restartPolicy", "restartPolicyRules"))


TWINS: Mapping[str, Twin] = {
    "size(self.metadata.name) <= 45": _long_name,
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')": _holds(
        lambda it: _NAME.fullmatch(it["metadata"]["name"])
    ),
    "has(self.template) || has(self.templateRef)": _holds(
        lambda it: has(it, "template") or has(it, "templateRef")
    ),
    ("has(self.templateRef) || !has(self.template) || has(self.template.spec.containers)"): _holds(
        lambda it: (
            has(it, "templateRef") or not has(it, "template") or has(it, "template.spec.containers")
        )
    ),
    (
        "!has(self.templateRef) || !has(self.template) || !has(self.template.spec.containers) || "
        "self.template.spec.containers.exists(container, container.name == 'pytorch')"
    ): _unnamed_beside_a_template,
    "has(self.replicas)": _holds(lambda it: has(it, "replicas")),
    "!has(self.maxReplicas) || has(self.minReplicas)": _needs_minimum("maxReplicas"),
    (
        "!has(self.maxReplicas) || !has(self.minReplicas) || self.minReplicas <= self.maxReplicas"
    ): _beyond("minReplicas", "maxReplicas", lt),
    ("!has(self.replicas) || !has(self.minReplicas) || self.minReplicas <= self.replicas"): _beyond(
        "minReplicas", "replicas", lt
    ),
    ("!has(self.replicas) || !has(self.maxReplicas) || self.replicas <= self.maxReplicas"): _beyond(
        "maxReplicas", "replicas", gt
    ),
    (
        "!has(self.unitReplicas) || (!has(self.minReplicas) ? !has(self.replicas) || "
        "self.replicas % self.unitReplicas == 0 : self.minReplicas % self.unitReplicas == 0) && "
        "(!has(self.maxReplicas) || self.maxReplicas % self.unitReplicas == 0) && "
        "(!has(self.spares) || self.spares % self.unitReplicas == 0) && "
        "(!has(self.resizePolicy.allowedReplicas) || self.resizePolicy.allowedReplicas.all(size, "
        "size % self.unitReplicas == 0))"
    ): _torn_unit,
    (
        "!has(self.scheduling.unitTopology) || has(self.unitReplicas) && self.unitReplicas > 1"
    ): _holds(
        lambda it: not at(it, "scheduling.unitTopology") or (at(it, "unitReplicas") or 1) != 1
    ),
    ("!has(self.scheduling.extraWorkers) || has(self.minReplicas)"): _needs_minimum(
        "scheduling.extraWorkers"
    ),
    (
        "!has(self.resizePolicy.allowedReplicas) || "
        "size(self.resizePolicy.allowedReplicas) == 0 || has(self.minReplicas)"
    ): _needs_minimum("resizePolicy.allowedReplicas"),
    (
        "!has(self.resizePolicy.allowedReplicas) || !has(self.minReplicas) || "
        "self.resizePolicy.allowedReplicas.all(size, self.minReplicas <= size && "
        "(!has(self.maxReplicas) || size <= self.maxReplicas))"
    ): _size_out_of_bounds,
    (
        "!has(self.replicas) || !has(self.resizePolicy.allowedReplicas) || "
        "size(self.resizePolicy.allowedReplicas) == 0 || "
        "self.resizePolicy.allowedReplicas.exists(size, size <= self.replicas)"
    ): _below_the_smallest,
    (
        "!has(self.rendezvous.backend) || self.rendezvous.backend == 'operator' || "
        "!has(self.progressDeadlineSeconds) && !has(self.saveDeadlineSeconds) && "
        "!has(self.prepare) && (!has(self.spares) || self.spares == 0) && "
        "(!has(self.unitReplicas) || self.unitReplicas == 1) && "
        "!has(self.scheduling.rankTopologyKey) && !has(self.scheduling.scheduleTimeoutSeconds) && "
        "!has(self.resizePolicy.checkpointPath) && (!has(self.resizePolicy.allowedReplicas) || "
        "size(self.resizePolicy.allowedReplicas) == 0) && "
        "(!has(self.resizePolicy.minSecondsBetweenGrowths) || "
        "self.resizePolicy.minSecondsBetweenGrowths == 0) && (!has(self.failurePolicy.rules) || "
        "self.failurePolicy.rules.all(r, r.action != 'RestartGroup'))"
    ): _not_of_stock_torchrun,
    (
        "type(self) == int ? self >= 1 && self <= 1024 : self in ['auto', 'cpu', 'gpu', 'xpu'] || "
        "self.matches('^([1-9][0-9]{0,2}|10[01][0-9]|102[0-4])$')"
    ): lambda it: _if(not is_process_count(it), it),
    (
        "type(self) == int ? self >= 0 : isQuantity(self) && "
        "!quantity(self).isLessThan(quantity('0'))"
    ): _no_size,
    (
        "self.all(one, self.exists_one(other, other.metadata.name == one.metadata.name))"
    ): _same_claims,
    "has(self.onExitCodes) != has(self.onPodConditions)": _holds(
        lambda it: has(it, "onExitCodes") != has(it, "onPodConditions")
    ),
    (
        "!has(self.checkpointWaitSeconds) || self.checkpointWaitSeconds == 0 || "
        "has(self.checkpointPath)"
    ): _holds(lambda it: not at(it, "checkpointWaitSeconds") or has(it, "checkpointPath")),
    "self.matches('^/[^/]')": lambda it: _if(not re.match("/[^/]", it), it),
    ("!has(self.backend) || self.backend != 'etcd-v2' || has(self.endpoint)"): _holds(
        lambda it: at(it, "backend") != names.BACKEND_ETCD or has(it, "endpoint")
    ),
    ("!has(self.endpoint) || (has(self.backend) && self.backend == 'etcd-v2')"): _holds(
        lambda it: not has(it, "endpoint") or at(it, "backend") == names.BACKEND_ETCD
    ),
    "self.all(key, !key.startsWith('elasticpytorch.dev/'))": lambda it: _first(
        key for key in it if key.startswith(_OWN)
    ),
    "!has(self.activeDeadlineSeconds)": _holds(lambda it: not has(it, "activeDeadlineSeconds")),
    "self.size() <= 1 || self.exists(container, container.name == 'pytorch')": _holds(
        lambda it: not it or _training(it)
    ),
    (
        "self.all(container, has(container.command) || !has(container.args) || (self.size() > 1 "
        "&& container.name != 'pytorch') || [0, 1, 2, 3, 4, 5].all(i, i >= container.args.size() "
        "|| ['--nnodes', '--node-rank', '--node_rank', '--standalone', '--rdzv-', '--rdzv_', "
        "'--master-', '--master_'].all(option, !container.args[i].startsWith(option)) || [0, 1, "
        "2, 3, 4, 5].exists(j, j < i && !container.args[j].startsWith('-'))))"
    ): _group_options,
    (
        "self.all(container, (self.size() > 1 && container.name != 'pytorch') || "
        "!(has(container.restartPolicy) || has(container.restartPolicyRules)))"
    ): _restarted,
}
