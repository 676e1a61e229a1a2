import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.pod import client as pod_client
from elastic_pytorch.pod.client import PodClient
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.stopping.stacks import children
from elastic_pytorch.storage.checkpoint_file import load
from elastic_pytorch.storage.checkpoint_folder import claim

from tests.waiting import WAIT_SECONDS, until
from tests.worker_image.scripts.whole_checkpoints import newest

pytestmark = pytest.mark.torch


@pytest.fixture(params=["agent", "side process"])
def link(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[PodClient]:
    server = PodServer()
    if request.param == "agent":
        monkeypatch.setenv(LOCAL_SOCKET, server.prepare())
        server.start()
    else:
        monkeypatch.delenv(LOCAL_SOCKET, raising=False)
    made = PodClient.connect()
    yield made
    made.close()
    server.close()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[PodClient]:
    monkeypatch.delenv(LOCAL_SOCKET, raising=False)
    made = PodClient.connect()
    yield made
    made.close()


def holding(link: PodClient, name: str = "x") -> Snapshot:
    snapshot = Snapshot.create(name)
    link.keep_memory(name, snapshot.fd)
    return snapshot


def test_states_are_whole_on_the_disk_while_training_goes_on(
    link: PodClient, tmp_path: Path
) -> None:
    snapshot = holding(link)
    assert link.flushed("x") is None
    step = 0
    written: set[StateVersion | None] = set()
    deadline = time.monotonic() + WAIT_SECONDS
    # A slow disk writes few of the states: as many steps as it takes.
    while len(written) < 10 or step < 300:
        assert time.monotonic() < deadline
        step += 1
        snapshot.write(
            StateVersion(1, step), {"step": step, "w": torch.full((200_000,), float(step))}
        )
        link.flush("x", str(tmp_path), keep=5)
        written.add(link.flushed("x"))
    assert link.drain(WAIT_SECONDS)
    assert link.flushed("x") == StateVersion(1, step)
    assert link.trouble("x") == ""
    found = list(newest(tmp_path))
    assert len(found) == 5
    for checkpoint in found:
        version, tree = load(checkpoint.path)
        assert version == checkpoint.version
        assert tree["step"] == version.step
        assert set(tree["w"].tolist()) == {float(version.step)}


def test_the_same_state_is_written_once(link: PodClient, tmp_path: Path) -> None:
    snapshot = holding(link)
    snapshot.write(StateVersion(1, 1), 1)
    link.flush("x", str(tmp_path), 1)
    assert link.drain(WAIT_SECONDS)
    (path,) = tmp_path.iterdir()
    written = path.stat().st_ino
    link.flush("x", str(tmp_path), 1)
    assert link.drain(WAIT_SECONDS)
    assert path.stat().st_ino == written


def test_what_is_on_the_disk_of_a_dropped_state_is_not_of_the_next_one(
    link: PodClient, tmp_path: Path
) -> None:
    for _ in range(2):
        snapshot = holding(link)
        assert link.flushed("x") is None
        snapshot.write(StateVersion(1, 1), 1)
        link.flush("x", str(tmp_path), 1)
        assert link.drain(WAIT_SECONDS)
        assert link.flushed("x") == StateVersion(1, 1)
        link.drop("x")


def test_a_disk_that_fails_is_told_and_tried_again(link: PodClient, tmp_path: Path) -> None:
    snapshot = holding(link)
    snapshot.write(StateVersion(1, 1), 1)
    blocked = tmp_path / "folder"
    blocked.write_text("a file in its place")
    link.flush("x", str(blocked), 1)
    assert not link.drain(WAIT_SECONDS)
    assert link.trouble("x") == f"Not a directory ({blocked})"
    assert link.flushed("x") is None
    blocked.unlink()
    link.flush("x", str(blocked), 1)
    assert link.drain(WAIT_SECONDS)
    assert link.trouble("x") == ""
    assert link.flushed("x") == StateVersion(1, 1)


def test_a_cut_off_group_is_told(link: PodClient, tmp_path: Path) -> None:
    snapshot = holding(link)
    snapshot.write(StateVersion(1, 1), 1)
    claim(tmp_path, 2)
    link.flush("x", str(tmp_path), 1)
    assert not link.drain(WAIT_SECONDS)
    assert "is claimed by generation 2, and this is generation 1" in link.trouble("x")
    assert list(newest(tmp_path)) == []


def test_trouble_with_one_state_is_none_of_another(link: PodClient, tmp_path: Path) -> None:
    for name in ("x", "y"):
        holding(link, name).write(StateVersion(1, 1), 1)
    blocked = tmp_path / "folder"
    blocked.write_text("a file in its place")
    link.flush("x", str(blocked), 1)
    link.flush("y", str(tmp_path / "other"), 1)
    assert link.drain(WAIT_SECONDS, "y")
    assert link.trouble("y") == ""
    assert not link.drain(WAIT_SECONDS, "x")
    assert link.trouble("x") == f"Not a directory ({blocked})"


def test_names_are_checked(link: PodClient) -> None:
    fd = os.memfd_create("x")
    for name in ("", "n" * 201):
        with pytest.raises(ValueError, match="a name of"):
            link.keep_memory(name, fd)
    os.close(fd)
    link.flush("never held", "/tmp", 1)
    assert not link.drain(WAIT_SECONDS)
    assert "nothing is held as 'never held'" in link.trouble("never held")


def test_a_forked_child_is_no_worker(link: PodClient) -> None:
    pid = os.fork()
    if pid == 0:
        link.flush("x", "/tmp", 1)
        with pytest.raises(ConnectionError):
            link.fetch("x")
        os._exit(0 if link.messages() == [] and not link.drain(5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    snapshot = holding(link)
    fd = link.fetch("x")
    assert fd is not None
    assert os.fstat(fd).st_ino == os.fstat(snapshot.fd).st_ino


def side_process() -> int:
    """The child that was started last: those of earlier tests may still live."""

    # proc(5): the 22nd field, counted from the name's end
    def started(pid: int) -> tuple[int, int]:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]), pid

    found = max(children(os.getpid()), key=started)
    # For a moment of its exec, a process has no command line.
    until(lambda: b"elastic_pytorch.pod.server" in Path(f"/proc/{found}/cmdline").read_bytes())
    return found


def test_a_side_process_ends_with_its_worker_when_all_is_written(
    alone: PodClient, tmp_path: Path
) -> None:
    pid = side_process()
    assert os.getsid(pid) == pid
    alone.close()
    assert os.waitpid(pid, 0)[1] == 0

    code = f"""if True:
        import os
        from elastic_pytorch.pod.client import PodClient
        from elastic_pytorch.memory.snapshot import Snapshot
        from elastic_pytorch.state_format.state_version import StateVersion
        link = PodClient.connect()
        snapshot = Snapshot.create("x")
        link.keep_memory("x", snapshot.fd)
        snapshot.write(StateVersion(1, 3), {{"blob": bytes(50_000_000)}})
        os.chdir({str(tmp_path)!r})
        link.flush("x", "folder", 1)
        os.killpg(os.getpid(), 9)
    """
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, start_new_session=True).returncode
        == -signal.SIGKILL
    )
    until((tmp_path / "folder" / "checkpoint-g000001-s000000003.elastic").exists)


def test_a_side_process_that_dies_is_replaced(
    alone: PodClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = holding(alone)
    snapshot.write(StateVersion(1, 1), 1)
    pid = side_process()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    until(lambda: alone.trouble("x") == "the local server is gone: no checkpoints are written")
    alone.flush("x", str(tmp_path), 1)
    assert not alone.drain(WAIT_SECONDS)  # it is not replaced at once, lest it die again and again
    with pytest.raises(ConnectionError, match="is gone"):
        alone.fetch("x")
    before = time.monotonic()
    assert alone.wait_message(0.2) is None
    assert time.monotonic() - before >= 0.2
    monkeypatch.setattr(pod_client, "REVIVE_SECONDS", 0.0)
    alone.flush("x", str(tmp_path), 1)
    assert alone.drain(WAIT_SECONDS)
    assert alone.trouble("x") == ""
    assert [checkpoint.version for checkpoint in newest(tmp_path)] == [StateVersion(1, 1)]


def test_a_module_of_the_scripts_is_not_taken_for_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "socket.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv(LOCAL_SOCKET, raising=False)
    link = PodClient.connect()
    snapshot = holding(link)
    fd = link.fetch("x")
    assert fd is not None
    assert os.fstat(fd).st_ino == os.fstat(snapshot.fd).st_ino
    link.close()


def test_an_agent_that_answers_late_is_an_error_and_no_empty_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = PodServer()
    monkeypatch.setenv(LOCAL_SOCKET, server.prepare())
    server.start()
    link = PodClient.connect()
    snapshot = holding(link)
    snapshot.write(StateVersion(1, 10), {"step": 10})
    assert link.deliver(WAIT_SECONDS)
    with server._lock:  # answers need it
        monkeypatch.setattr(pod_client, "ANSWER_SECONDS", 0.3)
        with pytest.raises(TimeoutError, match="has not said"):
            link.fetch("x")
    monkeypatch.setattr(pod_client, "ANSWER_SECONDS", WAIT_SECONDS)
    assert link.fetch("never held") is None, "the late answer is none to another question"
    fd = link.fetch("x")
    assert fd is not None
    assert Snapshot(fd).newest() == StateVersion(1, 10)
    server.close()


def test_without_its_agent_there_is_no_side_process_in_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(LOCAL_SOCKET, "/nothing/listens/here")
    monkeypatch.setattr(pod_client, "AGAIN_SECONDS", 0.1)
    with pytest.raises(
        ConnectionError,
        match=r"this pod's agent does not answer at /nothing/listens/here: .*No such file",
    ):
        PodClient.connect()
    path = str(tmp_path / "mute")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        monkeypatch.setattr(pod_client, "ANSWER_SECONDS", 0.3)
        monkeypatch.setenv(LOCAL_SOCKET, path)
        with pytest.raises(ConnectionError, match="timed out"):
            PodClient.connect()


@pytest.mark.parametrize("version", [None, StateVersion(1, 9)])
def test_a_state_is_never_replaced_by_an_older_one(
    link: PodClient, version: StateVersion | None
) -> None:
    held = holding(link)
    held.write(StateVersion(1, 10), {"step": 10})
    other = Snapshot.create("x")
    if version is not None:
        other.write(version, {"step": 9})
    link.keep_memory("x", other.fd)
    fd = link.fetch("x")
    assert fd is not None
    assert os.path.sameopenfile(fd, held.fd)
    assert "what is held has a newer state" in link.trouble("x")
    other.write(StateVersion(2, 1), {"step": 1})
    link.keep_memory("x", other.fd)
    fd = link.fetch("x")
    assert fd is not None
    assert os.path.sameopenfile(fd, other.fd)


def test_memory_is_given_back(link: PodClient, tmp_path: Path) -> None:
    snapshot = holding(link)
    snapshot.write(StateVersion(1, 1), 1)
    link.flush("x", str(tmp_path), 1)
    link.drop("x")
    assert link.fetch("x") is None
    assert link.drain(WAIT_SECONDS)
    assert link.flushed("x") == StateVersion(1, 1), "what was asked for before is still written"
    link.drop("never held")
    holding(link)
    assert link.fetch("x") is not None


def test_a_request_waits_for_a_server_that_is_busy() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        link = PodClient(ours)
        count = 0
        while link.deliver(0):  # until the socket is full
            count += 1
            link.send({"number": count})
        link.flush("x", "/tmp", 1)
        assert not link.deliver(0.01)
        received: list[bytes] = []

        def read() -> None:
            while not received or b"flush" not in received[-1]:
                received.append(theirs.recv(10000))

        reader = threading.Thread(target=read)
        reader.start()
        assert link.deliver(WAIT_SECONDS)
        reader.join(WAIT_SECONDS)
        assert len(received) == count + 1
    link.close()
