import asyncio
import threading
import tracemalloc

import aiohttp
import pytest
from elastic_pytorch_operator.http.connections import Connections
from elastic_pytorch_operator.http.server import serving
from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.monitoring.probes import PROBE_LIMITS, Probes, Scrapes
from prometheus_client.parser import text_string_to_metric_families

from tests.situations import situations


class Operator:
    """What is probed."""

    def __init__(self) -> None:
        self.failed_checks: tuple[str, ...] = ()
        self.ready = False
        self.metrics = Metrics()

    def probes(self) -> Probes:
        scrapes = Scrapes(lambda: lambda: self.metrics.render(GaugeValues()))
        return Probes(lambda: self.failed_checks, lambda: self.ready, scrapes.text)


async def ask(port: int, path: str, seconds: float = 10.0) -> tuple[int, str]:
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_probes_say_what_is_so(caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator()
    async with serving(operator.probes().routes(), "127.0.0.1", 0) as port:
        assert await ask(port, "/healthz") == (200, "ok")
        assert (await ask(port, "/readyz"))[0] == 503
        operator.ready = True
        operator.failed_checks = ("the watch of pods has been silent about a change for 100 s",)
        assert await ask(port, "/readyz") == (200, "ok")
        assert await ask(port, "/healthz") == (503, operator.failed_checks[0])
    assert f"a liveness check fails: {operator.failed_checks[0]}" in caplog.text


async def test_prometheus_can_read_the_metrics() -> None:
    async with serving(Operator().probes().routes(), "127.0.0.1", 0) as port:
        code, text = await ask(port, "/metrics")
    assert code == 200
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {
        "workqueue_depth",
        "elastic_pytorch_agents_connected",
        "process_resident_memory_bytes",
    } <= names


@situations("sent", {"nothing": b"", "half a request": b"GET /metrics HTTP/1.1\r\nHost: a\r\n"})
async def test_connections_that_are_held_open_keep_no_probe_of_their_address_out(
    sent: bytes,
) -> None:
    connections = Connections(PROBE_LIMITS)
    async with serving(
        Operator().probes().routes(), "127.0.0.1", 0, connections=connections
    ) as port:
        held = [
            await asyncio.open_connection("127.0.0.1", port)
            for _ in range(2 * PROBE_LIMITS.per_address)
        ]
        for _, writer in held:
            writer.write(sent)
        assert await ask(port, "/healthz") == (200, "ok")
        assert await asyncio.wait_for(held[0][0].read(), 10) == b"", "the oldest is closed"
        for _, writer in held:
            writer.close()


async def test_client_that_reads_slowly_gets_the_text_piece_by_piece() -> None:
    text = b"x" * 30_000_000

    async def metrics() -> bytes:
        return text

    async with serving(Probes(tuple, lambda: True, metrics).routes(), "127.0.0.1", 0) as port:
        tracemalloc.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(0.5)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 5_000_000
        async with asyncio.timeout(20):
            assert (await reader.read()).endswith(b"\r\n\r\n" + text)
        writer.close()


async def test_operator_whose_event_loop_is_stuck_does_not_answer() -> None:
    async with serving(Operator().probes().routes(), "127.0.0.1", 0) as port:
        stuck, asked = threading.Event(), threading.Event()

        def ask_meanwhile() -> None:
            stuck.wait()
            try:
                asyncio.run(ask(port, "/healthz", seconds=0.3))
            finally:
                asked.set()

        asking = asyncio.create_task(asyncio.to_thread(ask_meanwhile))
        await asyncio.sleep(0)  # the thread begins
        stuck.set()
        assert asked.wait(30)  # what the loop is stuck in
        with pytest.raises(TimeoutError):
            await asking
