"""A worker's connection to the pod's server."""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elastic_pytorch.object_url import ObjectUrl, location_of
from elastic_pytorch.pod.messages import (
    LOCAL_SOCKET,
    MAX_MESSAGE_BYTES,
    MAX_NAME_CHARACTERS,
    Message,
    Waiting,
    close,
    drop_waiting,
    send_waiting,
)
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.retention import Keep

AGAIN_SECONDS = 5.0  # for a removed socket to be made again
ANSWER_SECONDS = 60.0  # a pod may be throttled, or its machine paused
REVIVE_SECONDS = 10.0  # between two starts of a server that keeps ending


@dataclass(slots=True)
class _Flushes:
    asked: int = 0  # number of the last request
    answered: int = 0
    version: StateVersion | None = None  # on the disk
    trouble: str = ""
    failed: int = 0  # in a row

    def note(self, number: int, trouble: str) -> None:
        self.answered, self.trouble = number, trouble
        self.failed = self.failed + 1 if trouble else 0


class PodClient:
    """Calls return in microseconds unless they wait; only `fetch` raises if the server is gone.

    To a fork of the worker, the server appears to be gone.
    """

    def __init__(self, link: socket.socket) -> None:
        self._socket: socket.socket | None = link
        self._revived_at = time.monotonic()
        self._held: dict[str, int] = {}
        self._waiting: Waiting = deque()
        self._messages: deque[Message] = deque()
        self._answers: deque[tuple[Message, list[int]]] = deque()
        self._flushes: defaultdict[str, _Flushes] = defaultdict(_Flushes)  # by name
        self._fetches = 0
        self._trouble = ""
        self._lock = threading.RLock()
        self._closed = False
        alive = weakref.ref(self)

        def forget() -> None:
            if (link := alive()) is not None:
                link._leave_to_parent()

        os.register_at_fork(after_in_child=forget)

    @classmethod
    def connect(cls) -> "PodClient":
        """Connects to the agent's server, or starts one beside a process without an agent."""
        return cls(_open_link())

    def keep_memory(self, name: str, fd: int) -> None:
        """Has the server keep a memory file, unless one of that name has a newer state."""
        if not 0 < len(name) <= MAX_NAME_CHARACTERS:
            raise ValueError(f"a name of {len(name)} characters")
        with self._lock:
            close(self._held.pop(name, None))
            self._held[name] = os.dup(fd)  # for the next server, if this one ends
        self.send({"storage": "hold", "name": name}, os.dup(fd))

    def drop(self, name: str) -> None:
        """Takes effect after a requested flush; the next state of that name is another one."""
        with self._lock:
            close(self._held.pop(name, None))
            self._flushes[name].version = None
        self.send({"storage": "drop", "name": name})

    def fetch(self, name: str) -> int | None:
        """Returns a new descriptor of the memory file of a name; None: there is none.

        Raises:
            TimeoutError: the server has not answered, so there may be one.
            ConnectionError: the server is gone.
        """
        with self._lock:
            self._fetches += 1
            number = self._fetches
            self.send({"storage": "fetch", "name": name, "number": number})
            deadline = time.monotonic() + ANSWER_SECONDS
            while self._wait(deadline, lambda: bool(self._answers)):
                answer, descriptors = self._answers.popleft()
                if answer.get("number") == number:
                    return descriptors[0] if descriptors else None
                for descriptor in descriptors:
                    close(descriptor)
            if self._socket is None:
                raise ConnectionError(
                    "the local server is gone, and with it what it may hold of this training's "
                    "state"
                )
        raise TimeoutError(
            f"the local server has not said in {ANSWER_SECONDS:.0f} s whether it holds a state of "
            "this training"
        )

    def flush(self, name: str, folder: str, keep: Keep, *, now: bool = True) -> None:
        """Requests a checkpoint, which replaces earlier requests; without `now`, after a rest."""
        with self._lock:
            self._revive()
            flushes = self._flushes[name]
            flushes.asked += 1
            if not isinstance(location_of(folder), ObjectUrl):
                folder = os.path.abspath(folder)  # noqa: PTH100 - the server has another cwd
            request = {"name": name, "number": flushes.asked, "folder": folder, "keep": keep}
            self.send({"storage": "flush", **request, "now": now})

    def flushed(self, name: str) -> StateVersion | None:
        """The newest version of a held state that is on the disk, as far as this client knows."""
        self._receive()
        return self._flushes[name].version

    def trouble(self, name: str) -> str:
        """Why the last flush of this state has failed; empty: it has not."""
        self._receive()
        return self._trouble or self._flushes[name].trouble

    def failed_flushes(self, name: str) -> int:
        self._receive()
        return self._flushes[name].failed

    def drain(self, timeout_seconds: float, name: str | None = None) -> bool:
        """Waits for the flushes of this state, or of all; False: failed, or not in time."""
        deadline = time.monotonic() + timeout_seconds
        done = self._wait(
            deadline, lambda: all(each.asked == each.answered for each in self._of(name))
        )
        return done and not any(each.trouble for each in self._of(name))

    def deliver(self, timeout_seconds: float) -> bool:
        """Waits until the server has all requests; False: it is gone, or the time is over."""
        return (
            self._wait(time.monotonic() + timeout_seconds, lambda: not self._waiting)
            and self._socket is not None
        )

    def messages(self) -> list[Message]:
        self._receive()
        with self._lock:
            messages = list(self._messages)
            self._messages.clear()
            return messages

    def wait_message(self, timeout_seconds: float) -> Message | None:
        deadline = time.monotonic() + timeout_seconds
        if not self._wait(deadline, lambda: bool(self._messages)):
            # The server is gone, and a caller's loop must not spin.
            time.sleep(max(0.0, deadline - time.monotonic()))
            return None
        with self._lock:
            return self._messages.popleft() if self._messages else None

    def connected(self) -> bool:
        return self._socket is not None

    def send(self, message: Message, descriptor: int | None = None) -> None:
        with self._lock:
            self._waiting.append((json.dumps(message).encode(), descriptor))
            self._send_waiting()

    def close(self) -> None:
        """Ends the connection; the server still carries out all requests."""
        with self._lock:
            self._closed = True
            self._disconnect()
            while self._held:
                close(self._held.popitem()[1])

    def _of(self, name: str | None) -> list[_Flushes]:
        with self._lock:
            return list(self._flushes.values()) if name is None else [self._flushes[name]]

    def _revive(self) -> None:
        """Replaces a server beside a worker, which the kernel may have killed for its memory."""
        if (
            self._socket is not None
            or self._closed
            or time.monotonic() - self._revived_at < REVIVE_SECONDS
        ):
            return
        self._revived_at = time.monotonic()
        with contextlib.suppress(OSError):
            self._socket = _open_link()
            self._trouble = ""
            for name, fd in self._held.items():
                self.send({"storage": "hold", "name": name}, os.dup(fd))

    def _wait(self, deadline: float, condition: Callable[[], bool]) -> bool:
        while True:
            self._receive()
            if condition():
                return True
            seconds = deadline - time.monotonic()
            link = self._socket
            if seconds <= 0 or link is None:
                return False
            poll = select.poll()
            poll.register(link, select.POLLIN | (select.POLLOUT if self._waiting else 0))
            poll.poll(seconds * 1000)

    def _send_waiting(self) -> None:
        with self._lock:
            try:
                if self._socket is not None:
                    send_waiting(self._socket, self._waiting)
            except OSError:
                self._lose()

    def _receive(self) -> None:
        with self._lock:
            if self._waiting:
                self._send_waiting()
            try:
                while self._socket is not None:
                    data, descriptors, _, _ = socket.recv_fds(
                        self._socket, MAX_MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
                    )
                    if not data:
                        self._lose()
                        return
                    self._take(json.loads(data), descriptors)
            except BlockingIOError:
                pass
            except OSError:
                self._lose()

    def _take(self, message: Message, descriptors: list[int]) -> None:
        what = message.get("storage")
        if what is None:
            self._messages.append(message)
        elif what == "fetched":
            self._answers.append((message, descriptors))
        elif what == "flushed":
            flushes = self._flushes[message["name"]]
            flushes.note(message["number"], message["trouble"])
            if message["stamp"] is not None:
                self._trouble = ""
                version = StateVersion(*message["stamp"])
                flushes.version = max(version, flushes.version or version)
        elif what == "refused":
            self._trouble = f"the local server refuses: {message['reason']}"
            refused = self._flushes.get(message.get("name", ""))
            if refused and refused.asked and type(message.get("number")) is int:
                refused.note(message["number"], self._trouble)

    def _lose(self) -> None:
        if self._socket is not None:
            self._disconnect()
            self._trouble = "the local server is gone: no checkpoints are written"

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        drop_waiting(self._waiting)

    def _leave_to_parent(self) -> None:
        """Called in a fork."""
        self._lock = threading.RLock()
        self.close()


def _open_link() -> socket.socket:
    path = os.environ.get(LOCAL_SOCKET)
    if not path:
        return _start_side_process()
    try:
        return connect_to_agent(path)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"this pod's agent does not answer at {path}: {error or type(error).__name__}"
        ) from error


def connect_to_agent(path: str) -> socket.socket:
    """Returns a non-blocking connection; OSError or ValueError: our server is not there."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        link.settimeout(ANSWER_SECONDS)
        _connect(link, path)
        if json.loads(link.recv(MAX_MESSAGE_BYTES)) != {"storage": "hello"}:
            raise OSError("not our server")
        link.setblocking(False)
    except BaseException:
        link.close()
        raise
    return link


def _connect(link: socket.socket, path: str) -> None:
    deadline = time.monotonic() + AGAIN_SECONDS
    while True:
        try:
            link.connect(path)
        except FileNotFoundError:
            # Another process has emptied /tmp, and the agent makes its socket again.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _start_side_process() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    packages = str(Path(__file__).absolute().parents[2])
    command = [sys.executable, "-S", "-m", "elastic_pytorch.pod.server"]
    try:
        with theirs:
            process = subprocess.Popen(
                [*command, "--fd", str(theirs.fileno()), *filter(None, sys.path)],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": packages},
                cwd=packages,  # -m looks for modules there, and Python 3.10 has no -P against it
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # It outlives the worker until the flush in progress is done.
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        raise
    process.returncode = 0  # nothing waits for it
    ours.setblocking(False)
    return ours
