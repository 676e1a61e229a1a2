"""The schedulers that know gangs: the PodGroup that each expects, and how a pod says that it belongs to one.

From their sources: kubernetes-sigs/scheduler-plugins v0.34.7 (apis/scheduling/v1alpha1, pkg/coscheduling), volcano-sh/volcano v1.15.1
(staging/src/volcano.sh/apis/pkg/apis/scheduling/v1beta1), kai-scheduler/KAI-Scheduler v0.17.0 (pkg/apis/scheduling/v2alpha2,
docs/developer/designs/external-podgroups), kubernetes/kubernetes v1.37.2 (staging/src/k8s.io/api/scheduling/v1beta1,
pkg/scheduler/framework/plugins/gangscheduling, pkg/scheduler/schedule_one_podgroup.go).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

KIND: Final = "PodGroup"
PLURAL: Final = "podgroups"


class Queueing(Enum):
    """Whether a PodGroup names a queue of its scheduler."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class GangScheduler:
    """A scheduler that knows gangs.

    Attributes:
        name: in `spec.scheduling.gang.scheduler`.
        api_version: of its PodGroup.
        scheduler_name: of pods whose template names none; what its installation is called by default. Empty: the cluster's own.
        queueing: whether its PodGroup names a queue.
        min_resources: its PodGroup says what the gang requests.
        priority: its PodGroup names a priority class.
        group_label: of a pod, with the name of its PodGroup; empty: none.
        group_annotation: the same as an annotation.
        queue_label: of a pod, with the name of the queue; empty: none.
        annotations: of each pod.
        built_in: it is Kubernetes' own. A pod names its PodGroup in `spec.schedulingGroup`, and the size lies in a policy. All pods
            must have the priority of their PodGroup, and a PodGroup that is deleted stays until none of them runs.
        remedy: what to do if the cluster does not serve its PodGroup.
    """

    name: str
    api_version: str
    scheduler_name: str
    queueing: Queueing
    min_resources: bool
    priority: bool
    group_label: str = ""
    group_annotation: str = ""
    queue_label: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    built_in: bool = False
    remedy: str = "install that scheduler"


COSCHEDULING: Final = GangScheduler(
    name="Coscheduling",
    api_version="scheduling.x-k8s.io/v1alpha1",
    scheduler_name="scheduler-plugins-scheduler",
    queueing=Queueing.NONE,
    min_resources=True,
    priority=False,
    group_label="scheduling.x-k8s.io/pod-group",
)
VOLCANO: Final = GangScheduler(
    name="Volcano",
    api_version="scheduling.volcano.sh/v1beta1",
    scheduler_name="volcano",
    queueing=Queueing.OPTIONAL,
    min_resources=True,
    priority=True,
    group_annotation="scheduling.k8s.io/group-name",
)
KAI: Final = GangScheduler(
    name="Kai",
    api_version="scheduling.run.ai/v2alpha2",
    scheduler_name="kai-scheduler",
    queueing=Queueing.REQUIRED,
    min_resources=False,
    priority=True,
    group_annotation="pod-group-name",
    queue_label="kai.scheduler/queue",
    # Its own controller would put the pods into another group.
    annotations={"kai.scheduler/skip-podgrouper": "true"},
)
KUBERNETES: Final = GangScheduler(
    name="Kubernetes",
    api_version="scheduling.k8s.io/v1beta1",
    scheduler_name="",
    queueing=Queueing.NONE,
    min_resources=False,
    priority=True,
    built_in=True,
    remedy="enable that API and the feature gate GenericWorkload, which need Kubernetes 1.37",
)
GANG_SCHEDULERS: Final[Mapping[str, GangScheduler]] = {known.name: known for known in (COSCHEDULING, VOLCANO, KAI, KUBERNETES)}
