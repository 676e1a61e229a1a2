"""What one object or heartbeat may cost: what holds the event loop delays all agents."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.agents.heartbeat import MalformedHeartbeat, parse_heartbeat
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.stream_lines import MAX_LINE_BYTES
from elastic_pytorch_operator.api import names
from elastic_pytorch_operator.api.manifest import copied
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.job_size import MAX_BYTES
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.any_jobs import TEMPLATE, places
from tests.operator.builders import KEY, NOW, a_manifest, a_pod, a_round, observed
from tests.operator.event_loop_time import fits

MAX_CALLS, MAX_CALLS_A_WORKER = 1_000_000, 2_000  # 40 ms and 80 µs where a call takes 40 ns
ETCD_BYTES = 1_400_000  # of an object
NODES = {
    f"node-{n}": NodeView(f"node-{n}", labels={"pool": "a", "rack": f"r{n}"}) for n in range(100)
}
BEAT: dict[str, Any] = {
    "incarnation": "i",
    "state": "running",
    "round": 1,
    "rank": 0,
    "worldSize": 3,
    "localWorldSize": 1024,
    "progress": {
        "step": 5,
        "firstStep": 1,
        "checkpoints": 1,
        "workWindows": 2,
        "workSeconds": [1, 3],
        "stepSeconds": 3,
        "metrics": {"accuracy": 0.5},
        "failedSaves": 3,
        "saveError": "No space left on device",
    },
    "places": {
        "ageSeconds": 0,
        "byLocalRank": [{"kind": "collective", "operation": "all_reduce", "frame": "train.py:1"}],
    },
}
FAILURE = {
    "exitCode": 1,
    "exception": "E",
    "message": "recv from a failed",
    "traceback": "gloo timed out",
    "ageSeconds": 0.0,
}
FAILED = {**BEAT, "state": "failed", "failure": FAILURE}


def grown(whole: Any, way: tuple[Any, ...], most_bytes: int) -> Any:
    """An object of about that many bytes, because one place holds more of what it holds."""
    changed = copied(whole)
    holder = changed
    for name in way[:-1]:
        holder = holder[name]
    value = holder[way[-1]]
    room = max(0, most_bytes - len(json.dumps(whole)))
    if isinstance(value, list):
        kinds = value or [{}]
        value = [
            _another(kinds[n % len(kinds)], n)
            for n in range(room // (len(json.dumps(kinds[0])) + 4))
        ]
    elif isinstance(value, dict):
        one = next(iter(value.values()), "x")
        value = {**value, **{f"k{n}": one for n in range(room // (len(json.dumps(one)) + 12))}}
    elif isinstance(value, str):
        value = (value or "x") * (room // len(value or "x"))
    holder[way[-1]] = value
    return changed


def _another(value: Any, number: int) -> Any:
    """One that differs, as lists of names, keys or values must."""
    if isinstance(value, dict):
        return {
            **value,
            **{
                name: f"{value[name]}{number}"
                for name in ("name", "key")
                if isinstance(value.get(name), str)
            },
        }
    return f"{value}{number}" if isinstance(value, str) else value


def calls_for(workers: int) -> int:
    return MAX_CALLS + MAX_CALLS_A_WORKER * workers


def take(manifest: dict[str, Any]) -> Job:
    cache = Cache()
    cache.observe_change(names.KIND, "ADDED", manifest, 1.0)
    job = cache.job(KEY)
    assert isinstance(job, Job)
    return job


def plan_of(job: Job, beats: list[dict[str, Any]]) -> Callable[[], object]:
    """Plans a job whose workers sent these heartbeats, the last from all that remain."""
    registry, names_of = AgentRegistry(), [f"w{n}" for n in range(job.wanted)]
    for number, worker in enumerate(names_of):
        beat = {**beats[min(number, len(beats) - 1)], "rank": number, "worldSize": job.wanted}
        registry.note_heartbeat(job.uid, parse_heartbeat(worker, beat, NOW))
    pods = [a_pod(n, node=f"node-{n % 100}") for n in range(job.wanted)]
    agents = [*registry.agents(job.uid, set(names_of)).values()]
    seen = observed(pods, agents, round=a_round(*range(job.wanted)), last_heard_at=NOW, nodes=NODES)
    memory = plan(job, seen, Memory()).memory
    return lambda: plan(job, seen, memory)


JOB = a_manifest(replicas=64, minimum=1, maximum=64, template=TEMPLATE, failurePolicy={"rules": [
    {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}},
    {"action": "Ignore", "onPodConditions": [{"type": "Mine"}]},
]})  # fmt: skip
PLACES = [way for way in places(JOB) if way[0] == "spec"]


@given(
    way=st.sampled_from(PLACES),
    size=st.sampled_from([20_000, MAX_BYTES - 4_000, ETCD_BYTES]),
    failed=st.booleans(),
)
def test_no_job_holds_the_event_loop_by_its_size(
    way: tuple[Any, ...], size: int, failed: bool
) -> None:
    manifest = grown(JOB, way, size)
    manifest["status"] = {"round": 1}
    assert fits(lambda: take(manifest), calls_for(64))
    job = take(manifest)
    assert fits(plan_of(job, [FAILED, BEAT] if failed else [BEAT]), calls_for(job.wanted))
    if size == ETCD_BYTES and len(json.dumps(manifest)) > size // 2:
        assert job.problem


BEATS = [(beat, way) for beat in (BEAT, FAILED) for way in places(beat)]


@given(beat=st.sampled_from(BEATS), workers=st.sampled_from([1, 3, 64, 256]), last=st.booleans())
def test_no_heartbeat_holds_the_event_loop_by_its_size(
    beat: tuple[dict[str, Any], tuple[Any, ...]], workers: int, last: bool
) -> None:
    large = grown(beat[0], beat[1], MAX_LINE_BYTES)
    job = take(a_manifest(replicas=workers, minimum=1, maximum=workers))
    assert isinstance(job, Job)
    try:
        parse_heartbeat("w0", large, NOW)
    except MalformedHeartbeat:
        return
    assert fits(lambda: parse_heartbeat("w0", large, NOW), MAX_CALLS)
    assert fits(
        plan_of(replace(job, status={"round": 1}), [BEAT, large] if last else [large, BEAT]),
        calls_for(workers),
    )


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_no_job_holds_the_event_loop_by_its_metadata(field: str) -> None:
    manifest = a_manifest()
    manifest["metadata"][field] = {f"team.example.com/{n}": "x" for n in range(ETCD_BYTES // 32)}
    assert fits(lambda: take(manifest), MAX_CALLS)
