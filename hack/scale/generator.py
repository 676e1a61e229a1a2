"""The load generator: in a pod of the cluster, one simulated agent for each pod of a fake node.

Each agent speaks from its pod's address, with a token of its pod, to the operator that its pod's
environment names. Events are printed as JSON, a line each. It imports the standard library,
aiohttp, and modules of the worker image that need no others.
"""

import asyncio
import gc
import itertools
import json
import os
import resource
import signal
import ssl
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
from elastic_pytorch.operator_link.retry import RefusedError
from elastic_pytorch.operator_link.rounds import Round

from scale.agent import Agent, Job, Training, operator_of
from scale.connection import Connection

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
AUDIENCE = "elastic-pytorch-operator"
JOB_LABEL = "elasticpytorch.dev/job-name"
TICK_SECONDS = 0.2
IMPORT_SECONDS = 2.0  # from a container's start to its agent's
TOKEN_SECONDS = 3600  # as in pods
RENEWED_SHARE = 0.8  # of a token's time, as the kubelet renews it
TOKEN_REQUESTS = 16  # at once
TOKEN_REQUEST_SECONDS = 30.0
SELECTOR = "elasticpytorch.dev/role%3Dworker"
RETRY_SECONDS = 1.0


LINES = itertools.count(1)


def say(**fields: Any) -> None:
    print(json.dumps({"line": next(LINES), "at": round(time.time(), 3), **fields}), flush=True)


class WatchEnded(Exception): ...


@dataclass(frozen=True, slots=True)
class Api:
    url: str
    token: Path
    tls: ssl.SSLContext | None = None

    def options(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token.read_text().strip()}"}
        return {"headers": headers, "ssl": self.tls or False}


@dataclass(slots=True)
class Group:
    """A job's agents, and those that do not know its newest round yet."""

    job: Job = field(default_factory=lambda: Job(Training()))
    round: int = 0
    size: int = 0
    pending: set[str] = field(default_factory=set)
    unheard: set[str] = field(default_factory=set)  # unanswered since `listen`


class Watched:
    """Prints the events of agents, each once per job."""

    def __init__(self) -> None:
        self.groups: defaultdict[str, Group] = defaultdict(Group)
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()  # of heartbeats
        self.waits: list[float] = []  # for answers to heartbeats, since the last tick

    def told(self, agent: Agent, round_: Round) -> None:
        group = self.groups[agent.job_name]
        if round_.number > group.round:
            group.round, group.size = round_.number, round_.size
            group.pending = set(group.job.agents)
        if round_.number == group.round:
            self._strike_off(agent, group.pending, event="told", size=group.size)

    def heard(self, agent: Agent, seconds: float, error: str) -> None:
        if error:
            self.counts["failed"] += 1
            self.errors[error] += 1
            return
        self.counts["heartbeats"] += 1
        self.waits.append(seconds)
        self._strike_off(agent, self.groups[agent.job_name].unheard, event="heard")

    def gone(self, agent: Agent) -> None:
        group = self.groups[agent.job_name]
        self._strike_off(agent, group.unheard, event="heard")
        self._strike_off(agent, group.pending, event="told", size=group.size)

    def listen(self) -> None:
        """Reports of each job from now on when all of its agents have been answered."""
        say(event="listen")
        for group in self.groups.values():
            group.unheard = set(group.job.agents)

    @staticmethod
    def _strike_off(agent: Agent, waiting: set[str], **event: Any) -> None:
        if agent.name in waiting:
            waiting.discard(agent.name)
            if not waiting:
                say(job=agent.job_name, **event)


class Generator:
    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._watched = Watched()
        # Names are never reused.
        self._seen: dict[str, set[str]] = {what: set() for what in ("created", "bound", "running")}
        self._present: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asking = asyncio.Semaphore(TOKEN_REQUESTS)

    async def run(self) -> None:
        path = f"{self._api.url}/api/v1/namespaces/{self._namespace}/pods?labelSelector={SELECTOR}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._watched.listen)
        ticks = asyncio.create_task(self._tick())
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session:
                while not ticks.done():
                    with suppress(aiohttp.ClientError, TimeoutError, WatchEnded):
                        await self._follow(session, path)
                    await asyncio.sleep(RETRY_SECONDS)
            ticks.result()
        finally:
            for task in (ticks, *self._tasks.values()):
                task.cancel()

    async def _follow(self, session: aiohttp.ClientSession, path: str) -> None:
        ask = self._api.options()
        async with session.get(path, **ask, raise_for_status=True) as answer:
            listed = await answer.json()
        for name in self._present - {pod["metadata"]["name"] for pod in listed["items"]}:
            self._end(name)
        for pod in listed["items"]:
            self._observe(session, "ADDED", pod)
        version = listed["metadata"]["resourceVersion"]
        watch = f"{path}&watch=1&resourceVersion={version}"
        async with session.get(watch, **ask, raise_for_status=True) as answer:
            async for line in answer.content:
                event = json.loads(line)
                self._observe(session, event["type"], event["object"])

    async def _tick(self) -> None:
        due = time.monotonic()
        while True:
            due += TICK_SECONDS
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            late, due = time.monotonic() - due, max(due, time.monotonic() - TICK_SECONDS)
            waits, self._watched.waits = sorted(self._watched.waits), []
            spread = {"median": waits[len(waits) // 2], "worst": waits[-1]} if waits else {}
            figures = {"late": round(late, 3), "waits": spread}
            say(event="tick", **figures, errors=self._watched.errors, **self._watched.counts)

    def _observe(self, session: aiohttp.ClientSession, change: str, pod: dict[str, Any]) -> None:
        if change not in ("ADDED", "MODIFIED", "DELETED"):
            raise WatchEnded(change)  # too old
        name = pod["metadata"]["name"]
        if change == "DELETED":
            self._end(name)
            return
        self._present.add(name)
        runs = pod["status"].get("podIP") and not pod["metadata"].get("deletionTimestamp")
        bound = pod["spec"].get("nodeName")
        for what, reached in (("created", True), ("bound", bound), ("running", runs)):
            if reached and name not in self._seen[what]:
                self._seen[what].add(name)
                self._watched.counts[what] += 1
                if what == "running":
                    self._tasks[name] = task = asyncio.create_task(self._live(session, pod))
                    task.add_done_callback(_report_end)

    def _end(self, name: str) -> None:
        self._watched.counts["deleted"] += 1
        self._present.discard(name)
        if (task := self._tasks.pop(name, None)) is not None:
            task.cancel()

    async def _live(self, session: aiohttp.ClientSession, pod: dict[str, Any]) -> None:
        """A container: it imports torch, then it is an agent."""
        name, job = pod["metadata"]["name"], pod["metadata"]["labels"][JOB_LABEL]
        await asyncio.sleep(IMPORT_SECONDS)
        token = Token(self._api, session, self._asking, pod)
        link = Connection(operator_of(pod), pod["status"]["podIP"])
        group = self._watched.groups[job]
        agent = Agent(name, job, group.job, link, token.find, self._watched)
        try:
            await agent.run()
        finally:
            self._watched.gone(agent)


class Token:
    def __init__(
        self,
        api: Api,
        session: aiohttp.ClientSession,
        asking: asyncio.Semaphore,
        pod: dict[str, Any],
    ) -> None:
        self._api, self._session, self._asking = api, session, asking
        metadata, account = pod["metadata"], pod["spec"].get("serviceAccountName", "default")
        namespace = f"{api.url}/api/v1/namespaces/{metadata['namespace']}"
        self._url = f"{namespace}/serviceaccounts/{account}/token"
        bound = {"name": metadata["name"], "uid": metadata["uid"]}
        spec = {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS}
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", **bound}
        self._body = {"spec": spec}
        self._token, self._renew_at = "", 0.0

    async def find(self) -> str:
        """Returns the token; raises OSError if the API server refuses."""
        if time.monotonic() >= self._renew_at:
            async with self._asking:
                self._token = await self._ask()
            self._renew_at = time.monotonic() + RENEWED_SHARE * TOKEN_SECONDS
        return self._token

    async def _ask(self) -> str:
        limit = aiohttp.ClientTimeout(total=TOKEN_REQUEST_SECONDS)
        asked = self._session.post(self._url, json=self._body, timeout=limit, **self._api.options())
        try:
            async with asked as answer:
                if answer.status >= HTTPStatus.BAD_REQUEST:
                    raise RefusedError(answer.status, await answer.text(), None)
                return str((await answer.json())["status"]["token"])
        except aiohttp.ClientError as error:
            raise OSError(repr(error)) from error


def _report_end(task: asyncio.Task[None]) -> None:
    """An agent ends only by being cancelled; other ends are faults of this program."""
    if not task.cancelled() and (error := task.exception()) is not None:
        say(event="broken", error=repr(error))


async def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # As in the operator: by default, ten thousand agents would wait seconds for the collector.
    gc.set_threshold(50_000)
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    api = Api(f"https://{host}:{port}", ACCOUNT / "token", tls)
    await Generator(api, os.environ["JOBS_NAMESPACE"]).run()


if __name__ == "__main__":
    asyncio.run(main())
