import asyncio
import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from measure.api import Api
from measure.cluster import LEASE, LEASES
from measure.commands import Commands
from measure.kind_cluster import OPERATOR_NAMESPACE
from scale import results, stage
from scale.__main__ import KEPT, PAGE
from scale.connection import in_time
from scale.meter import Meter, rates, samples
from scale.observations import Observations
from scale.results import Phase, Result
from scale.stage import Stage

from tests.hack.stand_in_api import Server
from tests.job_schema import VALIDATOR

OPERATORS = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"


def observed(*said: dict[str, Any]) -> Observations:
    """Of a log that is read twice."""
    found = Observations()
    lines = [json.dumps({"line": number, **fields}) for number, fields in enumerate(said, 1)]
    for line in (*lines, "Traceback (most recent call last):", "[]", *lines):
        found.read(line)
    return found


def test_log_of_the_generator_says_when_what_was_reached() -> None:
    found = observed(
        *(
            {"event": "tick", "at": at, "created": n}
            for at, n in ((1.0, 0), (1.2, 40), (1.4, 100), (1.6, 100))
        )
    )
    seen = (found.reached("created", 100), found.reached("created", 101), len(found.ticks))
    assert seen == (1.4, None, 4)
    told = (
        {"event": "told", "at": at, "job": "a", "round": at, "size": size, "cause": ""}
        for at, size in ((1, 6), (2, 10))
    )
    found = observed(*told)
    moments = (
        found.first("a"),
        found.first("a", size=10),
        found.first("a", after=2.0),
        found.first("b"),
    )
    assert moments == (1, 2, None, None)
    assert (found.whole("a", 10), found.whole("a", 6), found.whole("b", 10)) == (True, False, False)
    heard = [{"event": "heard", "at": at, "job": job} for at, job in ((1, "a"), (3, "a"), (4, "b"))]
    assert observed(heard[0], {"event": "listen", "at": 2}, *heard[1:]).heard == {"a": 3, "b": 4}
    waits = {"median": 0.01, "worst": 0.5}
    counted = (
        {
            "heartbeats": at * 10,
            "failed": at,
            "late": at / 10,
            "waits": waits,
            "errors": {"503": at},
        }
        for at in range(5)
    )
    part = observed(
        *({"event": "tick", "at": at, **each} for at, each in enumerate(counted))
    ).between(1, 3)
    shown = (part["heartbeats_per_second"], part["heartbeats_failed"], part["errors"])
    assert shown == (10, 2, {"503": 2})


async def test_phase_is_what_metrics_have_grown_by_and_is_kept_if_it_breaks_off(
    server: Server, api: Api
) -> None:
    def tell(cpu: float, mib: int, posts: int) -> None:
        """What two operators count: the standby nothing."""
        server.lines[OPERATORS] = [
            json.dumps({"items": [{"metadata": {"name": name}} for name in "ab"]})
        ]
        server.lines[f"{LEASES}/{LEASE}"] = [json.dumps({"spec": {"holderIdentity": "a"}})]
        for pod, share in (("a", 1), ("b", 0)):
            server.lines[f"{OPERATORS}/{pod}:8781/proxy/metrics"] = [
                f"process_cpu_seconds_total {cpu * share}",
                f"process_resident_memory_bytes {mib * share * 2**20}",
                f'rest_client_requests_total{{code="201",method="POST"}} {posts * share}',
            ]

    meter = Meter(Stage(api, Commands(Path("kubectl"), Path("kubeconfig")), jobs=1, workers=1))
    tell(cpu=10.0, mib=300, posts=100)
    async with meter.phase("quiet"):
        tell(cpu=14.0, mib=200, posts=700)
    with pytest.raises(TimeoutError):
        async with meter.phase("takeover"):
            del server.lines[f"{OPERATORS}/a:8781/proxy/metrics"]
            raise TimeoutError
    quiet, takeover = meter.phases["quiet"], meter.phases["takeover"]
    assert (quiet.leader_mib, quiet.standby_mib, quiet.standby_cores) == (300, 0, 0.0)
    assert quiet.leader_cores
    assert quiet.operator_requests["POST"] == pytest.approx(600 / 4 * quiet.leader_cores, rel=0.01)
    assert (takeover.leader_cores, takeover.leader_mib) == (None, 200), "the leader has gone"
    text = (
        'total{code="200",verb="LIST"} 7\ntotal{code="410",verb="LIST"} 2\n'
        'total{verb="POST"} 1e+03\ntotal_more{verb="GET"} 5\n'
    )
    assert samples(text, "total", "verb") == {"LIST": 9, "POST": 1000}
    assert rates({"LIST": 5.0}, {"LIST": 9.0, "POST": 1000.0, "GET": 0.0}, 10.0) == {
        "POST": 100.0,
        "LIST": 0.4,
    }


def test_tables_have_a_column_for_each_kept_run_and_say_what_was_not_measured(
    tmp_path: Path,
) -> None:
    phase = Phase(60.0, leader_cores=0.3, leader_mib=210.0, operator_requests={"POST": 3.5})
    leases = ["--lease-duration=4", "--renew-deadline=3", "--retry-period=1"]
    operator = {"resources": {"limits": {"memory": "512Mi"}}, "leases": leases}
    figures: tuple[Any, ...] = (
        {"created": 6.25, "created_per_second": 160.0},
        {"loss": (0.1, 0.25, 0.3)},
        {"quiet": phase},
    )
    results.write(tmp_path, Result(100, 10, "now", operator, *figures))
    results.write(tmp_path, Result(1, 4000, "now", error="TimeoutError"))
    text = results.tables(results.read_all(tmp_path))
    rows = [
        "jobs x workers | 100 x 10 | 1 x 4000",
        "operator's memory limit | 512Mi | -",
        "created a second | 160 | -",
    ]
    rows += [
        "its Lease, deadline and pause, s | 4, 3, 1 | -",
        "lost pod to round, s | 0.10, 0.25, 0.30 | -",
    ]
    assert not [
        row for row in [*rows, "leader, quiet: cores | 0.30 | -"] if f"| {row} |" not in text
    ]


def test_page_has_the_figures_that_are_kept() -> None:
    text = PAGE.read_text()
    assert text == results.page(text, results.read_all(KEPT)), "run `make scale ARGS=--docs`"


def test_generator_gets_all_modules_that_it_imports_and_its_jobs_are_valid() -> None:
    for workers in (1, 2, 4000):
        VALIDATOR.validate(stage.job_manifest("job-7", workers))
    text = "\n".join((folder / path).read_text() for path, folder in stage.CODE.items())
    imported = {
        f"{name.replace('.', '/')}.py"
        for name in re.findall(r"^from ((?:scale|elastic_pytorch)\S*) import", text, re.M)
    }
    assert imported | {"scale/__init__.py", "scale/generator.py"} == set(stage.CODE)


async def test_answer_that_has_come_in_time_counts_although_the_process_was_late() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        async with in_time(0.05):
            reading = asyncio.create_task(asyncio.get_running_loop().sock_recv(near, 10))
            await asyncio.sleep(0)
            far.send(b"answer")
            time.sleep(0.2)  # noqa: ASYNC251  the process is late
            assert await reading == b"answer"
    with pytest.raises(TimeoutError):
        async with in_time(0.05):
            await asyncio.Event().wait()
