"""Workers that start before their group exists.

A failure before then concerns no group: the pod ends, and the operator makes another one after a
pause.
"""

import time
from collections.abc import Callable, Sequence

from elastic_pytorch.agent.handover import Handover
from elastic_pytorch.agent.rendezvous import POLL_SECONDS
from elastic_pytorch.failures.failure import Failure
from elastic_pytorch.log import logger, milliseconds
from elastic_pytorch.processes.worker_processes import WorkerProcesses


class PreparationError(Exception):
    pass


class Preparation:
    def __init__(
        self, processes: WorkerProcesses, handover: Handover, limit_seconds: float
    ) -> None:
        self._processes, self._handover = processes, handover
        self._limit_seconds = limit_seconds
        self._since = time.monotonic()

    @property
    def late(self) -> list[int]:
        """The local ranks of workers that are not ready in time."""
        if time.monotonic() < self._since + self._limit_seconds:
            return []
        return [
            rank
            for rank, pid in sorted(self._processes.pids.items())
            if not self._handover.all_free([pid])
        ]

    def finish(self, wait: Callable[[float], None]) -> None:
        while not self._handover.all_free(self._processes.pids.values()):
            wait(POLL_SECONDS)
        logger.info("workers are ready to join a group after %s", milliseconds(self._since))

    def failure(self, reported: Sequence[Failure]) -> Failure | None:
        """Why the workers cannot join a group; None: they can, or may still become able to."""
        if reported:
            return reported[0]
        if exited := sorted(self._processes.exit_codes()):
            message = "has ended its process with exit code 0 before it had joined a group"
            return self._failure_of(exited[0], 0, "", message)
        if late := self.late:
            message = (
                "was not ready to join a group within spec.prepare.timeoutSeconds "
                f"({self._limit_seconds:g}). A script that waits for another worker before it "
                "reads RANK or calls init_process_group waits without end; its stack is in the log"
            )
            return self._failure_of(late[0], 1, "PreparationTimeout", message)
        return None

    def _failure_of(self, local_rank: int, exit_code: int, exception: str, message: str) -> Failure:
        pid = self._processes.pids[local_rank]
        text, now = f"local rank {local_rank} {message}", time.monotonic()
        return Failure(local_rank, local_rank, pid, exit_code, now, exception, text)
