"""The job that faults are made to, and its repair after each."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from elastic_pytorch_client.reading.job_view import JobView
from elastic_pytorch_local.faults.steps import Step
from elastic_pytorch_local.faults.watcher import Watcher
from measure.api import pods_path
from measure.cluster import (
    TEMPLATE_LABEL,
    ClusterDriver,
    is_alive,
    is_ready,
    leading_pod,
    restarts_of,
)
from measure.engine import Target
from measure.kind_cluster import OPERATOR_NAMESPACE, example
from measure.outcome import trains_quietly

from bench.trials import Stage

ENDLESS = 1_000_000_000  # steps
START_SECONDS = 120.0
OPERATOR_SECONDS = 60.0
OPERATOR_LOOK_SECONDS = 0.3
TRIES = 6  # to find a victim
# Between two faults: more than a checkpoint's interval, and enough to renew the failure budget.
QUIET_STEPS = 25

Choose = Callable[["BenchStage", int], Awaitable[Target]]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    choose: Choose  # gets the trial's number
    target: str  # a figure of Outcome
    seconds: float  # the target of the figure's median
    rounds: int  # that it should take
    replicas: int = 3  # before
    after: int = 0  # 0: as before
    whole_seconds: float = inf  # the target until it has its size again


class BenchStage(Stage[Scenario]):
    def __init__(self, driver: ClusterDriver, watcher: Watcher, manifest: dict[str, Any]) -> None:
        self.driver, self.watcher, self._manifest = driver, watcher, manifest
        self._moved: set[str] = set()
        self._before: dict[str, int] = {}

    async def prepare(self, kind: Scenario, *, again: bool) -> None:
        if not again:
            await self.driver.delete_job(self.watcher.name)
            await self.driver.create_job(self._manifest)
        await self.driver.scale_job(self.watcher.name, kind.replicas)
        await self.whole(kind.replicas)

    async def choose(self, kind: Scenario, turn: int) -> Target:
        return await kind.choose(self, turn)

    def wanted(self, kind: Scenario) -> int:
        return kind.after or kind.replicas

    async def recovered(self, kind: Scenario, at: float) -> None:
        await self.whole(self.wanted(kind))

    def steps(self, since: float) -> list[Step]:
        return self.watcher.log.steps(since)

    def view(self) -> JobView:
        return self.watcher.job

    def restarts(self, target: Target | None) -> int:
        now = restarts_of(self.watcher.pods.values())
        if target is None:
            self._before = {pod: now.get(pod, 0) for pod in self.members()}
            return 0
        spared = {*target.pods, *self._moved}
        return sum(
            now.get(pod, count + 1) - count
            for pod, count in self._before.items()
            if pod not in spared
        )

    async def whole(self, world: int) -> None:
        watcher, since = self.watcher, time.time()

        def found() -> bool:
            if watcher.job.state == "Failed":
                raise RuntimeError("the job has failed")
            quiet = trains_quietly(watcher.log.steps(since)[1:], world, QUIET_STEPS)
            pods = sum(map(is_alive, watcher.pods.values()))
            return quiet and len(self.members()) == world == pods

        await watcher.until(found, seconds=START_SECONDS, what=f"{world} workers to train")

    def members(self) -> list[str]:
        """The pods of the current round, in rank order."""
        return [worker.name for worker in self.watcher.job.members]

    def node_of(self, pod: str) -> str:
        return str(self.watcher.pods[pod]["spec"].get("nodeName", ""))

    async def lone_victim(self, *, leader: bool | None) -> str:
        """A member other than rank 0 that is alone on its node, after moving members if necessary.

        With `leader`, the leading operator is on that node, with a standby; None: it may be.
        """
        for _ in range(TRIES):
            leads = await self._leaders_node(stands_by=bool(leader))
            ranked = self.members()
            node_of = {pod: self.node_of(pod) for pod in ranked}
            crowds = Counter(node_of.values())
            lone = {pod for pod, node in node_of.items() if crowds[node] == 1}
            victims = [
                pod for pod in ranked[1:] if pod in lone and leader in (None, node_of[pod] == leads)
            ]
            if victims:
                return victims[-1]
            if crowded := [pod for pod in ranked if pod not in lone]:
                self._moved.add(crowded[-1])
                await self.driver.delete_pod(crowded[-1], force=False)
                await asyncio.sleep(1)
            elif leader:  # another must lead, where a victim is
                await self.end_leader(force=False)
            else:
                break
            await self.whole(len(ranked))
        where = f"(the leading operator there: {leader})"
        raise RuntimeError(f"no worker other than rank 0 is alone on a node {where}")

    async def end_leader(self, *, force: bool) -> float:
        """Deletes the leading operator's pod, waits for another leader; returns when it did."""
        old, at = await leading_pod(self.driver.api), time.time()
        body = {"gracePeriodSeconds": 0} if force else None
        await self.driver.api.ask("DELETE", pods_path(OPERATOR_NAMESPACE, old), body)
        async with asyncio.timeout(OPERATOR_SECONDS):
            while await leading_pod(self.driver.api) in ("", old):  # noqa: ASYNC110  only asking tells
                await asyncio.sleep(OPERATOR_LOOK_SECONDS)
        return at

    async def _leaders_node(self, *, stands_by: bool) -> str:
        async with asyncio.timeout(OPERATOR_SECONDS):
            while True:
                leader, *_ = operators = await self.driver.operators()
                ready = {
                    pod["spec"]["nodeName"] for pod in operators if is_ready(pod) and is_alive(pod)
                }
                if not stands_by or len(ready) >= 2:
                    return str(leader["spec"]["nodeName"])
                await asyncio.sleep(OPERATOR_LOOK_SECONDS)


def read_job(file: Path) -> dict[str, Any]:
    manifest = example(file, steps=ENDLESS)
    manifest["spec"]["template"]["metadata"] = {"labels": TEMPLATE_LABEL}
    return manifest
