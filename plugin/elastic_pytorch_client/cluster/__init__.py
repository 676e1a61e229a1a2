"""The client's requests to the API server: an interface, and the real one."""

from elastic_pytorch_client.cluster.interface import (
    WATCH_SECONDS,
    Cluster,
    ClusterReader,
    Object,
    is_running,
    training_container,
)
from elastic_pytorch_client.cluster.kubeconfig import Access
from elastic_pytorch_client.cluster.kubernetes_api import KubernetesCluster

__all__ = [
    "WATCH_SECONDS",
    "Access",
    "Cluster",
    "ClusterReader",
    "KubernetesCluster",
    "Object",
    "is_running",
    "training_container",
]
