"""`kubectl epj why NAME`: why a job does not run at the wanted size, and what to do."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from elastic_pytorch_client.errors import EpjError
from elastic_pytorch_client.reading.diagnosis import Evidence, diagnose
from elastic_pytorch_client.reading.nodes import NodeView, view_node
from elastic_pytorch_client.reading.pod_workers import add_pods
from elastic_pytorch_client.reading.text import parse_time
from elastic_pytorch_client.verbs.context import Context, add_name, add_output, print_data
from elastic_pytorch_client.views.why_view import show_why

NAME, HELP = "why", "why a job does not run at the wanted size, and what to do about it"
UNWELL = 3  # exit code: something is not as wanted
MAX_PODS = 10  # whose events are asked for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add_name(parser)
    add_output(parser)


def run(context: Context, options: argparse.Namespace) -> int:
    """Says it; 0 if all is well, 3 if not."""
    job = context.job(options.name)
    pods = context.cluster.list_pods(job.namespace, job.name)
    evidence = Evidence(pods, _nodes(context), context.events(job), _warnings(context, pods), context.now())
    diagnosis = diagnose(add_pods(job, pods), evidence)
    if options.output:
        about = {"namespace": job.namespace, "job": job.name, "asWanted": diagnosis.well, "headline": diagnosis.headline}
        findings = [{"what": finding.what, "do": finding.do} for finding in diagnosis.findings]
        print_data(context, options.output, {**about, "findings": findings})
    else:
        context.console.print(show_why(diagnosis, job.goodput.lost))
    return 0 if diagnosis.well else UNWELL


def _nodes(context: Context) -> list[NodeView] | None:
    """All nodes; None if the user may not look at them, which is common."""
    try:
        return [view_node(node) for node in context.cluster.list_nodes()]
    except EpjError:
        return None


def _warnings(context: Context, pods: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The newest warning about each of some pods that do not run."""
    found: dict[str, str] = {}
    waiting = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Pending" and pod["spec"].get("nodeName")]
    for pod in waiting[:MAX_PODS]:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        try:
            events = context.cluster.list_events(namespace, "Pod", name)
        except EpjError:
            return found
        warnings = [(parse_time(e.get("lastTimestamp") or e.get("eventTime")), e) for e in events if e.get("type") == "Warning"]
        dated = [(at, event) for at, event in warnings if at]
        if dated:
            newest = max(dated, key=lambda pair: pair[0])[1]
            found[name] = f"{newest.get('reason')}: {' '.join(str(newest.get('message', '')).split())}"
    return found
