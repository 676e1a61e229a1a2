import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.pod.client import PodClient
from elastic_pytorch.pod.messages import LOCAL_SOCKET, MAX_MESSAGE_BYTES
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.state_format.state_version import StateVersion

from tests.waiting import WAIT_SECONDS, until
from tests.worker_image.open_files import count_descriptors, identity
from tests.worker_image.scripts.snapshots import read_newest

pytestmark = pytest.mark.torch


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PodServer]:
    made = PodServer()
    monkeypatch.setenv(LOCAL_SOCKET, made.prepare())
    made.start()
    yield made
    made.close()


@pytest.fixture
def raw(server: PodServer) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.settimeout(WAIT_SECONDS)
        link.connect(server.path)
        assert json.loads(link.recv(1000)) == {"storage": "hello"}
        yield link


def test_a_broadcast_reaches_all_also_those_that_come_later(server: PodServer) -> None:
    links = [PodClient.connect() for _ in range(3)]
    server.broadcast({"stop": 1})
    assert [link.wait_message(WAIT_SECONDS) for link in links] == [{"stop": 1}] * 3
    late = PodClient.connect()
    assert late.wait_message(WAIT_SECONDS) == {"stop": 1}
    server.broadcast({"stop": 2})
    assert late.wait_message(WAIT_SECONDS) == {"stop": 2}
    server.broadcast(None)
    later = PodClient.connect()
    server.send(os.getpid(), {"hello": "all of this process"})
    assert later.wait_message(WAIT_SECONDS) == {"hello": "all of this process"}
    # Each connection has its own order; the server promises none between connections.
    assert links[0].wait_message(WAIT_SECONDS) == {"stop": 2}
    assert links[0].wait_message(WAIT_SECONDS) == {"hello": "all of this process"}
    assert links[0].messages() == []
    assert links[0].wait_message(0.01) is None


def test_pod_may_have_hundreds_of_workers(server: PodServer) -> None:
    with contextlib.ExitStack() as open_:
        for _ in range(300):
            link = open_.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            link.settimeout(WAIT_SECONDS)
            link.connect(server.path)
            assert json.loads(link.recv(1000)) == {"storage": "hello"}


def test_workers_are_known_by_their_process_ids(server: PodServer) -> None:
    heard: list[Any] = []
    server.on_message = lambda pid, message: heard.append((pid, message))
    code = """if True:
        import os
        from elastic_pytorch.pod.client import PodClient
        link = PodClient.connect()
        link.send({"pid": 1, "step": 7})  # what it says of its id does not count
        print(link.wait_message(30))
    """
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    until(lambda: heard)
    assert heard == [(process.pid, {"pid": 1, "step": 7})]
    server.send(process.pid, {"to": "you"})
    server.send(1, {"to": "nobody"})
    assert process.communicate(timeout=WAIT_SECONDS)[0] == b"{'to': 'you'}\n"
    assert process.returncode == 0


def test_script_in_a_shell_speaks_for_the_worker_that_the_shell_is(server: PodServer) -> None:
    heard: list[int] = []
    server.on_message = lambda pid, _: heard.append(pid)
    code = "from elastic_pytorch.pod.client import PodClient; PodClient.connect().send({'step': 7})"
    shell = subprocess.Popen(
        ["sh", "-c", '"$0" -c "$1"; true', sys.executable, code], start_new_session=True
    )
    assert until(lambda: heard) == [shell.pid]
    assert shell.wait(WAIT_SECONDS) == 0


def garbage(raw: socket.socket) -> list[tuple[int, int]]:
    """Sends what no worker sends, and waits for refusals; gives the files sent along."""
    pipe = os.pipe()
    memory = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    many = [memory] * 5
    messages: list[tuple[bytes, list[int]]] = [
        (b"\xff\x00", []),
        (b"[]", []),
        (b"[" * 5000, []),
        (b'{"storage":"hold","name":"x"}', []),
        (b'{"storage":"hold","name":"x"}', [pipe[0]]),
        (b'{"storage":"hold","name":"x"}', many),
        (b'{"storage":"hold","name":3}', [memory]),
        (b'{"storage":"hold","name":""}', [memory]),
        (json.dumps({"storage": "hold", "name": "n" * 300}).encode(), [memory]),
        (b'{"storage":"fly","name":"x"}', []),
        (b'{"storage":"flush","name":"x"}', []),
        (
            b'{"storage":"flush","name":"x","number":1,"folder":"/tmp","keep":1,"now":true}',
            [],
        ),
        (
            b'{"storage":"flush","name":"x","number":1,"folder":"/tmp","keep":[1,0],"now":true}',
            [],
        ),
        (b'{"storage":null}', [memory]),
        (b"x" * (MAX_MESSAGE_BYTES + 1), []),
    ]
    for data, descriptors in messages:
        socket.send_fds(raw, [data], descriptors)
        assert json.loads(raw.recv(10000))["storage"] == "refused", data[:100]
    files = [identity(fd) for fd in (pipe[0], memory)]
    for fd in (*pipe, memory):
        os.close(fd)
    return files


def test_garbage_is_refused_and_nothing_leaks(
    server: PodServer, raw: socket.socket, tmp_path: Path
) -> None:
    other = PodClient.connect()
    files = [file for _ in range(20) for file in garbage(raw)]
    assert count_descriptors(files) == 0
    # What is not begun with a name that is held, or is no snapshot, is a trouble of its own.
    fd = os.memfd_create("no snapshot")
    other.keep_memory("bad", fd)
    other.flush("bad", str(tmp_path), 1)
    assert not other.drain(WAIT_SECONDS)
    assert "not a snapshot" in other.trouble("bad")
    os.close(fd)
    assert other.fetch("bad") is not None
    assert server.drain(WAIT_SECONDS)


def test_who_does_not_read_is_no_burden(server: PodServer, raw: socket.socket) -> None:
    link = PodClient.connect()
    for number in range(3000):
        server.send(os.getpid(), {"number": number, "filling": "x" * 1000})
        if number % 100 == 0:
            until(lambda: [message for message in link.messages() if message["number"] == number])  # noqa: B023  called at once
    server.broadcast({"last": True})
    assert until(lambda: [message for message in link.messages() if "last" in message])
    raw.close()
    assert link.fetch("nothing") is None


def test_workers_that_die_at_once(server: PodServer) -> None:
    for _ in range(50):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.connect(server.path)
            with contextlib.suppress(OSError):
                link.send(b'{"storage":"fetch","name":"x"}')
    assert PodClient.connect().fetch("x") is None


def test_a_state_is_kept_for_the_successor(server: PodServer) -> None:
    link = PodClient.connect()
    assert link.fetch("rank 0") is None
    snapshot = Snapshot.create("rank 0")
    link.keep_memory("rank 0", snapshot.fd)
    snapshot.write(StateVersion(1, 5), {"step": 5})
    snapshot.close()
    link.close()
    fd = PodClient.connect().fetch("rank 0")
    assert fd is not None
    assert read_newest(Snapshot(fd)) == (StateVersion(1, 5), {"step": 5})


def test_what_was_asked_for_before_death_is_written(server: PodServer, tmp_path: Path) -> None:
    code = f"""if True:
        import os
        from elastic_pytorch.pod.client import PodClient
        from elastic_pytorch.memory.snapshot import Snapshot
        from elastic_pytorch.state_format.state_version import StateVersion
        link = PodClient.connect()
        snapshot = Snapshot.create("x")
        link.keep_memory("x", snapshot.fd)
        snapshot.write(StateVersion(1, 3), {{"blob": bytes(50_000_000)}})
        link.flush("x", {str(tmp_path)!r}, 1)
        os.kill(os.getpid(), 9)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert server.drain(WAIT_SECONDS)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-g000001-s000000003.elastic"]


def test_when_it_ends_its_workers_know(server: PodServer) -> None:
    link = PodClient.connect()
    server.close()
    until(lambda: link.trouble("x"))
    assert link.trouble("x") == "the local server is gone: no checkpoints are written"
    assert not Path(server.path).parent.exists()


def test_without_a_directory_there_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/nothing")
    server = PodServer()
    assert server.prepare() == ""
    server.start()
    server.broadcast({"stop": 1})
    assert server.drain(1)
    server.close()
