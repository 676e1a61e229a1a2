"""Which nodes the page shows, and what it says of them."""

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from elastic_pytorch_client.page.node_rows import MAX_NODES, nodes_of
from elastic_pytorch_client.reading.job_view import (
    Condition,
    JobView,
    RootCause,
    Straggler,
    Worker,
    view_job,
)
from elastic_pytorch_client.reading.node_ends import NodeEnd
from elastic_pytorch_client.reading.nodes import NodeView

from tests.plugin.page.busy_cluster import cluster_of
from tests.plugin.recorded_cluster import job_of

NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)
CALM = replace(
    job_of("whole"), workers=tuple(Worker(f"w-{i}", i, i, f"node-{i}", "Running") for i in range(2))
)


def shown(jobs: Iterable[JobView], nodes: Sequence[NodeView] | None = None) -> Any:
    return json.loads(json.dumps(nodes_of(jobs, nodes, NOW), allow_nan=False))


def with_worker(state: str) -> JobView:
    return replace(CALM, workers=(Worker("w-9", 9, None, "bad", state),))


def failed(ago: timedelta | None, *, ended: bool = False, **fields: Any) -> JobView:
    cause = RootCause(
        "w-9", 3, 1, "", "<b>boom</b>", "bad", time=None if ago is None else NOW - ago
    )
    cause = replace(cause, **fields)
    over = (Condition("Failed", true=True, reason="", message="", since=None),)
    return replace(CALM, root_cause=cause, conditions=over if ended else CALM.conditions)


def node(**fields: Any) -> NodeView:
    return replace(NodeView("bad", ready=True, cordoned=False, allocatable={}), **fields)


SPOT = NodeEnd("announces its end by taint spot", sure=True)


def maintained(wait: timedelta) -> NodeView:
    return node(end=NodeEnd("announces its end by label x", sure=True, at=NOW + wait))


@pytest.mark.parametrize(
    ("found", "state", "tone", "what"),
    [
        (with_worker("Lost"), "suspect", "bad", "w-9 is lost: new workers keep away from here"),
        (with_worker("Silent"), "silent", "quiet", "w-9 has not been heard of"),
        (
            replace(CALM, stragglers=(Straggler(3, "w-9", "bad", "1.4", "1"),)),
            *("slow", "busy", "rank 3 (w-9) works 1.4 times as long in a step as the median"),
        ),
        (failed(timedelta(hours=2)), "failure", "busy", "w-9 failed here with exit code 1"),
        (
            failed(timedelta(hours=2), ended=True, signal="SIGBUS"),
            *("failure", "busy", "w-9 failed here with signal SIGBUS"),
        ),
        (failed(None), "failure", "busy", "w-9 failed here with exit code 1"),
        (failed(None, exit_code=None), "failure", "busy", "w-9 failed here with a hang"),
        (failed(None, exit_code=None, rank=None), "failure", "busy", "w-9 failed here"),
        (node(ready=False), "not ready", "bad", "the node is not ready"),
        (node(cordoned=True), "cordoned", "quiet", "the node is cordoned: it takes no more pods"),
        (node(end=SPOT), "ends soon", "bad", "the node announces its end by taint spot"),
        (
            node(end=replace(SPOT, sure=False)),
            *("may end", "quiet", "the node announces its end by taint spot"),
        ),
        (
            node(end=NodeEnd("reports a fault by x", sure=True, fault=True)),
            *("fault", "bad", "the node reports a fault by x"),
        ),
        (
            maintained(timedelta(minutes=9)),
            *("ends soon", "bad", "the node announces its end by label x"),
        ),
        (
            maintained(timedelta(hours=9)),
            *("ends later", "quiet", "the node announces its end by label x"),
        ),
    ],
)
def test_what_is_the_matter(found: JobView | NodeView, state: str, tone: str, what: str) -> None:
    data = shown([], [found]) if isinstance(found, NodeView) else shown([found])
    [row] = data["nodes"]
    [finding] = row["findings"]
    assert (row["name"], row["state"], row["tone"]) == ("bad", state, tone)
    assert finding["what"] == what
    assert finding["job"] == (None if isinstance(found, NodeView) else ["team", "char-lm"])


@pytest.mark.parametrize(
    "found",
    [
        CALM,
        failed(timedelta(days=2), ended=True),
        failed(None, ended=True),
        replace(
            failed(None, ended=True),
            root_cause=None,
            stragglers=(Straggler(3, "w-9", "bad", "1.4", "1"),),
        ),
        replace(CALM, root_cause=RootCause("w-9", 3, 1, "", "")),
    ],
)
def test_what_is_no_trouble(found: JobView) -> None:
    healthy = [node(), maintained(timedelta(hours=-2))]
    assert shown([found], healthy)["nodes"] == []


def test_the_worst_comes_first_and_others_are_counted() -> None:
    slow = Straggler(0, "w-0", "node-0", "1.4", "1")
    jobs = [
        replace(CALM, stragglers=(slow,)),
        replace(CALM, name="other", stragglers=(replace(slow, node="node-7"),) * 20),
    ]
    nodes = [
        node(name="node-5", end=SPOT),
        node(name="node-6", cordoned=True),
        node(name="node-4", ready=False),
    ]
    data = shown(jobs, nodes)
    assert [row["name"][-1] for row in data["nodes"]] == ["4", "5", "7", "0", "6"]
    assert (data["well"], data["listed"], data["more"]) == (1, True, 0)
    first = data["nodes"][3]
    assert (first["workers"], first["jobs"], first["moreJobs"]) == (2, ["char-lm", "other"], 0)
    assert (len(data["nodes"][2]["findings"]), data["nodes"][2]["moreFindings"]) == (8, 12)
    assert shown(jobs)["listed"] is False


def test_a_large_cluster_is_cut() -> None:
    data = shown([], [node(name=f"node-{i}", ready=False) for i in range(MAX_NODES + 7)])
    assert (len(data["nodes"]), data["more"]) == (MAX_NODES, 7)


def test_texts_have_no_commands_for_a_terminal_and_are_cut() -> None:
    job = replace(CALM, stragglers=(Straggler(3, f"\x1b[31m<b>{'x' * 5000}", "bad", "1.4", "1"),))
    [finding] = shown([job])["nodes"][0]["findings"]
    assert finding["what"].startswith("rank 3 (<b>xxx")
    assert len(finding["what"]) == 300


def test_a_thousand_jobs_are_judged_in_no_time() -> None:
    jobs = [view_job(manifest) for manifest in cluster_of(1000, NOW).list_jobs("team")]
    began = time.process_time()
    shown(jobs)
    assert time.process_time() - began < 5, "it takes some hundredths of a second"
