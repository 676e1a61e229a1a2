"""The gang schedulers: the PodGroup that each expects, and how a pod names its PodGroup.

Sources: kubernetes-sigs/scheduler-plugins v0.34.7 (pkg/coscheduling), kubernetes/kubernetes v1.37.2
(pkg/scheduler/framework/plugins/gangscheduling, pkg/scheduler/schedule_one_podgroup.go).
"""

from collections.abc import Mapping
from dataclasses import dataclass

KIND = "PodGroup"
PLURAL = "podgroups"


@dataclass(frozen=True, slots=True)
class GangScheduler:
    name: str  # in `spec.scheduling.gangScheduler`
    api_version: str  # of its PodGroup
    scheduler_name: str  # of pods whose template names none; empty: the cluster's own
    group_label: str = ""  # of a pod, with the name of its PodGroup; empty: none
    # Kubernetes itself: a pod names its PodGroup in `spec.schedulingGroup`; a policy has the size.
    # All pods have the priority of their PodGroup, and a deleted PodGroup stays until none of them
    # runs.
    built_in: bool = False
    remedy: str = "install that scheduler"  # if the cluster does not serve its PodGroup


COSCHEDULING = GangScheduler(
    name="Coscheduling",
    api_version="scheduling.x-k8s.io/v1alpha1",
    scheduler_name="scheduler-plugins-scheduler",
    group_label="scheduling.x-k8s.io/pod-group",
)
KUBERNETES = GangScheduler(
    name="Kubernetes",
    api_version="scheduling.k8s.io/v1beta1",
    scheduler_name="",
    built_in=True,
    remedy="enable that API and the feature gate GenericWorkload, which need Kubernetes 1.37",
)
GANG_SCHEDULERS: Mapping[str, GangScheduler] = {
    known.name: known for known in (COSCHEDULING, KUBERNETES)
}
