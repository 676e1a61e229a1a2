"""Follows the operator's requests to check this pod's node while the agent waits for a round.

The measurements run in processes of their own, one for each training process: a hung driver or a crash there does not reach the agent.
"""

import multiprocessing
import threading
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from elastic_pytorch.log import logger
from elastic_pytorch.operator_link.client import NodeCheck, OperatorClient
from elastic_pytorch.operator_link.rounds import CheckRequest
from elastic_pytorch.operator_link.store_port import StorePort
from elastic_pytorch.preflight.measure import measure_node

LOOK_SECONDS = 0.2  # from one look at whether the check is still wanted to the next
END_SECONDS = 5.0  # for a killed process
LATE_SECONDS = 5.0  # beyond the time of a check, for a process to report what has taken so long


class NodeChecks:
    """Makes the check that the operator asks for, in a thread, and reports what it has shown. One at a time.

    Args:
        client: the connection to the operator.
        store_port: the reservation to lend when this pod serves the store of a check.
    """

    def __init__(self, client: OperatorClient, store_port: StorePort) -> None:
        self._client = client
        self._store_port = store_port
        self._number = 0
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def follow(self) -> None:
        """Begins the check that is asked for, unless it has begun; ends one that is asked for no more."""
        request = self._client.check if isinstance(self._client.check, CheckRequest) else None
        number = request.number if request else 0
        if number == self._number:
            return
        self.stop()
        self._number = number
        if request is not None:
            if request.first_rank == 0:
                self._store_port.lend(request.store_port)
            self._stopped = threading.Event()
            self._thread = threading.Thread(target=self._check, args=(request, self._stopped), name="node check", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the check that is going on; nothing is reported of it."""
        if self._thread is not None:
            self._stopped.set()
            self._thread.join(END_SECONDS)
            self._thread = None

    def _check(self, request: CheckRequest, stopped: threading.Event) -> None:
        try:
            check = make_check(request, self._client.local_world_size, stopped)
        except Exception as error:  # an agent that cannot start processes has a faulty node, too
            check = NodeCheck(request.number, error=f"{type(error).__name__}: {error}")
        if not stopped.is_set():
            logger.info("node check %d: %s", request.number, _describe(check))
            self._client.tell_check(check)


def make_check(request: CheckRequest, local_world_size: int, stopped: threading.Event) -> NodeCheck:
    """Measures this pod's node, and returns what the slowest process has measured, or the first error.

    Args:
        request: what is to be measured.
        local_world_size: processes per pod.
        stopped: set when the check is asked for no more.
    """
    deadline = time.monotonic() + request.seconds
    context = multiprocessing.get_context("forkserver")
    processes: dict[Connection, BaseProcess] = {}
    try:
        for local_rank in range(local_world_size):
            reader, writer = context.Pipe(duplex=False)
            processes[reader] = process = context.Process(
                target=measure_node, args=(writer, request, local_rank, local_world_size, deadline), daemon=True
            )
            process.start()
            writer.close()
        results = _collect(request.number, list(processes), deadline + LATE_SECONDS, stopped)
    finally:
        _end(processes.values())
        for reader in processes:
            reader.close()
    return _summarise(results)


def _collect(number: int, readers: list[Connection], deadline: float, stopped: threading.Event) -> list[NodeCheck]:
    """What each process has measured, by local rank; an error for one that has ended without a result, or not in time."""
    results = [NodeCheck(number, error="the time is over")] * len(readers)
    local_ranks = {reader: local_rank for local_rank, reader in enumerate(readers)}
    while local_ranks and (left := deadline - time.monotonic()) > 0 and not stopped.is_set():
        for reader in wait(list(local_ranks), min(left, LOOK_SECONDS)):
            assert isinstance(reader, Connection)
            local_rank = local_ranks.pop(reader)
            try:
                results[local_rank] = reader.recv()
            except EOFError:
                results[local_rank] = NodeCheck(number, error="the process has crashed")
    return results


def _end(processes: Iterable[BaseProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
        if process.pid is not None:
            process.join(END_SECONDS)


def _summarise(results: list[NodeCheck]) -> NodeCheck:
    errors = [
        result.error if len(results) == 1 else f"local rank {local_rank}: {result.error}"
        for local_rank, result in enumerate(results)
        if result.error
    ]
    return NodeCheck(
        results[0].number,
        max((r.matmul_seconds for r in results if r.matmul_seconds is not None), default=None),
        max((r.all_reduce_seconds for r in results if r.all_reduce_seconds is not None), default=None),
        errors[0] if errors else "",
    )


def _describe(check: NodeCheck) -> str:
    measured = (("matrix products", check.matmul_seconds), ("all-reduces", check.all_reduce_seconds))
    times = [f"{what} {seconds:.3f} s" for what, seconds in measured if seconds is not None]
    return ", ".join([check.error or "no error", *times])
