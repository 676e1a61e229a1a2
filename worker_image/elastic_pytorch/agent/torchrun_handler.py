"""Plain `torchrun` with `--rdzv-backend=elastic-pytorch`: the operator's rounds, torchrun's agent.

Torch finds `handler_creator` by the entry point group `torchrun.handlers`. It sees no SIGTERM, and
only at torchrun's end how a worker failed.
"""

import contextlib
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from torch.distributed import HashStore  # type: ignore[attr-defined] # documented, and there
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters
from torch.distributed.elastic.rendezvous.api import RendezvousHandlerCreator

from elastic_pytorch.agent.rendezvous import POLL_SECONDS, OperatorRendezvous
from elastic_pytorch.agent.settings import Settings, read_settings
from elastic_pytorch.failures.failure import Failure, bounded, describe
from elastic_pytorch.failures.local_failures import LocalFailures
from elastic_pytorch.failures.oom_kills import OomKills
from elastic_pytorch.log import logger, start_logging
from elastic_pytorch.operator_link.stream_link import start_link
from elastic_pytorch.processes.limits import raise_open_files
from elastic_pytorch.progress.receiver import ProgressReceiver
from elastic_pytorch.progress.report import REPORT_SOCKET
from elastic_pytorch.stopping.stacks import children, cold_start_path, dump_stacks

BARRIER_KEY = "torchelastic/agent/terminal_state"
FLUSH_SECONDS = 2.0  # for the last heartbeat, which alone reports why


def handler_creator() -> RendezvousHandlerCreator:
    return create_handler


def create_handler(parameters: RendezvousParameters) -> RendezvousHandler:
    """Uses the operator's settings, not torchrun's; raises SettingsError without them."""
    del parameters
    start_logging()
    raise_open_files()
    settings = read_settings()
    # All pods run equally many workers. Without this, torchrun exchanges the numbers through a
    # store that does not exist here.
    os.environ.setdefault("TORCH_ELASTIC_WORKER_IDENTICAL", "1")
    _warn_of_unknown_options()
    os.environ["PYTHONPATH"] = cold_start_path()
    progress = ProgressReceiver()
    if progress.path:
        os.environ[REPORT_SOCKET] = progress.path
    handler = TorchrunRendezvous(settings, progress, _local_world_size())
    start_link(handler.client)
    return handler


def _warn_of_unknown_options() -> None:
    # Torch imports this module while it imports its own, which lack these names until then.
    from torch.distributed.run import get_args_parser  # noqa: PLC0415

    from elastic_pytorch.agent.options import unknown_variables  # noqa: PLC0415

    for problem in unknown_variables([action.dest for action in get_args_parser()._actions]):
        logger.warning("%s", problem)


class TorchrunRendezvous(OperatorRendezvous):
    """Infers the workers' state from torchrun's calls, and reports it to the operator."""

    def __init__(
        self, settings: Settings, progress: ProgressReceiver, local_world_size: int
    ) -> None:
        super().__init__(settings, progress, local_world_size)
        self.wait = self._wait_or_end
        self.client.on_dump = _dump_stacks
        self._oom_kills = OomKills()

    def next_rendezvous(self) -> Any:
        """A call without a newer round means that the workers have failed."""
        if self.taken.number and not self.newer_round_known():
            self.client.report(state="failed")
        info = super().next_rendezvous()
        self._oom_kills.happened()  # forgets kills of earlier rounds
        return info

    def shutdown(self) -> bool:
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and self.taken.number:
            failure = self._why(error)
            logger.warning("torchrun gives up: %s", failure.summary())
            self.client.report(state="failed", failure=failure, gives_up=True)
            self.client.flush(FLUSH_SECONDS)
        return super().shutdown()

    def _why(self, error: Exception) -> Failure:
        if not isinstance(error, ChildFailedError):
            return bounded(
                Failure(
                    local_rank=0,
                    rank=self.taken.rank or 0,
                    pid=os.getpid(),
                    exit_code=1,
                    observed=time.monotonic(),
                    exception=type(error).__name__,
                    message=f"{type(error).__name__}: {error}",
                    traceback="".join(traceback.format_exception(error)),
                )
            )
        failures, oom_killed = LocalFailures(), self._oom_kills.happened()
        for rank, failed in error.failures.items():
            failures.add(
                describe(
                    local_rank=failed.local_rank,
                    rank=rank,
                    pid=failed.pid,
                    exit_code=failed.exitcode,
                    error_file=failed.error_file,
                    oom_killed=oom_killed,
                )
            )
        return failures.in_order()[0]

    def make_store(self, size: int) -> HashStore:
        return _BarrierStore(self, size)

    def num_nodes_waiting(self) -> int:
        return int(self.newer_round_known())

    def succeeded(self) -> None:
        self.client.report(state="succeeded")
        logger.info("all workers have exited with 0; waiting for the verdict")
        while not self.newer_round_known():
            self._wait_or_end(POLL_SECONDS)

    def _wait_or_end(self, seconds: float) -> None:
        if self.client.verdict is not None:
            logger.info("end: the job is %s", self.client.verdict)
            raise SystemExit(0 if self.client.verdict == "complete" else 1)
        self.wakeup.wait(seconds)


class _BarrierStore(HashStore):
    """Takes an arrival at torchrun's exit barrier for success, and lets no agent wait there."""

    def __init__(self, rendezvous: TorchrunRendezvous, size: int) -> None:
        super().__init__()
        self._rendezvous = rendezvous
        self._size = size

    def add(self, key: str, amount: int) -> int:
        if BARRIER_KEY in key:
            self._rendezvous.succeeded()
            amount = self._size
        return int(super().add(key, amount))


def _dump_stacks() -> None:
    """In a thread, as each worker takes a tenth of a second, and heartbeats go on meanwhile."""
    workers = {pid: f"rank {_rank(pid)}" for pid in children(os.getpid())}
    threading.Thread(target=dump_stacks, args=(workers,), daemon=True).start()


def _rank(pid: int) -> str:
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0"):
            name, _, value = variable.partition("=")
            if name == "RANK":
                return value
    return "unknown"


def _local_world_size() -> int:
    """From torchrun's options, or under another launcher from the variable."""
    from torch.distributed.run import determine_local_world_size, get_args_parser  # noqa: PLC0415

    workers = os.environ.get("PET_NPROC_PER_NODE", "1")
    with contextlib.suppress(SystemExit, ValueError):
        parser = get_args_parser()
        parser.error = sys.exit  # type: ignore[assignment] # silently: the options are not torchrun's
        workers = parser.parse_args(sys.argv[1:]).nproc_per_node
    with contextlib.suppress(ValueError):
        return int(determine_local_world_size(workers))
    return 1
