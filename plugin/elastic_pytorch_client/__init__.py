"""A Python client for ElasticPyTorchJobs, and `kubectl epj`, which is made of it."""

from elastic_pytorch_client.cluster import Access, Cluster, KubernetesCluster
from elastic_pytorch_client.errors import (
    EpjError,
    JobFailed,
    NoJobKind,
    NoSuchJob,
    NotAllowed,
    Refused,
    TimedOut,
    Unreachable,
)
from elastic_pytorch_client.job import Job
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.worker_logs import Line

__all__ = [
    "Access",
    "Cluster",
    "EpjError",
    "Job",
    "JobFailed",
    "JobView",
    "KubernetesCluster",
    "Line",
    "NoJobKind",
    "NoSuchJob",
    "NotAllowed",
    "Refused",
    "TimedOut",
    "Unreachable",
]
