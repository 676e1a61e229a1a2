"""The processes of the pod's workers, however torch has started them."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial

from torch.distributed.elastic.multiprocessing.api import (
    MultiprocessContext,
    PContext,
    SubprocessContext,
)

from elastic_pytorch.log import logger
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.processes.worker_groups import Left, kill_groups
from elastic_pytorch.stopping.answers import ANSWER_SIGNAL
from elastic_pytorch.stopping.main_stacks import find_places
from elastic_pytorch.stopping.observation import OBSERVE_SECONDS, StopObserver
from elastic_pytorch.stopping.places import StackSite
from elastic_pytorch.stopping.stacks import children, handles
from elastic_pytorch.wakeup import Wakeup

MAX_PLACES = 128  # for the operator to compare
KILLED_SECONDS = 20.0  # after SIGKILL: releasing a hundred GB of pinned memory takes several


class UnkillableError(Exception):
    """A worker hangs in the kernel, perhaps in a driver, and has outlived SIGKILL."""


class WorkerProcesses:
    """Torch's own contexts poll for exits, and delay a failure by up to 30 s for the others."""

    def __init__(self, context: PContext, ended: Callable[[int], None]) -> None:
        self.pids: dict[int, int] = context.pids()
        # The forkserver, too, which starts the next workers.
        kept = {*children(os.getpid()), *self.pids.values()}
        path = os.environ.get(LOCAL_SOCKET)
        self._left = None if path is None else Left(f"{LOCAL_SOCKET}={path}", kept)
        self._polls: dict[int, Callable[[], int | None]] = {}
        self._exit_codes: dict[int, int] = {}
        self._ended = ended
        self._may_be_programs = isinstance(context, SubprocessContext)
        if isinstance(context, SubprocessContext):
            for rank, handler in context.subprocess_handlers.items():
                self._polls[rank] = handler.proc.poll
        elif isinstance(context, MultiprocessContext) and context._pc is not None:
            for rank, process in enumerate(context._pc.processes):
                self._polls[rank] = partial(getattr, process, "exitcode")
        self._pidfds: dict[int, int] = {}
        for rank, pid in self.pids.items():
            # Without pidfds, as in an old kernel or after an exit, polling remains.
            with contextlib.suppress(OSError):
                self._pidfds[rank] = os.pidfd_open(pid)
        self._exited_at = 0.0

    def exit_codes(self) -> dict[int, int]:
        """By local rank; negative: killed by that signal."""
        for rank, poll in self._polls.items():
            if rank not in self._exit_codes and (code := poll()) is not None:
                self._exit_codes[rank] = code
                self._ended(rank)
        return self._exit_codes

    def find_places(self) -> list[StackSite]:
        """Where the main threads are, by local rank, after a second at most."""
        exited = self.exit_codes()
        places = find_places(pid for rank, pid in self.pids.items() if rank not in exited)
        ended = {rank: StackSite("other" if code else "ended") for rank, code in exited.items()}
        return [
            ended.get(rank) or places[self.pids[rank]] for rank in sorted(self.pids)[:MAX_PLACES]
        ]

    def all_exited(self) -> bool:
        return len(self.exit_codes()) == len(self._polls)

    def wait(self, wakeup: Wakeup, seconds: float) -> None:
        if not self._pidfds or time.monotonic() - self._exited_at < 0.1:
            # The pidfd signals an exit shortly before its code is available.
            seconds = min(seconds, 0.005 if self._pidfds or self._exited_at else 0.02)
        ready = wakeup.wait(seconds, self._pidfds.values())
        for rank in [rank for rank, descriptor in self._pidfds.items() if descriptor in ready]:
            os.close(self._pidfds.pop(rank))
            self._exited_at = time.monotonic()

    def stop(
        self,
        death_signal: signal.Signals,
        deadline: float,
        wakeup: Wakeup,
        patience_seconds: Callable[[], float | None],
    ) -> None:
        """Ends all running workers: with the signal, and at the deadline with SIGKILL.

        The deadline is in monotonic seconds. `patience_seconds` returns None while no peer is gone,
        so that a collective may still complete. Otherwise workers that cannot run their handler get
        SIGKILL after that long in one call of C.

        Raises:
            UnkillableError: a worker has outlived SIGKILL.
        """
        observer = StopObserver(self._running(), death_signal)
        self._ask_to_end(death_signal)
        killed: set[int] = set()
        while not self._running() <= killed and (left := deadline - time.monotonic()) > 0:
            self.wait(wakeup, min(left, OBSERVE_SECONDS))
            if (patience := patience_seconds()) is not None:
                for pid, stack in observer.find_stuck(patience):
                    killed.add(pid)
                    logger.warning(
                        "pid %d cannot run its handler after the loss of a peer, killing it: %s",
                        pid,
                        stack.partition("\n")[0],
                    )
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
        observer.close()
        if not self.all_exited():
            running = self._running()
            kill_groups(running)
            for pid in running:
                with contextlib.suppress(OSError):  # a new worker without a group of its own
                    os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + KILLED_SECONDS
            while not self.all_exited() and (left := deadline - time.monotonic()) > 0:
                self.wait(wakeup, min(left, 0.25))
        # Left-over processes would obstruct the next workers.
        kill_groups(set(self.pids.values()), self._left)
        if running := self._running():
            pids = ", ".join(map(str, sorted(running)))
            raise UnkillableError(
                f"worker process {pids} has not ended {KILLED_SECONDS:g} s after SIGKILL"
            )

    def close(self) -> None:
        while self._pidfds:
            os.close(self._pidfds.popitem()[1])

    def _running(self) -> set[int]:
        exited = self.exit_codes()
        return {pid for rank, pid in self.pids.items() if rank not in exited}

    def _ask_to_end(self, death_signal: signal.Signals) -> None:
        for pid in self._running():
            handling = _with_handler(pid, death_signal) if self._may_be_programs else [pid]
            if handling:
                for process in handling:
                    with contextlib.suppress(OSError):
                        os.kill(process, death_signal)
            else:
                _signal_group(pid, death_signal)


def _with_handler(worker: int, death_signal: signal.Signals) -> list[int]:
    """The processes to signal, if a Python script among them handles the signal.

    They are the script, whose data loaders must live until it has saved, and a shell in front of
    it, which would not pass the signal on. Empty: the whole group gets it, as from torchrun.
    """
    # A Python that was started to answer, so no shell.
    if handles(worker, death_signal, ANSWER_SIGNAL):
        return [worker]
    below = [
        process for child in children(worker) for process in _with_handler(child, death_signal)
    ]
    return [worker, *below] if below else []


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except OSError:
        with contextlib.suppress(OSError):  # a new worker without a group of its own
            os.kill(pid, number)
