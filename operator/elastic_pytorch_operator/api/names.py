"""The names of the API: group, labels, condition types, reasons. Each stands here once."""

from typing import Final

GROUP: Final = "elasticpytorch.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "ElasticPyTorchJob"
PLURAL: Final = "elasticpytorchjobs"
TEMPLATE_KIND: Final = "ClusterElasticPyTorchJobTemplate"

OPERATOR: Final = "elastic-pytorch-operator"
BACKEND_OPERATOR: Final = "operator"  # spec.rendezvous.backend
BACKEND_C10D: Final = "c10d"
BACKEND_ETCD: Final = "etcd-v2"
MANAGER: Final = f"{GROUP}/operator"  # in spec.managedBy
TOKEN_AUDIENCE: Final = "elastic-pytorch-operator"
TRAINING_CONTAINER: Final = "pytorch"
OPERATOR_URL_VARIABLE: Final = "ELASTIC_PYTORCH_OPERATOR_URL"  # in a worker's environment
AUTHORITIES_VARIABLE: Final = "ELASTIC_PYTORCH_OPERATOR_AUTHORITIES"  # there, too, since agents speak TLS

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_JOB_NAME: Final = f"{GROUP}/job-name"
LABEL_WORKER_INDEX: Final = f"{GROUP}/worker-index"
LABEL_UNIT: Final = f"{GROUP}/unit"
LABEL_ROLE: Final = f"{GROUP}/role"
LABEL_RENDEZVOUS: Final = f"{GROUP}/rendezvous"
LABEL_WORKLOAD_NUMBER: Final = f"{GROUP}/workload-number"  # on a Workload of Kueue
ANNOTATION_QUOTA_FOR: Final = f"{GROUP}/quota-for"  # there, too
ROLE_WORKER: Final = "worker"
ROLE_STORE: Final = "store"
ANNOTATION_AVOIDS: Final = f"{GROUP}/avoids-nodes"
ANNOTATION_PREFERS_OTHERS: Final = f"{GROUP}/prefers-other-nodes-than"
ANNOTATION_TRAINING_CONTAINER: Final = f"{GROUP}/training-container"
ANNOTATION_FAILED_STARTS: Final = f"{GROUP}/failed-starts"
ANNOTATION_GROUP_RESTARTS: Final = f"{GROUP}/group-restarts"

# Annotations of events.
ANNOTATION_ROUND: Final = f"{GROUP}/round"
ANNOTATION_WORKERS: Final = f"{GROUP}/workers"
ANNOTATION_CAUSE: Final = f"{GROUP}/cause"
ANNOTATION_SECONDS: Final = f"{GROUP}/seconds"
ANNOTATION_STEPS_LOST: Final = f"{GROUP}/steps-lost"

# Condition types.
RUNNING: Final = "Running"
RESIZING: Final = "Resizing"
DEGRADED: Final = "Degraded"
SUSPENDED: Final = "Suspended"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"

# Reasons of conditions.
ROUND_RUNNING: Final = "RoundRunning"
SAVING: Final = "Saving"  # of workers, too
WAITING_FOR_WORKERS: Final = "WaitingForWorkers"
WORKERS_UNHEARD: Final = "WorkersUnheard"
BACKING_OFF: Final = "BackingOff"
SCHEDULE_TIMEOUT: Final = "ScheduleTimeout"  # of events, too
NOT_ENDED: Final = "NotEnded"
AT_WANTED_SIZE: Final = "AtWantedSize"
WORKERS_MISSING: Final = "WorkersMissing"
CHECKPOINTS_FAILING: Final = "CheckpointsFailing"
CHECKPOINTS_SLOW: Final = "CheckpointsSlow"
SIZE_CHANGING: Final = "SizeChanging"
WAITING_FOR_CHECKPOINT: Final = "WaitingForCheckpoint"
COOLING_DOWN: Final = "CoolingDown"
NODE_ENDING: Final = "NodeEnding"  # of an event, too
WORKERS_SUCCEEDED: Final = "WorkersSucceeded"
TOO_MANY_FAILURES: Final = "TooManyFailures"
BACKOFF_LIMIT_EXCEEDED: Final = "BackoffLimitExceeded"
FAILURE_POLICY_RULE: Final = "FailurePolicyRule"
INVALID_TEMPLATE: Final = "InvalidTemplate"
TEMPLATE_MISSING: Final = "TemplateMissing"
INVALID_SPEC: Final = "InvalidSpec"
POD_LOST: Final = "PodLost"
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
LAST_CHECKPOINT_NOT_WRITTEN: Final = "LastCheckpointNotWritten"
CANNOT_START: Final = "CannotStart"
NEVER_JOINED: Final = "NeverJoined"
JOB_SUSPENDED: Final = "JobSuspended"
SUSPENDING: Final = "Suspending"
NOT_SUSPENDED: Final = "NotSuspended"
JOB_RESUMED: Final = "JobResumed"
REFUSED: Final = "RefusedByApiServer"
QUOTA_REQUESTED: Final = "QuotaRequested"
WAITING_FOR_QUOTA: Final = "WaitingForQuota"
LEAVING_QUEUE: Final = "LeavingQueue"
KUEUE_DISABLED: Final = "KueueDisabled"

# Causes of rounds, and reasons of events.
FIRST_ROUND: Final = "FirstRound"
WORKER_FAILED: Final = "WorkerFailed"
WORKER_LOST: Final = "WorkerLost"
WORKER_LEAVING: Final = "WorkerLeaving"
WORKER_JOINED: Final = "WorkerJoined"
SCALED_DOWN: Final = "ScaledDown"
EVICTED: Final = "Evicted"
BELOW_MINIMUM: Final = "BelowMinimum"
PROGRESS_STALLED: Final = "ProgressStalled"
PROCESSES_DIFFER: Final = "ProcessesDiffer"
GROUP_RESTARTED: Final = "GroupRestarted"
FAILURE_IGNORED: Final = "FailureIgnored"
CHECKPOINT_WAIT_ENDED: Final = "CheckpointWaitEnded"
SCALE_REFUSED: Final = "ScaleRefused"
RENDEZVOUS_OVER: Final = "RendezvousOver"
QUOTA_GRANTED: Final = "QuotaGranted"
JOB_COMPLETED: Final = "JobCompleted"
JOB_FAILED: Final = "JobFailed"
TRAINING_RESUMED: Final = "TrainingResumed"
STRAGGLER: Final = "Straggler"
STRAGGLER_RECOVERED: Final = "StragglerRecovered"
UNREADABLE: Final = "UnreadableObject"
