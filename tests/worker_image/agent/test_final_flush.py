import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_pytorch.agent.signals import Signals, wait_for_disk
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_writer import Flush

pytestmark = pytest.mark.torch


@pytest.fixture
def release() -> threading.Event:
    return threading.Event()


@pytest.fixture
def busy(release: threading.Event, tmp_path: Path) -> Iterator[PodServer]:
    """A server that is not done with a flush until it is released."""
    server = PodServer()
    server.prepare()
    server.start()
    snapshot = Snapshot.create("x")
    snapshot.write(StateVersion(1, 1), 1)
    server._checkpoint_writer.ask(
        Flush(
            "x",
            os.dup(snapshot.fd),
            str(tmp_path),
            1,
            lambda _version, _trouble: release.wait(60) or None,
        )
    )
    yield server
    release.set()
    server.close()


def signals() -> Signals:
    return Signals("SIGTERM", lambda: None)


def test_nothing_to_wait_for() -> None:
    assert wait_for_disk(PodServer(), signals(), 30.0)


def test_the_disk_is_waited_for(busy: PodServer, release: threading.Event) -> None:
    threading.Timer(0.3, release.set).start()
    assert wait_for_disk(busy, signals(), 30.0)


def test_a_disk_that_hangs_is_given_up(busy: PodServer) -> None:
    assert not wait_for_disk(busy, signals(), 30.0, disk_seconds=0.2)


def test_the_grace_period_is_the_end(busy: PodServer) -> None:
    asked = signals()
    asked.received, asked.at = signal.SIGTERM, time.monotonic() - 29.0
    assert not wait_for_disk(busy, asked, 30.0)


def test_the_grace_period_may_begin_while_it_waits(busy: PodServer) -> None:
    asked = signals()

    def ask() -> None:
        asked.at = time.monotonic() - 29.0
        asked.received = signal.SIGTERM

    threading.Timer(0.3, ask).start()
    assert not wait_for_disk(busy, asked, 30.0)
