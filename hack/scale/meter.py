"""Measures the cost of a part of a run."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import aiohttp
from measure.api import ApiError, pods_path
from measure.cluster import leading_pod
from measure.kind_cluster import OPERATOR_NAMESPACE
from prometheus_client.parser import text_string_to_metric_families

from scale.results import Phase
from scale.stage import Stage

MEMORY_SECONDS = 5.0  # between two samples
READ = ("process_", "rest_client_")  # metrics
TROUBLE = (ApiError, aiohttp.ClientError, TimeoutError)


class Meter:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.phases: dict[str, Phase] = {}

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[None]:
        leader = await leading_pod(self._stage.api)
        begin, before = time.time(), await self._metrics()
        standby = next((pod for pod in before if pod != leader), "")
        memory: dict[str, float] = {}
        _note(memory, before)
        watching = asyncio.create_task(self._watch_memory(memory))
        try:
            yield
        finally:
            watching.cancel()
            end, after = time.time(), await self._metrics()
            _note(memory, after)
            seconds = end - begin

            def used(pod: str) -> float | None:
                if pod not in before or pod not in after:
                    return None
                first, last = (
                    samples(metrics[pod], "process_cpu_seconds_total").get("", 0.0)
                    for metrics in (before, after)
                )
                return round((last - first) / seconds, 3)

            def requests(metrics: Mapping[str, str]) -> dict[str, float]:
                text = "\n".join(metrics[pod] for pod in before.keys() & after.keys())
                return samples(text, "rest_client_requests_total", "method")

            self.phases[name] = Phase(
                seconds=round(seconds, 1),
                leader_cores=used(leader),
                standby_cores=used(standby),
                leader_mib=memory.get(leader),
                standby_mib=memory.get(standby),
                operator_requests=rates(requests(before), requests(after), seconds),
                agents=self._stage.observed.between(begin, end),
            )

    async def _watch_memory(self, most: dict[str, float]) -> None:
        while True:
            with suppress(*TROUBLE):
                _note(most, await self._metrics())
            await asyncio.sleep(MEMORY_SECONDS)

    async def _metrics(self) -> dict[str, str]:
        """What each operator that answers measures of itself."""
        found = {}
        for pod in await self._stage.operators():
            path = f"{pods_path(OPERATOR_NAMESPACE, pod)}:8781/proxy/metrics"
            lines = [line async for line in self._stage.api.lines(path) if line.startswith(READ)]
            if lines:
                found[pod] = "\n".join(lines)
        return found


def _note(most: dict[str, float], operators: Mapping[str, str]) -> None:
    for pod, text in operators.items():
        mib = round(samples(text, "process_resident_memory_bytes")[""] / 2**20)
        most[pod] = max(most.get(pod, 0.0), mib)


def samples(text: str, name: str, label: str = "") -> dict[str, float]:
    """The samples of a metric, summed by the value of a label; without one, by an empty string."""
    found: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name:
                found[sample.labels.get(label, "")] += sample.value
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
