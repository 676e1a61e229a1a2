"""The page's data of nodes with a trouble, the worst first, for JSON."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from elastic_pytorch_client.page.details import plain
from elastic_pytorch_client.page.rows import seconds_of
from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_client.reading.nodes import NodeView

MAX_NODES = 300
MAX_FINDINGS = 8  # of one node
MAX_JOBS = 3  # named for a node
MAX_CHARACTERS = 300
FAILURE_SHOWN = timedelta(days=1)
SOON = timedelta(minutes=10)  # as the operator replaces workers ahead of an end
PAST = timedelta(hours=1)  # after which an announced end has not come
TONES = {5: "bad", 4: "bad", 3: "busy", 2: "busy"}


@dataclass(frozen=True, slots=True)
class NodeFinding:
    trouble: int
    state: str
    what: str
    job: JobView | None = None  # its source; None: the node
    at: datetime | None = None  # since when, or when; None: unknown


def nodes_of(
    jobs: Iterable[JobView], nodes: Sequence[NodeView] | None, now: datetime
) -> dict[str, Any]:
    findings: defaultdict[str, list[NodeFinding]] = defaultdict(list)
    workers: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for job in jobs:
        for node, finding in _findings_of_job(job, now):
            findings[node].append(finding)
        if not job.ended:
            for worker in job.workers:
                workers[worker.node][job.name] += 1
    for view in nodes or ():
        findings[view.name] += _findings_of_node(view, now)
    workers.pop("", None)
    in_trouble = {node: found for node, found in findings.items() if node and found}
    order = sorted(
        in_trouble,
        key=lambda node: (-max(f.trouble for f in in_trouble[node]), -len(in_trouble[node]), node),
    )
    shown = order[:MAX_NODES]
    return {
        "nodes": [_row(node, in_trouble[node], workers.get(node, {})) for node in shown],
        "more": max(0, len(order) - MAX_NODES),
        "well": len(workers.keys() - in_trouble.keys()),
        "listed": nodes is not None,
    }


def _row(node: str, findings: Sequence[NodeFinding], workers: dict[str, int]) -> dict[str, Any]:
    ordered = sorted(findings, key=lambda f: (-f.trouble, -(seconds_of(f.at) or 0.0)))
    names = sorted(workers, key=lambda name: (-workers[name], name))
    return {
        "name": node,
        "state": ordered[0].state,
        "tone": TONES.get(ordered[0].trouble, "quiet"),
        "workers": sum(workers.values()),
        "jobs": names[:MAX_JOBS],
        "moreJobs": max(0, len(names) - MAX_JOBS),
        "findings": [
            {
                "what": plain(finding.what)[:MAX_CHARACTERS],
                "job": None if finding.job is None else [finding.job.namespace, finding.job.name],
                "at": seconds_of(finding.at),
            }
            for finding in ordered[:MAX_FINDINGS]
        ],
        "moreFindings": max(0, len(ordered) - MAX_FINDINGS),
    }


def _findings_of_job(job: JobView, now: datetime) -> Iterator[tuple[str, NodeFinding]]:
    cause = job.root_cause
    recent = cause and (now - cause.time < FAILURE_SHOWN if cause.time else not job.ended)
    if cause is not None and cause.node and recent:
        what = f"{cause.worker} failed here" + (f" with {cause.how}" if cause.how else "")
        yield cause.node, NodeFinding(3, "failure", what, job, cause.time)
    if job.ended:
        return
    for slow in job.stragglers:
        times = f"works {slow.slowdown} times as long in a step as the median"
        what = f"rank {slow.rank} ({slow.worker}) {times}"
        yield slow.node, NodeFinding(2, "slow", what, job)
    for worker in job.workers:
        if worker.state == "Lost":
            what = f"{worker.name} is lost: new workers keep away from here"
            yield worker.node, NodeFinding(5, "suspect", what, job)
        elif worker.state == "Silent":
            yield worker.node, NodeFinding(1, "silent", f"{worker.name} has not been heard of", job)


def _findings_of_node(node: NodeView, now: datetime) -> Iterator[NodeFinding]:
    if not node.ready:
        yield NodeFinding(5, "not ready", "the node is not ready")
    end = node.end
    if end is not None and end.at is not None and now - end.at < PAST:
        trouble, state = (4, "ends soon") if end.at - now <= SOON else (1, "ends later")
        yield NodeFinding(trouble, state, f"the node {end.what}", at=end.at)
    elif end is not None and end.at is None:
        state = "fault" if end.fault else "ends soon" if end.sure else "may end"
        yield NodeFinding(4 if end.sure else 1, state, f"the node {end.what}")
    if node.cordoned:
        yield NodeFinding(1, "cordoned", "the node is cordoned: it takes no more pods")
