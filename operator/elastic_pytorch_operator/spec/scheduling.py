"""`spec.scheduling`: gangs, places of pods, the order of ranks, deadlines, and autoscalers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.gang_schedulers import GANG_SCHEDULERS, GangScheduler
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.pod_template import with_tolerations

GANG = "spec.scheduling.gangScheduler"
ALLOW, FORBID = "Allow", "Forbid"  # disruption
REQUIRED = "DoNotSchedule"  # unitTopology.whenUnsatisfiable


@dataclass(frozen=True, slots=True)
class UnitTopology:
    key: str  # the label of nodes that has one value for all pods of a unit
    required: bool = True  # a pod waits for room beside its unit; else it is placed elsewhere


@dataclass(frozen=True, slots=True)
class ExtraWorkers:
    """Of the pods with an index from `minReplicas` on, over the template's."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Manifest, ...] = ()

    @property
    def text(self) -> str:
        return json.dumps([self.node_selector, self.tolerations], sort_keys=True)

    def applied_to(self, template: Manifest) -> Manifest:
        spec: dict[str, Any] = {**template["spec"]}
        if self.node_selector:
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **self.node_selector}
        return with_tolerations({**template, "spec": spec}, self.tolerations)


@dataclass(frozen=True, slots=True)
class Scheduling:
    gang: GangScheduler | None = None
    timeout_seconds: int | None = None  # for which fewer workers than the minimum hold places
    disruption: str = FORBID  # whether an autoscaler may take a worker's node to save cost
    unit_topology: UnitTopology | None = None
    rank_topology_key: str = ""  # the label of nodes that orders the ranks; empty: none does
    extra_workers: ExtraWorkers | None = None


NO_SCHEDULING = Scheduling()


def read_scheduling(spec: Mapping[str, Any], *, queued: bool) -> Scheduling:
    """InvalidJob: a gang scheduler and a queue of Kueue would both admit the minimum as a whole."""
    fields = spec.get("scheduling") or {}
    gang, unit = fields.get("gangScheduler"), fields.get("unitTopology")
    if gang is not None and queued:
        problem = (
            f"may not be set together with the label {kueue.LABEL_QUEUE}: Kueue admits the minimum "
            "as a whole already; remove gangScheduler, or the label"
        )
        raise InvalidJob(GANG, problem)
    topology = extra_workers = None
    if unit is not None:
        required = (unit.get("whenUnsatisfiable") or REQUIRED) == REQUIRED
        topology = UnitTopology(unit["topologyKey"], required)
    if (extra := fields.get("extraWorkers")) is not None:
        selector, tolerations = extra.get("nodeSelector") or {}, extra.get("tolerations") or ()
        extra_workers = ExtraWorkers(dict(selector), tuple(tolerations))
    # An elastic job trains on without a worker; one of a fixed size stops.
    disruption = FORBID if spec.get("minReplicas") is None else ALLOW
    return Scheduling(
        gang=None if gang is None else GANG_SCHEDULERS[gang],
        timeout_seconds=fields.get("scheduleTimeoutSeconds"),
        disruption=fields.get("disruption") or disruption,
        unit_topology=topology,
        rank_topology_key=fields.get("rankTopologyKey") or "",
        extra_workers=extra_workers,
    )
