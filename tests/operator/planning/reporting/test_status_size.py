"""The whole status of the largest job stays small, whatever pods and scripts say.

etcd takes objects of 1.5 MB, and each write stores a new version of the whole object. Here names
are as long as labels may be, and texts are ASCII.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.failure import Ending, FailureRecord
from elastic_pytorch_operator.model.observed import MAX_METRICS, AgentView, Observed, PodView
from elastic_pytorch_operator.model.round import Member, Round
from elastic_pytorch_operator.planning.failures.budget import Budget
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.reporting.history import MAX_BYTES as HISTORY_BYTES
from elastic_pytorch_operator.planning.reporting.interruption import (
    PHASES,
    Interruption,
    Interruptions,
)
from elastic_pytorch_operator.planning.reporting.status import Findings, describe_job
from elastic_pytorch_operator.planning.reporting.stragglers import Straggler, Stragglers
from elastic_pytorch_operator.planning.workers.liveness import assess_workers

from tests.operator.builders import (
    NOW,
    TIME,
    Progress,
    a_job,
    a_pending_pod,
    a_pod,
    an_agent,
    observed,
)
from tests.situations import situations

pytestmark = pytest.mark.simulation

WORKERS, MAX_BYTES = 4096, 64 * 1024
LONG = "x" * 100_000
BOOM = FailureRecord("w" * 63, 1, 1, "SIGSEGV", LONG, NOW, node="n" * 63)
LIMITS = {"replicas": WORKERS, "maximum": WORKERS}
METRICS = tuple((f"{number:02d}".ljust(63, "m"), -1.23456e-100) for number in range(MAX_METRICS))
PROGRESS = Progress(
    step=10**12, total=10**12, loss=-1.234e-100, first_step=1, checkpoint_step=10**12
)


def a_group(every: int) -> Observed:
    """A job of which some workers train, and each other one waits for another reason."""

    def named(pod: PodView) -> PodView:
        name = f"{pod.index:04d}".ljust(63, "w")
        return replace(
            pod,
            name=name,
            node=f"{pod.index:04d}".ljust(63, "n") if pod.started else "",
            creation_time=TIME,
        )

    pods = [
        named(
            a_pod(i)
            if i % every == 0
            else a_pending_pod(i, waiting=f"ImagePullBackOff: {i} {LONG[:500]}")
        )
        for i in range(WORKERS)
    ]
    members = tuple(Member(pod.name, "10.0.0.1") for pod in pods if pod.started)
    agents: list[AgentView] = [
        an_agent(m.worker, rank=rank, progress=replace(PROGRESS, metrics=METRICS))
        for rank, m in enumerate(members)
    ]
    return observed(
        pods, agents, round=Round(10**9, members, 29500, "FirstRound", "", NOW), last_heard_at=NOW
    )


@pytest.mark.parametrize("every", [1, 2, 3, 64])
@situations(
    "said",
    {
        "trains with few": {"refusals": [LONG] * 3, "waiting": LONG, "cooling": LONG},
        "backs off": {"budget": Budget(failures=3, total=3, last=BOOM, backoff_until=NOW + 60)},
        "fails": {"ending": Ending(False, "PodLost", LONG, BOOM)},
    },
)
def test_status_of_the_largest_job(every: int, said: dict[str, Any]) -> None:
    seen = a_group(every)
    old: dict[str, Any] = {
        "rootCause": BOOM.as_status(),
        "operatorState": {"lastGrowthTime": TIME},
        "startTime": TIME,
    }
    interruption = Interruption(
        2 * 10**9, "WorkerLost", NOW, 1, 1e6, 10**12, phases=dict.fromkeys(PHASES, 1e6), time=TIME
    )
    entry = interruption.as_status() | {"replicas": WORKERS, "count": 10**6}
    old["history"] = [entry | {"round": 10**9 + number} for number in range(100)]
    slow = tuple(Straggler(f"{'w' * 60}-{n}", n, n, "n" * 60, 1e6, 1e6, 1e6) for n in range(100))
    known = {
        "target": Target(WORKERS),
        "budget": Budget(last=BOOM),
        "interruptions": Interruptions(last=interruption),
        "stragglers": Stragglers(slow),
        **said,
    }
    findings = Findings(**known)
    status = describe_job(
        a_job(**LIMITS, status=old), seen, assess_workers(seen), seen.round, findings
    )
    assert len(status["workers"]) == 128
    assert len(json.dumps(status["history"], separators=(",", ":")).encode()) <= HISTORY_BYTES
    assert len(json.dumps(status).encode()) < MAX_BYTES
