"""`spec.scheduling`: gangs, where pods are placed, the order of ranks, how long places are held, and whether autoscalers may take one."""

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
        timeout_seconds: how long the job holds places for fewer workers than its minimum; None:
            without limit.
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
        kueue_queue: in which the job waits for quota of Kueue; empty: in none.

    Raises:
        InvalidJob: two would admit the minimum as a whole: a gang scheduler, and Kueue.
    """
    fields = spec.get("scheduling") or {}
    gang, unit, extra = (
        fields.get("gangScheduler"),
        fields.get("unitTopology"),
        fields.get("extraWorkers"),
    )
    if gang is not None and kueue_queue:
        problem = (
            f"may not be set together with the label {kueue.LABEL_QUEUE}: Kueue admits the minimum as a whole already; "
            "remove gangScheduler, or the label"
        )
        raise InvalidJob(GANG, problem)
    return Scheduling(
        gang=None if gang is None else GANG_SCHEDULERS[gang],
        timeout_seconds=fields.get("scheduleTimeoutSeconds"),
        # An elastic job trains on without a worker; one of a fixed size stops.
        disruption=fields.get("disruption")
        or (FORBID if spec.get("minReplicas") is None else ALLOW),
        unit_topology=None
        if unit is None
        else UnitTopology(
            unit["topologyKey"], (unit.get("whenUnsatisfiable") or REQUIRED) == REQUIRED
        ),
        rank_topology_key=fields.get("rankTopologyKey") or "",
        extra_workers=None
        if extra is None
        else ExtraWorkers(
            dict(extra.get("nodeSelector") or {}), tuple(extra.get("tolerations") or ())
        ),
    )
