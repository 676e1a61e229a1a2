"""The pod's server: keeps the memory files of workers beyond the workers' lives, has them flushed to disk, and passes messages on.

It exchanges JSON over a unix socket of packets; descriptors travel beside it. Messages with a key
`storage` are its own, all others are between the agent and the workers. In a pod with the agent it
is the agent's thread; under plain torchrun it is a process beside the worker: `python -m
elastic_pytorch.pod.server --fd N`. Standard library only, so that this takes no time to start.
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
from functools import partial
from typing import Any

from elastic_pytorch.log import logger, start_logging
from elastic_pytorch.memory.slots import read_header, valid_slots
from elastic_pytorch.pod.messages import (
    CLOEXEC,
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

MAX_HELD = 256
MAX_CONNECTIONS = 256
MAX_WAITING = 1000  # messages to a worker that does not read them


class _Connection:
    def __init__(self, link: socket.socket) -> None:
        self.socket = link
        pid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        self.pid = _worker_of(pid)
        self.waiting: Waiting = deque()
        self.warned = False


def _worker_of(pid: int) -> int:
    """Returns the worker that a process belongs to: the leader of its session, as which workers are started, or itself.

    A worker may be a shell that runs the script in a process of its own.
    """
    try:
        session = os.getsid(pid)
    except ProcessLookupError:
        return pid
    return pid if session == os.getsid(0) else session


class PodServer:
    """The server, for the agent: a socket in a directory of its own, and a thread."""

    def __init__(self, checkpoint_writer: CheckpointWriter | None = None) -> None:
        self.path = ""  # for the workers' environment; empty: there is none
        # Called in the server's thread with a worker's process id and its message.
        self.on_message: Callable[[int, Message], None] = lambda _pid, _message: None
        self._folder: SocketFolder | None = None
        self._held: dict[str, int] = {}
        self._connections: dict[int, _Connection] = {}
        self._broadcast: Message | None = None
        self._checkpoint_writer = checkpoint_writer or CheckpointWriter()
        self._lock = threading.RLock()
        self._selector: selectors.BaseSelector | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._settled = threading.Event()  # set when there is nothing left to read from any worker
        self._settled.set()
        self._ended = False

    def prepare(self) -> str:
        """Chooses the socket's path and returns it; empty: none is possible.

        Nothing listens there before `start`.
        """
        try:
            self._folder = SocketFolder("local")
            self.path = self._folder.path
        except OSError as error:
            logger.warning(
                "no local server, so State keeps nothing in this pod's memory: %s", error
            )
        return self.path

    def start(self) -> None:
        """Starts listening.

        To be called after the fork of processes that must not inherit what is opened here.
        """
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
        """Serves one worker to its end in the calling thread, then finishes the worker's requests."""
        self._open()
        self._add(link)
        while self._connections:
            self._serve_once()
        while not self._checkpoint_writer.drain(60):
            pass

    def broadcast(self, message: Message | None) -> None:
        """Broadcasts a message to all workers, including later ones, until replaced; None clears it."""
        with self._lock:
            self._broadcast = message
            if message is not None:
                for connection in self._connections.values():
                    self._post(connection, message)
        self._ring()

    def send(self, pid: int, message: Message) -> None:
        """Sends a message to one worker; does nothing if it is gone."""
        with self._lock:
            for connection in self._connections.values():
                if connection.pid == pid:
                    self._post(connection, message)
        self._ring()

    def drain(self, seconds: float) -> bool:
        """Waits until all that workers have requested is on the disk; False: the time was not enough."""
        deadline = time.monotonic() + seconds
        if self._thread is not None:  # the workers' last messages may not have been read yet
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
        """Replaces a listener that new workers no longer find. Those that are connected stay so."""
        if (
            self._folder is None
            or self._listener is None
            or self._ended
            or not self._folder.is_emptied()
        ):
            return
        assert self._selector is not None
        with contextlib.suppress(OSError):  # the temporary folder may be full; it is tried again
            listener = self._listen(self._folder)
            self._selector.register(listener, selectors.EVENT_READ)
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = listener

    def _open(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._bell = socket.socketpair()
        for end in self._bell:
            end.setblocking(False)
        self._selector.register(self._bell[0], selectors.EVENT_READ)
        if self._listener is not None:
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _ring(self) -> None:
        if self._bell is not None:
            with contextlib.suppress(OSError):
                self._bell[1].send(b"\0")

    def _serve(self) -> None:
        while not self._ended:
            try:
                self._serve_once()
            except Exception:  # whatever a worker does, the agent and the others continue
                logger.exception("the local server goes on after an error")
                time.sleep(0.1)
        for link in (
            self._listener,
            *(connection.socket for connection in self._connections.values()),
        ):
            if link is not None:
                link.close()

    def _serve_once(self) -> None:
        assert self._selector is not None
        assert self._bell is not None
        self._listen_again_if_emptied()
        ready = self._selector.select(LOOK_SECONDS)
        for key, events in ready:
            if key.fileobj is self._bell[0]:
                with contextlib.suppress(BlockingIOError):
                    while self._bell[0].recv(4096):
                        pass
            elif key.fileobj is self._listener:
                self._accept()
            elif events & selectors.EVENT_READ:
                self._read(key.data)
        with self._lock:
            connections = list(self._connections.values())
        for connection in connections:
            self._write(connection)
        if [key.fileobj for key, _ in ready] == [self._bell[0]]:
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
        assert self._selector is not None
        link.setblocking(False)
        connection = _Connection(link)
        with self._lock:
            self._connections[link.fileno()] = connection
            self._post(connection, {"storage": "hello"})
            if self._broadcast is not None:
                self._post(connection, self._broadcast)
        self._selector.register(link, selectors.EVENT_READ, connection)

    def _remove(self, connection: _Connection) -> None:
        assert self._selector is not None
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
                connection.socket, MAX_MESSAGE_BYTES, 1, CLOEXEC
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
            copy = None if held is None else os.dup(held)
            self._post(
                connection,
                {"storage": "fetched", "name": name, "number": message.get("number")},
                copy,
            )
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
        number, folder, keep, now = (
            message["number"],
            message["folder"],
            parse_keep(message["keep"]),
            message["now"],
        )
        if type(number) is not int or not isinstance(folder, str) or type(now) is not bool:
            raise ValueError("not a request to flush")
        if name not in self._held:
            raise ValueError(f"nothing is held as {name!r}")
        answer = partial(self._answer_flush, connection, name, number)
        self._checkpoint_writer.ask(
            Flush(name, os.dup(self._held[name]), folder, keep, answer, now)
        )

    def _answer_flush(
        self,
        connection: _Connection,
        name: str,
        number: int,
        version: StateVersion | None,
        trouble: str,
    ) -> None:
        with self._lock:
            self._post(
                connection,
                {
                    "storage": "flushed",
                    "name": name,
                    "number": number,
                    "stamp": version,
                    "trouble": trouble,
                },
            )
        self._ring()

    def _refuse(self, connection: _Connection, message: Any, reason: str) -> None:
        if not connection.warned:
            connection.warned = True
            logger.warning(
                "the local server refuses what process %d says: %s", connection.pid, reason
            )
        refused = (
            {key: message.get(key) for key in ("name", "number")}
            if isinstance(message, dict)
            else {}
        )
        with self._lock:
            self._post(connection, {"storage": "refused", "reason": reason[:1000], **refused})

    def _post(
        self, connection: _Connection, message: Message, descriptor: int | None = None
    ) -> None:
        """Queues a message for the server's thread to send; the descriptor is closed after that."""
        if (
            connection.socket.fileno() not in self._connections
            or len(connection.waiting) >= MAX_WAITING
        ):
            close(descriptor)
            return
        connection.waiting.append((json.dumps(message).encode(), descriptor))

    def _write(self, connection: _Connection) -> None:
        assert self._selector is not None
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
        slots = valid_slots(read_header(fd))
    except (ValueError, OSError):  # not a snapshot of this release
        return None
    return slots[0].version if slots else None


def main(arguments: Sequence[str]) -> None:
    """Serves the worker at the other end of a socket, whose descriptor is given as `--fd N`; behind it, where the worker finds modules."""
    start_logging()
    option, number, *module_folders = arguments
    if option != "--fd":
        raise SystemExit("usage: python -m elastic_pytorch.pod.server --fd N [FOLDER…]")
    # Behind the standard library, for what object storage needs: this process begins without
    # site-packages.
    sys.path += module_folders
    PodServer().serve_one(socket.socket(fileno=int(number)))


if __name__ == "__main__":
    main(sys.argv[1:])
