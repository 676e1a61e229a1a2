"""The evidence for a diagnosis: the pods, nodes and events that the user may read."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from elastic_pytorch_client.cluster import ClusterReader
from elastic_pytorch_client.errors import EpjError, one_line
from elastic_pytorch_client.reading.diagnosis import Evidence
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.reading.nodes import NodeView, view_node
from elastic_pytorch_client.reading.text import parse_time
from elastic_pytorch_client.reading.timeline import JobEvent, read_events

MAX_PODS = 10  # whose events are read


def read_evidence(
    cluster: ClusterReader, job: JobView, nodes: Sequence[NodeView] | None, now: datetime
) -> Evidence:
    """Raises EpjError if the pods cannot be read."""
    pods = cluster.list_pods(job.namespace, job.name)
    return Evidence(pods, nodes, read_job_events(cluster, job), _warnings(cluster, pods), now)


def read_job_events(cluster: ClusterReader, job: JobView) -> list[JobEvent]:
    """A job's events, oldest first; empty if the user may not read them."""
    try:
        events = cluster.list_events(job.namespace, "ElasticPyTorchJob", job.name)
        return read_events(events, job.uid)
    except EpjError:
        return []


def read_nodes(cluster: ClusterReader) -> list[NodeView] | None:
    """All nodes; None if the user may not read them, which is common."""
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
        warnings = (event for event in events if event.get("type") == "Warning")
        times = ((parse_time(e.get("lastTimestamp") or e.get("eventTime")), e) for e in warnings)
        dated = [(at, event) for at, event in times if at]
        if dated:
            newest = max(dated, key=lambda pair: pair[0])[1]
            message = one_line(newest.get("message", ""))
            found[name] = f"{newest.get('reason')}: {message}"
    return found
