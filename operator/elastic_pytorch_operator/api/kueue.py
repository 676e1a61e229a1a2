"""The names of Kueue's API v1beta2 (Kueue 0.19)."""

GROUP = "kueue.x-k8s.io"
VERSION = "v1beta2"
API_VERSION = f"{GROUP}/{VERSION}"
WORKLOAD = "Workload"
WORKLOADS = "workloads"

LABEL_QUEUE = f"{GROUP}/queue-name"  # on a job
LABEL_PRIORITY_CLASS = f"{GROUP}/priority-class"  # on a job
LABEL_JOB_UID = f"{GROUP}/job-uid"  # on a Workload
LABEL_POD_SET = f"{GROUP}/podset"  # this and the next two on a pod
LABEL_LOCAL_QUEUE = f"{GROUP}/local-queue-name"
LABEL_CLUSTER_QUEUE = f"{GROUP}/cluster-queue-name"
ANNOTATION_WORKLOAD = f"{GROUP}/workload"  # on a pod
# Of annotations of a job, for its ProvisioningRequest.
PROVISIONING_PREFIX = "provreq.kueue.x-k8s.io/"

TOPOLOGY_GATE = f"{GROUP}/topology"
TOPOLOGY_REQUIRED = f"{GROUP}/podset-required-topology"
TOPOLOGY_PREFERRED = f"{GROUP}/podset-preferred-topology"
TOPOLOGY_UNCONSTRAINED = f"{GROUP}/podset-unconstrained-topology"
TOPOLOGY_REQUESTS = (TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED, TOPOLOGY_UNCONSTRAINED)
TOPOLOGY_SLICE = f"{GROUP}/podset-slice-required-topology"
TOPOLOGY_SLICE_SIZE = f"{GROUP}/podset-slice-size"

POD_SET = "main"  # the one pod set of each of our Workloads

# Condition types.
QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
EVICTED = "Evicted"
REQUEUED = "Requeued"
PODS_READY = "PodsReady"
FINISHED = "Finished"

# Reasons.
PENDING = "Pending"
NO_RESERVATION = "NoReservation"
PREEMPTED = "Preempted"
NODE_FAILURES = "NodeFailures"
DEACTIVATED = "Deactivated"  # and the beginning of DeactivatedDueTo...
WAIT_FOR_START = "WaitForStart"
STARTED = "Started"
WAIT_FOR_RECOVERY = "WaitForRecovery"
RECOVERED = "Recovered"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
