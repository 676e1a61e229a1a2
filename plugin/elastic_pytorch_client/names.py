"""The names of the API that a client needs."""

from typing import Final

GROUP: Final = "elasticpytorch.dev"
API_VERSION: Final = f"{GROUP}/v1alpha1"
KIND: Final = "ElasticPyTorchJob"
PLURAL: Final = "elasticpytorchjobs"
LABEL_JOB_NAME: Final = f"{GROUP}/job-name"
LABEL_ROLE: Final = f"{GROUP}/role"
ROLE_WORKER: Final = "worker"
TRAINING_CONTAINER: Final = "pytorch"
ANNOTATION_TRAINING_CONTAINER: Final = f"{GROUP}/training-container"
MANAGER: Final = f"{GROUP}/operator"  # in spec.managedBy
BACKEND_OPERATOR: Final = "operator"  # spec.rendezvous.backend
