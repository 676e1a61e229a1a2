"""Whatever a pod sends to the agents' API, it is answered, and no other pod or job is touched."""

import asyncio
import json
import math
from collections.abc import Iterator

import aiohttp
import pytest
from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.agents.http_api import AgentApi, listening
from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.agents.token_review import TokenReviewer
from elastic_pytorch_operator.api.resources import NODES, PODS
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.reconcile.observe import observe
from elastic_pytorch_operator.spec.job import JobKey, parse_job
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.builders import TIME, a_manifest, a_worker_pod

FIELDS = [
    *(
        "incarnation",
        "state",
        "round",
        "rank",
        "worldSize",
        "localWorldSize",
        "port",
        "restarts",
        "progress",
        "failure",
    ),
    *(
        "step",
        "firstStep",
        "total",
        "loss",
        "checkpointStep",
        "checkpoints",
        "exitCode",
        "signal",
        "ageSeconds",
        "message",
        "traceback",
    ),
]
STATES = ["ready", "running", "stopping", "failed", "succeeded", "leaving"]
WORDS = st.one_of(st.text(), st.sampled_from(["\ud800", "\x00", "x" * 5000, *STATES]))
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([2**53, 2**64, 10**400, -1, math.inf, math.nan])
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(FIELDS), WORDS), inner),
    ),
    max_leaves=20,
)
# Nearly right: these come further.
BEATS = st.fixed_dictionaries(
    {"incarnation": WORDS, "state": st.sampled_from(STATES), "round": st.integers(0, 2**53)},
    optional={name: JSON for name in FIELDS if name not in ("incarnation", "state", "round")},
)


class TwoJobs:
    def __init__(self) -> None:
        self.cluster, self.cache, self.registry = FakeCluster(), Cache(), AgentRegistry()
        self.asked: set[JobKey] = set()
        self.runner = asyncio.Runner()
        self.runner.run(self._start())

    async def _start(self) -> None:
        self.cluster.add_node("n1")
        manifests = [a_manifest("loud"), a_manifest("quiet")]
        for manifest in manifests:
            await self.cluster.create(PODS, a_worker_pod(parse_job(manifest), 0))
        pods, nodes = await self.cluster.list_all(PODS), await self.cluster.list_all(NODES)
        self.cache.replace_all(manifests, pods, nodes, 0.0)
        api = AgentApi(
            self.cache,
            self.registry,
            TokenReviewer(self.cluster),
            lambda key, _: self.asked.add(key),
            lines_per_second=1e6,
        )
        self.serving = listening(api, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{await self.serving.__aenter__()}"
        self.token = self.cluster.issue_token("default", "loud-worker-0-x7k2p")
        self.session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {self.token}"})

    async def _stop(self) -> None:
        await self.session.close()
        await self.serving.__aexit__(None, None, None)

    def close(self) -> None:
        self.runner.run(self._stop())
        self.runner.close()

    def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        async def ask() -> tuple[int, bytes]:
            async with self.session.request(method, self.url + path, data=body) as answer:
                return answer.status, await answer.read()

        return self.runner.run(asyncio.wait_for(ask(), 10))

    def check(self) -> None:
        """Nobody else is touched, and what was heard can be decided upon and written down."""
        assert self.asked <= {JobKey("default", "loud")}
        assert not self.registry.job("uid-quiet").agents
        for key in self.cache.keys:
            job = self.cache.job(key)
            assert job is not None
            assert not isinstance(job, ValueError)
            seen = observe(job, self.cache, self.registry, Observed(1e6, TIME, service_exists=True))
            for action in plan(job, seen, Memory()).actions:
                json.dumps(str(action)).encode()
                if hasattr(action, "status"):
                    json.dumps(action.status, ensure_ascii=False, allow_nan=False).encode()


@pytest.fixture(scope="module")
def jobs() -> Iterator[TwoJobs]:
    jobs = TwoJobs()
    yield jobs
    jobs.close()


@given(
    body=st.one_of(
        st.binary(max_size=200),
        JSON.map(json.dumps).map(str.encode),
        BEATS.map(json.dumps).map(str.encode),
    )
)
def test_lines_of_a_stream(jobs: TwoJobs, body: bytes) -> None:
    status, told = jobs.send("POST", "/v1/agent", body)
    assert status == 200
    for line in map(json.loads, told.splitlines()):
        assert line.keys() <= {"heartbeat", "round"} or line["refused"]["status"] == 400
    jobs.check()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/agent"),
        ("DELETE", "/v1/agent"),
        ("POST", "/v1/../healthz"),
        ("POST", "/v2/agent"),
        ("PUT", "/" + "x" * 4000),
    ],
)
def test_other_requests(jobs: TwoJobs, method: str, path: str) -> None:
    assert jobs.send(method, path)[0] in (404, 405)
