"""What a diagnosis is made of, read from the cluster: pods, nodes, events.

What the user may not read is left out.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from elastic_pytorch_client.cluster import ClusterReader
from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_client.reading.diagnosis import Evidence
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.reading.nodes import NodeView, view_node
from elastic_pytorch_client.reading.text import parse_time
from elastic_pytorch_client.reading.timeline import JobEvent, read_events

MAX_PODS = 10  # whose events are asked for


def read_evidence(
    cluster: ClusterReader, job: JobView, nodes: Sequence[NodeView] | None, now: datetime
) -> Evidence:
    """What `diagnose` judges a job by.

    Raises:
        EpjError: the pods cannot be read.
    """
    pods = cluster.list_pods(job.namespace, job.name)
    return Evidence(pods, nodes, read_job_events(cluster, job), _warnings(cluster, pods), now)


def read_job_events(cluster: ClusterReader, job: JobView) -> list[JobEvent]:
    """A job's events, oldest first; empty if the user may not read them."""
    try:
        return read_events(
            cluster.list_events(job.namespace, "ElasticPyTorchJob", job.name), job.uid
        )
    except EpjError:
        return []


def read_nodes(cluster: ClusterReader) -> list[NodeView] | None:
    """All nodes; None if the user may not look at them, which is common."""
    try:
        return [view_node(node) for node in cluster.list_nodes()]
    except EpjError:
        return None


def _warnings(cluster: ClusterReader, pods: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    waiting = [
        pod
        for pod in pods
        if (pod.get("status") or {}).get("phase") == "Pending" and pod["spec"].get("nodeName")
    ]
    for pod in waiting[:MAX_PODS]:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        try:
            events = cluster.list_events(namespace, "Pod", name)
        except EpjError:
            return found
        warnings = [
            (parse_time(e.get("lastTimestamp") or e.get("eventTime")), e)
            for e in events
            if e.get("type") == "Warning"
        ]
        dated = [(at, event) for at, event in warnings if at]
        if dated:
            newest = max(dated, key=lambda pair: pair[0])[1]
            found[name] = (
                f"{newest.get('reason')}: {' '.join(str(newest.get('message', '')).split())}"
            )
    return found
