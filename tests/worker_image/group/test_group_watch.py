import threading
import time
from collections.abc import Iterator

import pytest
from elastic_pytorch.group.group_watch import GroupWatch
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.pod.server import PodServer

from tests.waiting import until

pytestmark = pytest.mark.process

ORDERLY = {"kind": "change", "round": 2, "orderly": True}
BROKEN = {"kind": "change", "round": 3, "orderly": False}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PodServer]:
    server = PodServer()
    monkeypatch.setenv(LOCAL_SOCKET, server.prepare())
    server.start()
    yield server
    server.close()


def ignore() -> None:
    pass


def test_broken_group_is_aborted_once_and_what_it_computes_is_doubted_before_that(
    server: PodServer,
) -> None:
    seen: list[bool] = []
    aborted = threading.Event()

    def abort() -> None:
        seen.append(watch.broken)
        aborted.set()

    watch = GroupWatch(abort, ignore)
    server.broadcast(ORDERLY)
    server.broadcast({"kind": "unknown"})
    server.broadcast(BROKEN)
    assert aborted.wait(60)
    server.broadcast({**BROKEN, "round": 4})
    watch.stop()
    assert seen == [True]


def test_orderly_change_is_none_of_its_business(server: PodServer) -> None:
    watch = GroupWatch(ignore, ignore)
    until(lambda: len(server._connections) == 1)
    server.broadcast(ORDERLY)
    until(lambda: not any(connection.waiting for connection in list(server._connections.values())))
    watch.stop()
    assert not watch.broken


def test_what_was_said_of_the_group_before_is_not_heard(server: PodServer) -> None:
    server.broadcast(BROKEN)
    early = GroupWatch(ignore, ignore)
    until(lambda: early.broken)
    early.stop()
    server.broadcast(None)
    watch = GroupWatch(ignore, ignore)
    watch.stop()
    assert not watch.broken


def test_what_a_broken_group_connects_later_is_cut_until_it_is_left(server: PodServer) -> None:
    done: list[str] = []
    watch = GroupWatch(lambda: done.append("abort"), lambda: done.append("cut"))
    server.broadcast(BROKEN)
    until(lambda: len(done) >= 3)
    watch.stop()
    left = list(done)
    assert left[:3] == ["abort", "cut", "cut"]
    assert done == left


def test_end_waits_for_an_abort_that_has_begun(server: PodServer) -> None:
    begun, done = threading.Event(), []

    def abort() -> None:
        begun.set()
        time.sleep(0.2)
        done.append(1)

    watch = GroupWatch(abort, ignore)
    server.broadcast(BROKEN)
    assert begun.wait(60)
    watch.stop()
    assert done == [1]


def test_without_a_server_nothing_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCAL_SOCKET, "/nonexistent")
    watch = GroupWatch(ignore, ignore)
    watch.stop()
    assert not watch.broken
