"""The names of the API that a client needs."""

from typing import Final

GROUP: Final = "elasticpytorch.dev"
API_VERSION: Final = f"{GROUP}/v1alpha1"
KIND: Final = "ElasticPyTorchJob"
PLURAL: Final = "elasticpytorchjobs"
LABEL_JOB_NAME: Final = f"{GROUP}/job-name"
LABEL_WORKER_INDEX: Final = f"{GROUP}/worker-index"
LABEL_ROLE: Final = f"{GROUP}/role"
ROLE_WORKER: Final = "worker"
TRAINING_CONTAINER: Final = "pytorch"
ANNOTATION_TRAINING_CONTAINER: Final = f"{GROUP}/training-container"
MANAGER: Final = f"{GROUP}/operator"  # in spec.managedBy
BACKEND_OPERATOR: Final = "operator"  # spec.rendezvous.backend

# Annotations of events.
ANNOTATION_ROUND: Final = f"{GROUP}/round"
ANNOTATION_WORKERS: Final = f"{GROUP}/workers"
ANNOTATION_CAUSE: Final = f"{GROUP}/cause"
ANNOTATION_SECONDS: Final = f"{GROUP}/seconds"
ANNOTATION_STEPS_LOST: Final = f"{GROUP}/steps-lost"

# Reasons of conditions.
BACKING_OFF: Final = "BackingOff"
CHECKPOINTS_FAILING: Final = "CheckpointsFailing"  # of Degraded, while all wanted workers train
CHECKPOINTS_SLOW: Final = "CheckpointsSlow"  # likewise
COOLING_DOWN: Final = "CoolingDown"  # of Resizing, while minSecondsBetweenGrowths lasts
NODE_ENDING: Final = "NodeEnding"  # of Resizing, while a worker waits for its replacement

# Reasons of events.
TRAINING_RESUMED: Final = "TrainingResumed"
JOB_COMPLETED: Final = "JobCompleted"
JOB_FAILED: Final = "JobFailed"
