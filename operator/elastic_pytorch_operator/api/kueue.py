"""The names of Kueue's API v1beta2 (Kueue 0.19)."""

from typing import Final

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
API_VERSION: Final = f"{GROUP}/{VERSION}"
WORKLOAD: Final = "Workload"
WORKLOADS: Final = "workloads"

LABEL_QUEUE: Final = f"{GROUP}/queue-name"  # on a job
LABEL_PRIORITY_CLASS: Final = f"{GROUP}/priority-class"  # on a job
LABEL_JOB_UID: Final = f"{GROUP}/job-uid"  # on a Workload
LABEL_POD_SET: Final = f"{GROUP}/podset"  # this and the next two on a pod
LABEL_LOCAL_QUEUE: Final = f"{GROUP}/local-queue-name"
LABEL_CLUSTER_QUEUE: Final = f"{GROUP}/cluster-queue-name"
ANNOTATION_WORKLOAD: Final = f"{GROUP}/workload"  # on a pod
# Of annotations of a job, for its ProvisioningRequest.
PROVISIONING_PREFIX: Final = "provreq.kueue.x-k8s.io/"

TOPOLOGY_GATE: Final = f"{GROUP}/topology"
TOPOLOGY_REQUIRED: Final = f"{GROUP}/podset-required-topology"
TOPOLOGY_PREFERRED: Final = f"{GROUP}/podset-preferred-topology"
TOPOLOGY_UNCONSTRAINED: Final = f"{GROUP}/podset-unconstrained-topology"
TOPOLOGY_REQUESTS: Final = (TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED, TOPOLOGY_UNCONSTRAINED)
TOPOLOGY_SLICE: Final = f"{GROUP}/podset-slice-required-topology"
TOPOLOGY_SLICE_SIZE: Final = f"{GROUP}/podset-slice-size"

POD_SET: Final = "main"  # the one pod set of each of our Workloads

# Condition types.
QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
REQUEUED: Final = "Requeued"
PODS_READY: Final = "PodsReady"
FINISHED: Final = "Finished"

# Reasons.
PENDING: Final = "Pending"
NO_RESERVATION: Final = "NoReservation"
PREEMPTED: Final = "Preempted"
NODE_FAILURES: Final = "NodeFailures"
DEACTIVATED: Final = "Deactivated"  # and the beginning of DeactivatedDueTo...
WAIT_FOR_START: Final = "WaitForStart"
STARTED: Final = "Started"
WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
RECOVERED: Final = "Recovered"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
