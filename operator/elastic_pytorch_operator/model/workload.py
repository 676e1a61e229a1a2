"""Kueue's Workloads of a job, as the API server last reported them.

A job has one Workload for its minimum, the base, and one for each further step up to its wanted
size, the extras.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elastic_pytorch_operator.api import kueue

BASE = 0  # the number of the base; extras count from 1


@dataclass(frozen=True, slots=True)
class Admission:
    cluster_queue: str
    count: int
    flavors: tuple[str, ...] = ()  # each once
    topology: bool = False  # Kueue chooses the node of each pod
    # Of admission checks to the pods: labels, annotations, nodeSelector and tolerations.
    updates: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class WorkloadView:
    name: str
    uid: str
    version: str
    number: int  # `BASE`, or which extra it is
    count: int
    queue: str
    active: bool = True  # False: a user or Kueue has deactivated it, which frees its quota at once
    deleting: bool = False
    admission: Admission | None = None  # None: it holds no quota
    # By type; all of them, because a patch of the status has to repeat them.
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    evicted_since: float | None = None
    quota_for: str = ""  # the `Job.quota_for` that it was made for

    def is_true(self, type_: str) -> bool:
        return self.conditions.get(type_, {}).get("status") == "True"

    def is_false(self, type_: str) -> bool:
        return self.conditions.get(type_, {}).get("status") == "False"

    def reason(self, type_: str) -> str:
        return str(self.conditions.get(type_, {}).get("reason", ""))

    def message(self, type_: str) -> str:
        return str(self.conditions.get(type_, {}).get("message", ""))

    @property
    def reserves(self) -> bool:
        """Whether it has reserved quota, also during its eviction."""
        return self.is_true(kueue.QUOTA_RESERVED)

    @property
    def evicted(self) -> bool:
        """Whether Kueue wants its quota back."""
        return self.is_true(kueue.EVICTED)

    @property
    def held(self) -> int:
        """For how many pods it has quota that is not given back, as while it is evicted."""
        over = not self.active or self.deleting or self.is_true(kueue.FINISHED)
        if self.admission is None or over or not self.reserves:
            return 0
        return min(self.count, self.admission.count)

    @property
    def granted(self) -> int:
        return self.held if self.is_true(kueue.ADMITTED) and not self.evicted else 0


@dataclass(frozen=True, slots=True)
class Grant:
    """What a pod has from the Workload by whose quota it runs."""

    workload: str
    queue: str
    admission: Admission
    extra: bool = False
