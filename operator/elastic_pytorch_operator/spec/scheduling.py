"""`spec.scheduling`: gangs, where pods are placed, the order of ranks, how long places are held, and whether autoscalers may take one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.gang_schedulers import GANG_SCHEDULERS, GangScheduler
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.fields import InvalidJob, read_integer, read_object
from elastic_pytorch_operator.spec.pod_template import with_tolerations

PATH = "spec.scheduling"
GANG = f"{PATH}.gangScheduler"
EXTRA_WORKERS = f"{PATH}.extraWorkers"
EXTRA_FIELDS = ("nodeSelector", "tolerations")
ALLOW, FORBID = "Allow", "Forbid"  # disruption
REQUIRED, PREFERRED = "DoNotSchedule", "ScheduleAnyway"  # unitTopology.whenUnsatisfiable


@dataclass(frozen=True, slots=True)
class UnitTopology:
    """Where the pods of a unit are placed.

    Attributes:
        key: the label of nodes that has one value for all of them.
        required: a pod waits if there is no room beside its unit; else it is placed elsewhere.
    """

    key: str
    required: bool = True


@dataclass(frozen=True, slots=True)
class ExtraWorkers:
    """What the pods of workers with an index from `minReplicas` on have that the template does not say.

    Attributes:
        node_selector: labels of their nodes. A label that the template has, too, has this value.
        tolerations: in addition to the template's.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Manifest, ...] = ()

    @property
    def chooses_nodes(self) -> bool:
        """Whether these pods may run on other nodes than those of the minimum."""
        return bool(self.node_selector or self.tolerations)

    @property
    def text(self) -> str:
        """All of it."""
        return json.dumps([self.node_selector, self.tolerations], sort_keys=True)

    def applied_to(self, template: Manifest) -> Manifest:
        """The template of these pods."""
        spec: dict[str, Any] = {**template["spec"]}
        if self.node_selector:
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **self.node_selector}
        return with_tolerations({**template, "spec": spec}, self.tolerations)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How a job's pods are scheduled.

    Attributes:
        gang: the scheduler for which a PodGroup is made; None: no PodGroup is.
        timeout_seconds: how long the job holds places for fewer workers than its minimum; None: without limit.
        disruption: whether an autoscaler may take a worker's node away to save cost.
        unit_topology: where the pods of a unit are placed; None: like others.
        rank_topology_key: the label of nodes that orders the ranks; empty: none does.
        extra_workers: how those beyond the minimum are scheduled; None: like the others.
    """

    gang: GangScheduler | None = None
    timeout_seconds: int | None = None
    disruption: str = FORBID
    unit_topology: UnitTopology | None = None
    rank_topology_key: str = ""
    extra_workers: ExtraWorkers | None = None


NO_SCHEDULING = Scheduling()


def read_scheduling(spec: Mapping[str, Any], *, kueue_queue: str = "") -> Scheduling:
    """Reads how a job's pods are scheduled.

    Args:
        spec: of the job.
        kueue_queue: in which the job waits for quota of Kueue; empty: in none.

    Raises:
        InvalidJob: a field is unknown to every scheduler, or does not go with the others.
    """
    fields = read_object(spec, "scheduling")
    gang = _read_gang(fields["gangScheduler"], kueue_queue) if fields.get("gangScheduler") is not None else None
    timeout_seconds = read_integer(fields, "scheduleTimeoutSeconds", None, PATH)
    # An elastic job trains on without a worker; one of a fixed size stops.
    disruption = fields.get("disruption") or (FORBID if spec.get("minReplicas") is None else ALLOW)
    if disruption not in (ALLOW, FORBID):
        raise InvalidJob(f"{PATH}.disruption", f"must be {ALLOW} or {FORBID}, not {disruption}")
    rank_topology_key = fields.get("rankTopologyKey")
    if rank_topology_key is not None and not (isinstance(rank_topology_key, str) and rank_topology_key):
        raise InvalidJob(f"{PATH}.rankTopologyKey", f"must be a label of nodes, not {rank_topology_key!r}")
    unit_topology = _read_unit_topology(spec, fields)
    extra_workers = _read_extra_workers(spec, fields)
    return Scheduling(gang, timeout_seconds, disruption, unit_topology, rank_topology_key or "", extra_workers)


def _read_unit_topology(spec: Mapping[str, Any], fields: Mapping[str, Any]) -> UnitTopology | None:
    if fields.get("unitTopology") is None:
        return None
    path, topology = f"{PATH}.unitTopology", read_object(fields, "unitTopology", PATH)
    if (spec.get("unitReplicas") or 1) == 1:
        raise InvalidJob(path, "may not be set unless unitReplicas is greater than 1: a unit of one worker is always together")
    key, policy = topology.get("topologyKey"), topology.get("whenUnsatisfiable") or REQUIRED
    if not isinstance(key, str) or not key:
        raise InvalidJob(f"{path}.topologyKey", "must be set: the label of nodes that are together")
    if policy not in (REQUIRED, PREFERRED):
        raise InvalidJob(f"{path}.whenUnsatisfiable", f"must be {REQUIRED} or {PREFERRED}, not {policy!r}")
    return UnitTopology(key, policy == REQUIRED)


def _read_extra_workers(spec: Mapping[str, Any], scheduling: Mapping[str, Any]) -> ExtraWorkers | None:
    if scheduling.get("extraWorkers") is None:
        return None
    fields = read_object(scheduling, "extraWorkers", PATH)
    if spec.get("minReplicas") is None:
        raise InvalidJob(
            EXTRA_WORKERS, "may not be set while minReplicas is unset: set spec.minReplicas to make the job elastic"
        )
    if unknown := fields.keys() - {*EXTRA_FIELDS}:
        raise InvalidJob(f"{EXTRA_WORKERS}.{min(unknown)}", f"is not known here: set {', '.join(EXTRA_FIELDS)}")
    selector, tolerations = read_object(fields, "nodeSelector", EXTRA_WORKERS), fields.get("tolerations") or []
    for key, value in selector.items():
        if not isinstance(value, str):
            raise InvalidJob(f"{EXTRA_WORKERS}.nodeSelector", f"must have strings as values: quote {value!r}, that of {key!r}")
    if not isinstance(tolerations, list) or not all(isinstance(toleration, Mapping) for toleration in tolerations):
        raise InvalidJob(f"{EXTRA_WORKERS}.tolerations", "must be a list of objects")
    return ExtraWorkers(dict(selector), tuple(tolerations))


def _read_gang(name: object, kueue_queue: str) -> GangScheduler:
    if not isinstance(name, str) or name not in GANG_SCHEDULERS:
        raise InvalidJob(GANG, f"must be one of {', '.join(GANG_SCHEDULERS)}, not {name!r}")
    if kueue_queue:
        problem = (
            f"may not be set together with the label {kueue.LABEL_QUEUE}: Kueue admits the minimum as a whole already; "
            "remove gangScheduler, or the label"
        )
        raise InvalidJob(GANG, problem)
    return GANG_SCHEDULERS[name]
