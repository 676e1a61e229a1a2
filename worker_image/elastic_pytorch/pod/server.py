"""The pod's server: keeps workers' memory files, has them flushed, and passes messages on.

It exchanges JSON over a unix socket of packets, with descriptors beside them. Messages with a key
`storage` are its own, others are between the agent and the workers. It is a thread of the agent, or
under plain torchrun a process beside the worker. Standard library only, for a quick start.
"""

import contextlib
import fcntl
import json
import os
import selectors
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from elastic_pytorch.log import logger, start_logging
from elastic_pytorch.memory.slots import valid_slots
from elastic_pytorch.pod.messages import (
    MAX_MESSAGE_BYTES,
    MAX_NAME_CHARACTERS,
    Message,
    Waiting,
    close,
    drop_waiting,
    send_waiting,
)
from elastic_pytorch.socket_folder import LOOK_SECONDS, SocketFolder
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_writer import CheckpointWriter, Flush
from elastic_pytorch.storage.retention import parse_keep
from elastic_pytorch.wakeup import Wakeup

MAX_HELD = 4096  # of 1,024 workers, with a copy of a peer's state each
MAX_CONNECTIONS = 4096  # of 1,024 workers, with one to watch their group each
MAX_WAITING = 1000  # messages to a worker that does not read


class _Connection:
    def __init__(self, link: socket.socket) -> None:
        self.socket = link
        pid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.pid = _worker_of(pid)
        self.waiting: Waiting = deque()
        self.warned = False


def _worker_of(pid: int) -> int:
    """The worker of a process: its session's leader, or itself.

    A worker may be a shell that runs the script in another process.
    """
    try:
        session = os.getsid(pid)
    except ProcessLookupError:
        return pid
    return pid if session == os.getsid(0) else session


class PodServer:
    def __init__(self, checkpoint_writer: CheckpointWriter | None = None) -> None:
        self.path = ""
        # The server's thread calls it with a worker's process id and its message.
        self.on_message: Callable[[int, Message], None] = lambda _pid, _message: None
        self._folder: SocketFolder | None = None
        self._held: dict[str, int] = {}
        self._connections: dict[int, _Connection] = {}
        self._broadcast: Message | None = None
        self._checkpoint_writer = checkpoint_writer or CheckpointWriter()
        self._lock = threading.RLock()
        self._selector: selectors.BaseSelector  # from `_open` on, as a fork must not inherit it
        self._wakeup: Wakeup | None = None
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._settled = threading.Event()  # no worker has sent anything that is not read
        self._settled.set()
        self._ended = False

    def prepare(self) -> str:
        """Returns the path at which `start` will listen; empty: none is possible."""
        try:
            self._folder = SocketFolder("local")
            self.path = self._folder.path
        except OSError as error:
            logger.warning(
                "no local server, so State keeps nothing in this pod's memory: %s", error
            )
        return self.path

    def start(self) -> None:
        if self._folder is None:
            return
        try:
            self._listener = self._listen(self._folder)
        except OSError as error:
            logger.warning("no local server, so State.restore will fail: %s", error)
            return
        self._open()
        self._thread = threading.Thread(target=self._serve, name="local server", daemon=True)
        self._thread.start()

    def serve_one(self, link: socket.socket) -> None:
        self._open()
        self._add(link)
        while self._connections:
            self._serve_once()
        while not self._checkpoint_writer.drain(60):
            pass

    def broadcast(self, message: Message | None) -> None:
        """Sends a message to all workers, including later ones, until replaced; None clears it."""
        with self._lock:
            self._broadcast = message
            if message is not None:
                for connection in self._connections.values():
                    self._post(connection, message)
        self._ring()

    def send(self, pid: int, message: Message) -> None:
        with self._lock:
            for connection in self._connections.values():
                if connection.pid == pid:
                    self._post(connection, message)
        self._ring()

    def drain(self, seconds: float) -> bool:
        """Waits until all requests are on the disk; False: the time is over."""
        deadline = time.monotonic() + seconds
        if self._thread is not None:  # it may not have read the workers' last messages
            self._settled.clear()
            self._ring()
            self._settled.wait(seconds)
        return self._checkpoint_writer.drain(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        self._ended = True
        self._ring()
        if self._thread is not None:
            self._thread.join(1.0)
        if self._folder is not None:
            self._folder.remove()

    def _listen(self, folder: SocketFolder) -> socket.socket:
        listener = folder.bind(socket.SOCK_SEQPACKET)
        listener.listen(MAX_CONNECTIONS)
        listener.setblocking(False)
        return listener

    def _listen_again_if_emptied(self) -> None:
        """Replaces a listener that new workers cannot find. Connections stay."""
        if not (self._folder and self._listener and self._folder.is_emptied()) or self._ended:
            return
        with contextlib.suppress(OSError):  # a full temporary folder: the next look tries again
            listener = self._listen(self._folder)
            self._selector.register(listener, selectors.EVENT_READ)
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = listener

    def _open(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wakeup = Wakeup()
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        if self._listener is not None:
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _ring(self) -> None:
        if self._wakeup is not None:
            self._wakeup.ring()

    def _serve(self) -> None:
        while not self._ended:
            try:
                self._serve_once()
            except Exception:  # the agent and other workers survive whatever a worker does
                logger.exception("the local server goes on after an error")
                time.sleep(0.1)
        if self._listener is not None:
            self._listener.close()
        for connection in self._connections.values():
            connection.socket.close()

    def _serve_once(self) -> None:
        assert self._wakeup is not None
        self._listen_again_if_emptied()
        ready = self._selector.select(LOOK_SECONDS)
        for key, events in ready:
            if key.fileobj is self._wakeup:
                self._wakeup.clear()
            elif key.fileobj is self._listener:
                self._accept()
            elif events & selectors.EVENT_READ:
                self._read(key.data)
        with self._lock:
            connections = [each for each in self._connections.values() if each.waiting]
        for connection in connections:
            self._write(connection)
        if [key.fileobj for key, _ in ready] == [self._wakeup]:
            self._settled.set()
        elif not self._settled.is_set():
            self._ring()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            link, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # too many open files, most likely
            logger.warning("cannot accept a worker: %s", error)
            time.sleep(0.1)
            return
        if len(self._connections) >= MAX_CONNECTIONS:
            link.close()
        else:
            self._add(link)

    def _add(self, link: socket.socket) -> None:
        link.setblocking(False)
        connection = _Connection(link)
        with self._lock:
            self._connections[link.fileno()] = connection
            self._post(connection, {"storage": "hello"})
            if self._broadcast is not None:
                self._post(connection, self._broadcast)
        self._selector.register(link, selectors.EVENT_READ, connection)

    def _remove(self, connection: _Connection) -> None:
        with self._lock:
            if self._connections.pop(connection.socket.fileno(), None) is None:
                return
            self._selector.unregister(connection.socket)
            connection.socket.close()
            drop_waiting(connection.waiting)

    def _read(self, connection: _Connection) -> None:
        descriptors: list[int] = []
        message: Any = None
        try:
            data, descriptors, flags, _ = socket.recv_fds(
                connection.socket, MAX_MESSAGE_BYTES, 1, socket.MSG_CMSG_CLOEXEC
            )
            if not data and not descriptors:
                self._remove(connection)
                return
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise ValueError("too long, or more than one descriptor")
            message = json.loads(data)
            if not isinstance(message, dict):
                raise ValueError("not an object")
            if "storage" in message:
                self._handle(connection, message, descriptors)
            else:
                self.on_message(connection.pid, message)
        except BlockingIOError:
            pass
        except OSError:
            self._remove(connection)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            self._refuse(connection, message, f"{type(error).__name__}: {error}")
        finally:
            for descriptor in descriptors:
                close(descriptor)

    def _handle(self, connection: _Connection, message: Message, descriptors: list[int]) -> None:
        what, name = message["storage"], message.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
            raise ValueError("a name that is none, or too long")
        if what == "hold":
            self._hold(name, descriptors)
        elif what == "fetch":
            held = self._held.get(name)
            answer = {"storage": "fetched", "name": name, "number": message.get("number")}
            self._post(connection, answer, None if held is None else os.dup(held))
        elif what == "drop":
            close(self._held.pop(name, None))
        elif what == "flush":
            self._flush(connection, name, message)
        else:
            raise ValueError(f"{what!r} is not known")

    def _hold(self, name: str, descriptors: list[int]) -> None:
        if len(descriptors) != 1:
            raise ValueError("one descriptor is wanted")
        if name not in self._held and len(self._held) >= MAX_HELD:
            raise ValueError("too many names")
        try:
            fcntl.fcntl(descriptors[0], fcntl.F_GET_SEALS)
        except OSError:
            raise ValueError("not a memory file") from None
        if name in self._held and not _may_replace(self._held[name], descriptors[0]):
            raise ValueError("what is held has a newer state")
        close(self._held.get(name))
        self._held[name] = descriptors.pop()

    def _flush(self, connection: _Connection, name: str, message: Message) -> None:
        number, folder = message["number"], message["folder"]
        keep, now = parse_keep(message["keep"]), message["now"]
        if type(number) is not int or not isinstance(folder, str) or type(now) is not bool:
            raise ValueError("not a request to flush")
        if name not in self._held:
            raise ValueError(f"nothing is held as {name!r}")

        def answer(version: StateVersion | None, trouble: str) -> None:
            flushed = {"name": name, "number": number, "stamp": version, "trouble": trouble}
            with self._lock:
                self._post(connection, {"storage": "flushed", **flushed})
            self._ring()

        memory = os.dup(self._held[name])
        self._checkpoint_writer.ask(Flush(name, memory, folder, keep, answer, now))

    def _refuse(self, connection: _Connection, message: Any, reason: str) -> None:
        if not connection.warned:
            connection.warned = True
            logger.warning(
                "the local server refuses what process %d says: %s", connection.pid, reason
            )
        fields = message if isinstance(message, dict) else {}
        refused = {"name": fields.get("name"), "number": fields.get("number")}
        with self._lock:
            self._post(connection, {"storage": "refused", "reason": reason[:1000], **refused})

    def _post(
        self, connection: _Connection, message: Message, descriptor: int | None = None
    ) -> None:
        """Queues a message for the server's thread, which then closes the descriptor."""
        connected = connection.socket.fileno() in self._connections
        if connected and len(connection.waiting) < MAX_WAITING:
            connection.waiting.append((json.dumps(message).encode(), descriptor))
        else:
            close(descriptor)

    def _write(self, connection: _Connection) -> None:
        try:
            send_waiting(connection.socket, connection.waiting)
        except OSError:
            self._remove(connection)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.waiting else 0)
        self._selector.modify(connection.socket, wanted, connection)


def _may_replace(held: int, other: int) -> bool:
    """Whether a memory file may replace another: not if that loses a newer state."""
    if os.path.sameopenfile(held, other):
        return True
    newest, offered = _newest(held), _newest(other)
    return newest is None or (offered is not None and offered >= newest)


def _newest(fd: int) -> StateVersion | None:
    try:
        slots = valid_slots(fd)
    except (ValueError, OSError):  # another release's
        return None
    return slots[0].version if slots else None


def main(arguments: Sequence[str]) -> None:
    start_logging()
    option, number, *module_folders = arguments
    if option != "--fd":
        raise SystemExit("usage: python -m elastic_pytorch.pod.server --fd N [FOLDER…]")
    # Last, for the library of object storage: this process begins without site-packages.
    sys.path += module_folders
    PodServer().serve_one(socket.socket(fileno=int(number)))


if __name__ == "__main__":
    main(sys.argv[1:])
