import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from elastic_pytorch.operator_link.client import OperatorClient
from elastic_pytorch.operator_link.http_connection import OperatorConnection
from elastic_pytorch.operator_link.stream_link import StreamLink, start_link
from elastic_pytorch_operator.model.observed import AgentView
from elastic_pytorch_operator.model.round import Member, Round
from elastic_pytorch_operator.tls.rotation import Trust
from elastic_pytorch_operator.tls.secret import load_certificate, renew, server_context

from tests import waiting
from tests.operator.agents.served import POD, Served, serving

pytestmark = pytest.mark.process

SECONDS = 30.0
JOB = "uid-lm"


def a_client(port: int, token_file: str, authorities: str = "") -> tuple[OperatorClient, list[str]]:
    news: list[str] = []
    client = OperatorClient(
        OperatorConnection("localhost", port, token_file, authorities),
        local_world_size=1,
        port=lambda: 29501,
        progress=dict,
    )
    client.on_news, client.on_dump = lambda: news.append("round"), lambda: news.append("dump")
    return client, news


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not what():
            await asyncio.sleep(0.005)


def view(operator: Served) -> AgentView | None:
    return operator.registry.agents(JOB, {POD}).get(POD)


def a_round(number: int) -> Round:
    return Round(number, (Member(POD, "10.0.0.1"),), 29501, "FirstRound", "why", 0.0)


async def test_agent_and_operator_hear_each_other_over_tls(tmp_path: Path) -> None:
    trust = await asyncio.to_thread(renew, Trust(), ("localhost",), time.time())
    tls = server_context()
    load_certificate(trust.shown, tls)
    async with serving(tls) as operator:
        (tmp_path / "token").write_text(operator.token)
        client, news = a_client(operator.port, str(tmp_path / "token"), trust.bundle)
        client.connection.patience = 4
        start_link(client)
        await until(lambda: client.connection.patience == 1)
        assert view(operator)
        assert operator.registry.open_streams == 1
        operator.registry.declare(JOB, a_round(3))
        await until(lambda: client.newest.number == 3)
        assert (client.newest.rank, news) == (0, ["round"])
        client.report(state="running", round=3)
        await until(lambda: (seen := view(operator)) is not None and seen.round == 3)
        operator.registry.ask_for_stacks(JOB, 3)
        await until(lambda: news == ["round", "dump"])
        (tmp_path / "token").write_text(operator.cluster.issue_token("default", POD))
        client.leave()
        await until(lambda: (seen := view(operator)) is not None and seen.state == "leaving")
        assert operator.cluster.calls.count("review_token") == 2, "it has shown the renewed token"
        await asyncio.to_thread(client.flush, SECONDS)
        operator.registry.conclude(JOB, "complete")
        await until(lambda: client.verdict == "complete")
        client.stopped = True


async def test_agent_finds_the_next_operator(tmp_path: Path) -> None:
    async with serving() as operator:
        (tmp_path / "token").write_text(operator.token)
        client, _ = a_client(operator.port, str(tmp_path / "token"))
        start_link(client)
        await until(lambda: view(operator))
    async with serving(port=operator.port) as successor:
        (tmp_path / "token").write_text(successor.token)
        await until(lambda: view(successor))
        successor.leads = False
        await until(lambda: successor.registry.open_streams == 0)
        successor.leads = True
        await until(lambda: successor.registry.open_streams == 1)
        successor.registry.declare(JOB, a_round(7))
        await until(lambda: client.newest.number == 7)
        client.stopped = True


def test_agent_waits_longer_for_an_operator_that_does_not_answer() -> None:
    with contextlib.ExitStack() as open_:
        server = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
        tries: list[float] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    open_.enter_context(server.accept()[0])
                    tries.append(time.monotonic())

        threading.Thread(target=accept, daemon=True).start()
        client, _ = a_client(server.getsockname()[1], "")
        client.report()
        link = StreamLink(client, answer_seconds=0.05)
        threading.Thread(target=link.run, daemon=True).start()
        waiting.until(lambda: len(tries) >= 4)
        assert client.attempted == client.changes, (
            "who waits for the last heartbeat need not wait for its answer"
        )
        gaps = [after - before for before, after in pairwise(tries)]
        assert gaps[2] >= 4 * 0.05 + 0.5 * 0.2 * 16, gaps
        client.stopped = True


@pytest.mark.parametrize("status", [b"404 Not Found", b"500 Oops"])
def test_agent_comes_back_to_what_answers_like_no_operator(status: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client, _ = a_client(server.getsockname()[1], "")
        start_link(client)
        for _ in range(2):
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(4096)
                accepted.sendall(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status)
        client.stopped = True
