"""Measures the cost of a part of a run."""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
from measure.api import ApiError, pods_path
from measure.cluster import leading_pod
from measure.kind_cluster import OPERATOR_NAMESPACE

from scale.results import Phase
from scale.stage import Stage

MEMORY_SECONDS = 5.0  # between two samples
READ = ("process_", "rest_client_")  # metrics
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')
TROUBLE = (ApiError, aiohttp.ClientError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    operators: dict[str, str]  # the metrics of each pod


class Meter:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.phases: dict[str, Phase] = {}

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[None]:
        pods = await self._stage.operators()
        leader = await leading_pod(self._stage.api)
        standby = next((pod for pod in pods if pod != leader), "")
        before = await self._sample(pods)
        memory: dict[str, float] = {}
        _note(memory, before.operators)
        watching = asyncio.create_task(self._watch_memory(memory))
        try:
            yield
        finally:
            watching.cancel()
            after = await self._sample(await self._stage.operators())
            _note(memory, after.operators)
            seconds = after.at - before.at

            def used(pod: str) -> float | None:
                texts = [sample.operators.get(pod, "") for sample in (before, after)]
                if not all(texts):
                    return None
                begin, end = (samples(t, "process_cpu_seconds_total").get("", 0.0) for t in texts)
                return round((end - begin) / seconds, 3)

            def requests(sample: Sample) -> dict[str, float]:
                both = before.operators.keys() & after.operators.keys()
                text = "\n".join(sample.operators[pod] for pod in both)
                return samples(text, "rest_client_requests_total", "method")

            self.phases[name] = Phase(
                seconds=round(seconds, 1),
                leader_cores=used(leader),
                standby_cores=used(standby),
                leader_mib=memory.get(leader),
                standby_mib=memory.get(standby),
                operator_requests=rates(requests(before), requests(after), seconds),
                agents=self._stage.observed.between(before.at, after.at),
            )

    async def _sample(self, pods: dict[str, Any]) -> Sample:
        return Sample(time.time(), await self._read_operators(pods))

    async def _watch_memory(self, most: dict[str, float]) -> None:
        while True:
            with suppress(*TROUBLE):
                _note(most, await self._read_operators(await self._stage.operators()))
            await asyncio.sleep(MEMORY_SECONDS)

    async def _read_operators(self, pods: dict[str, Any]) -> dict[str, str]:
        found = {}
        for pod in pods:
            path = f"{pods_path(OPERATOR_NAMESPACE, pod)}:8781/proxy/metrics"
            lines = [line async for line in self._stage.api.lines(path) if line.startswith(READ)]
            if lines:
                found[pod] = "\n".join(lines)
        return found


def _note(most: dict[str, float], operators: dict[str, str]) -> None:
    for pod, text in operators.items():
        mib = round(samples(text, "process_resident_memory_bytes")[""] / 2**20)
        most[pod] = max(most.get(pod, 0.0), mib)


def samples(text: str, name: str, label: str = "") -> dict[str, float]:
    """The samples of a metric, summed by the value of a label; without one, by an empty string."""
    found: defaultdict[str, float] = defaultdict(float)
    for line in text.splitlines():
        if line.startswith(name) and (sample := SAMPLE.match(line)) and sample[1] == name:
            found[dict(LABEL.findall(sample[2] or "")).get(label, "")] += float(sample[3])
    return found


def rates(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """How fast each growing counter grew, per second, the fastest first."""
    grown = {
        name: round((value - before.get(name, 0.0)) / seconds, 1) for name, value in after.items()
    }
    fastest_first = sorted(grown.items(), key=lambda entry: -entry[1])
    return {name: value for name, value in fastest_first if value > 0}
