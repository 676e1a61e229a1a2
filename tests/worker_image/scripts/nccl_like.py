"""A c10d backend of CPU tensors that fails as ProcessGroupNCCL does; its name is "nccl_like".

gloo carries the data. What is NCCL's about it:

- A collective returns at once. One thread of the group runs them, in order.
- `Work.wait()` blocks in C++ with the interpreter's lock released, so no signal handler of Python's
  runs until it returns. (NCCL's own `wait()` holds up the stream only, and the host blocks where it
  synchronises. Tensors of a CPU can be looked at at any time.)
- A lost peer is not noticed: the collective does not end, nor any after it. After the group's
  time-out (ten minutes by default) the watchdog writes what it has seen to stderr and aborts the
  process. `shutdown()` waits as well.
- With NCCL_LIKE_NOTICES=1 a closed connection is noticed, as by NCCL over TCP sockets: the watchdog
  aborts the process at once.
- With NCCL_LIKE_ERROR=invalid-usage the set-up fails: the first collective of a group connects the
  ranks, as ncclCommInitRank does, and raises on all of them.
- `abort()` ends all waits at once, whatever the tensors hold, and closes the connections. Later
  collectives raise.

The words are those of torch 2.6 (and 2.5, for set-up errors) with NCCL 2.21.5, from logs that users
have published; their C++ frames and line numbers in the NCCL library are left out. torch 2.11 with
NCCL 2.28.9 says the same on an H100 (`failures/test_words_of_nccl.py`). There the watchdog waits
for a minute before it aborts the process.
"""

import contextlib
import os
import queue
import socket
import stat
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.distributed import ProcessGroupGloo
from torch.distributed.constants import default_pg_timeout
from torch.futures import Future

DEFAULT_TIMEOUT = timedelta(minutes=10)  # NCCL's; that of other backends is half an hour
GLOO_TIMEOUT = timedelta(days=1)  # the watchdog's is the one that counts
WATCHDOG_SECONDS = 0.1  # between its looks, as ProcessGroupNCCL's
SOURCE = "/pytorch/torch/csrc/distributed/c10d"

INVALID_USAGE = (
    f"NCCL error in: {SOURCE}/NCCLUtils.hpp:268, "
    "invalid usage (run with NCCL_DEBUG=WARN for details), "
    "NCCL version 2.21.5\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
    "Last error:\n"
    "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
)
REMOTE_ERROR = (
    "remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: "
    "A call failed possibly due to a network "
    "error or a remote process exiting prematurely.\nLast error:\nsocketProgress: "
    "Connection closed by remote peer"
)
# What a collective is called, in a group and in ProcessGroupGloo, with torch's name of the
# operation. Which there are depends on torch.
OPERATIONS = {
    "allreduce": "ALLREDUCE",
    "allreduce_coalesced": "ALLREDUCE_COALESCED",
    "broadcast": "BROADCAST",
    "reduce": "REDUCE",
    "allgather": "ALLGATHER",
    "allgather_coalesced": "ALLGATHER_COALESCED",
    "_allgather_base": "_ALLGATHER_BASE",
    "all_gather_single": "_ALLGATHER_BASE",
    "allgather_into_tensor_coalesced": "ALLGATHER_INTO_TENSOR_COALESCED",
    "all_gather_single_coalesced": "ALLGATHER_INTO_TENSOR_COALESCED",
    "reduce_scatter": "REDUCE_SCATTER",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
    "reduce_scatter_single": "_REDUCE_SCATTER_BASE",
    "reduce_scatter_tensor_coalesced": "REDUCE_SCATTER_TENSOR_COALESCED",
    "reduce_scatter_single_coalesced": "REDUCE_SCATTER_TENSOR_COALESCED",
    "alltoall": "ALLTOALL",
    "alltoall_base": "ALLTOALL_BASE",
    "all_to_all_single": "ALLTOALL_BASE",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "barrier": "BARRIER",
    "send": "SEND",
    "recv": "RECV",
}


class _Collective:
    """One that has been asked for, by the name of ProcessGroupGloo's method."""

    def __init__(
        self, number: int, name: str, arguments: tuple[Any, ...], timeout_seconds: float
    ) -> None:
        self.number = number
        self.name = name
        self.arguments = arguments
        self.timeout_seconds = timeout_seconds
        self.asked_at = time.monotonic()
        self.done: Future[Any] = Future()

    def end(self) -> None:
        self.done.set_result(self.arguments[0] if self.arguments else None)

    def __str__(self) -> str:
        # The order differs: outputs come first where a method takes both.
        numels = [
            _numel(argument)
            for argument in self.arguments[:2]
            if isinstance(argument, list | torch.Tensor)
        ] or [1]
        return (
            f"WorkNCCL(SeqNum={self.number}, OpType={OPERATIONS[self.name]}, NumelIn={numels[-1]}, "
            f"NumelOut={numels[0]}, "
            f"Timeout(ms)={self.timeout_seconds * 1000:.0f})"
        )


class ProcessGroupNCCLLike(dist.ProcessGroup):
    """The group of one process."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: timedelta, name: str
    ) -> None:
        super().__init__(rank, size)
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._name = name
        self._gloo: ProcessGroupGloo | None = None
        self._sockets: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self._asked: queue.SimpleQueue[_Collective | None] = queue.SimpleQueue()
        self._pending: list[_Collective] = []
        self._completed = 0
        self._count = 0
        self._aborted = False
        self._ended = threading.Event()

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return "nccl_like"

    def getGroupName(self) -> str:  # noqa: N802 - torch's name
        return self._name

    @property
    def group_name(self) -> str:
        return self._name

    def shutdown(self) -> None:
        """Waits for all that was asked for, in C++, and lets go of the connections."""
        with self._lock:
            last = self._pending[-1] if self._pending else None
        if last is not None:
            last.done.wait()
        self._ended.set()
        self._asked.put(None)
        self._gloo = None

    def abort(self) -> None:
        """Ends all waits at once. May be called from any thread."""
        with self._lock:
            self._aborted = True
            pending, self._pending = self._pending, []
        self._ended.set()
        self._asked.put(None)
        for collective in pending:
            collective.end()
        _cut(self._sockets)

    def _ask(self, name: str, arguments: tuple[Any, ...]) -> Future[Any]:
        timeout = self._timeout
        for options in arguments:
            if hasattr(options, "timeout"):
                timeout = options.timeout if options.timeout > timedelta(0) else timeout
                options.timeout = GLOO_TIMEOUT
        with self._lock:
            if self._aborted:
                raise dist.DistBackendError(f"NCCL communicator was aborted on rank {self._rank}.")
            self._count += 1
            collective = _Collective(self._count, name, arguments, timeout.total_seconds())
            self._pending.append(collective)
            self._asked.put(collective)
        return collective.done

    def _connect(self) -> None:
        before = _open_sockets()
        try:
            self._gloo = ProcessGroupGloo(self._store, self._rank, self._size, GLOO_TIMEOUT)
            self._gloo.barrier().wait()  # none is to leave before the others are connected
        except RuntimeError as error:
            raise dist.DistBackendError(
                f"NCCL error in: {SOURCE}/ProcessGroupNCCL.cpp:2588, {REMOTE_ERROR}"
            ) from error
        self._sockets = _open_sockets() - before
        if os.environ.get("NCCL_LIKE_ERROR") == "invalid-usage":
            raise dist.DistBackendError(INVALID_USAGE)
        threading.Thread(
            target=self._run, args=(self._gloo,), name="nccl_like", daemon=True
        ).start()
        threading.Thread(target=self._watch, name="nccl_like watchdog", daemon=True).start()

    def _run(self, gloo: ProcessGroupGloo) -> None:
        while (collective := self._asked.get()) is not None:
            try:
                getattr(gloo, collective.name)(*collective.arguments).wait()
            except RuntimeError:
                if os.environ.get("NCCL_LIKE_NOTICES") and not self._aborted:
                    self._die(collective, f"NCCL error: {REMOTE_ERROR}", raised=True)
                self._ended.wait()  # with the connections, which a peer may still use
                return
            with self._lock:
                if self._aborted:
                    return
                self._pending.remove(collective)
                self._completed = collective.number
            collective.end()

    def _watch(self) -> None:
        while not self._ended.wait(WATCHDOG_SECONDS):
            with self._lock:
                oldest = next(iter(self._pending), None)
            if (
                oldest is not None
                and (ran := time.monotonic() - oldest.asked_at) > oldest.timeout_seconds
            ):
                self._die(
                    oldest,
                    f"[Rank {self._rank}] Watchdog caught collective operation timeout: "
                    f"{oldest} ran for {ran * 1000:.0f} milliseconds "
                    "before timing out.",
                )

    def _die(self, collective: _Collective, reason: str, *, raised: bool = False) -> None:
        """Aborts the process as ProcessGroupNCCL's watchdog does."""
        rank, group = self._rank, f"[PG ID 0 PG GUID 0(default_pg) Rank {self._rank}]"
        first = (
            (
                542,
                f"[Rank {rank}] Collective {collective} raised the following async exception: "
                f"{reason}",
            )
            if raised
            else (632, reason)
        )
        lines = [
            first,
            (
                2268,
                f"{group}  failure detected by watchdog at work sequence id: "
                f"{collective.number} PG status: last enqueued work: "
                f"{self._count}, last completed work: {self._completed}",
            ),
            (
                681,
                f"[Rank {rank}] Some NCCL operations have failed or timed out. "
                "Due to the asynchronous nature of CUDA kernels, "
                "subsequent GPU operations might run on corrupted/incomplete data.",
            ),
            (
                695,
                f"[Rank {rank}] To avoid data inconsistency, "
                "we are taking the entire process down.",
            ),
            (1895, f"{group} Process group watchdog thread terminated with exception: {reason}"),
        ]
        stamp = time.strftime("%m%d %H:%M:%S") + ".000000000"
        text = "".join(
            f"[rank{rank}]:[E{stamp} ProcessGroupNCCL.cpp:{number}] {line}\n"
            for number, line in lines
        )
        text += (
            "terminate called after throwing an instance of 'c10::DistBackendError'\n"
            f"  what():  {lines[-1][1]}\n"
        )
        os.write(2, text.encode())
        os.abort()


def _method(name: str) -> Callable[..., Any]:
    def method(group: ProcessGroupNCCLLike, *arguments: Any, **named: Any) -> Any:
        if group._gloo is None and not group._aborted:
            group._connect()
        return _create_work_from_future(group._ask(name, (*arguments, *named.values())))

    return method


def _in_gloo(name: str) -> str | None:
    """How ProcessGroupGloo calls a collective; None if it has none.

    In torch 2.13, only groups have some of the newer names.
    """
    same = [other for other, operation in OPERATIONS.items() if operation == OPERATIONS[name]]
    return next((other for other in (name, *same) if hasattr(ProcessGroupGloo, other)), None)


for _name in OPERATIONS:
    if hasattr(dist.ProcessGroup, _name) and (_gloo_name := _in_gloo(_name)) is not None:
        setattr(ProcessGroupNCCLLike, _name, _method(_gloo_name))


def _numel(argument: Any) -> int:
    return (
        argument.numel()
        if isinstance(argument, torch.Tensor)
        else sum(_numel(part) for part in argument)
    )


def _open_sockets() -> set[tuple[int, int]]:
    """Descriptor and inode of each."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is wanted
        with contextlib.suppress(OSError):
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.add((int(name), status.st_ino))
    return found


def _cut(sockets: set[tuple[int, int]]) -> None:
    for descriptor, inode in sockets:
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_ino == inode:
                with socket.socket(fileno=os.dup(descriptor)) as link:
                    if not link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        link.shutdown(socket.SHUT_RDWR)


def _create(options: Any, _backend_options: Any = None) -> ProcessGroupNCCLLike:
    timeout = DEFAULT_TIMEOUT if options.timeout == default_pg_timeout else options.timeout
    return ProcessGroupNCCLLike(
        options.store, options.group_rank, options.group_size, timeout, options.group_id
    )


dist.Backend.register_backend("nccl_like", _create, extended_api=True, devices=["cpu"])
