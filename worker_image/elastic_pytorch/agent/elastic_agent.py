"""Torch's own elastic agent, with the group decided by the operator.

This subclass overrides what torch's loop (`SimpleElasticAgent._invoke_run`) calls, with open
signatures, because torch's differ between releases.
"""

import signal
import socket
import tempfile
import time
from dataclasses import asdict
from typing import Any

from torch.distributed.elastic.agent.server import api
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException

from elastic_pytorch.agent.handover import Handover, Way
from elastic_pytorch.agent.preparation import Preparation, PreparationError
from elastic_pytorch.agent.rendezvous import OperatorRendezvous
from elastic_pytorch.agent.settings import Timeouts
from elastic_pytorch.agent.signals import Signals
from elastic_pytorch.agent.start_faults import start_fault
from elastic_pytorch.failures.failure import Failure, describe
from elastic_pytorch.failures.local_failures import LocalFailures
from elastic_pytorch.failures.oom_kills import OomKills
from elastic_pytorch.log import logger, milliseconds
from elastic_pytorch.operator_link.client import LEAVE_SECONDS, NotedPlaces
from elastic_pytorch.pod.group_variables import group_environment
from elastic_pytorch.processes.orphans import reap_orphans
from elastic_pytorch.processes.temporary_folder import make_temporary_folder_again
from elastic_pytorch.processes.worker_logs import WorkerLogs, follow_ranks
from elastic_pytorch.processes.worker_processes import UnkillableError, WorkerProcesses
from elastic_pytorch.stopping.stacks import dump_stacks

PEER_STOPPED_SECONDS = 5.0  # for a call of C, once a peer has stopped in an orderly change
STACKS_SECONDS = 1.0  # for workers to write their stacks before they are ended

# For each event, torch looks up the fully qualified name, which takes seconds with a slow DNS.
api._get_fq_hostname = socket.gethostname


class ElasticAgent(LocalElasticAgent):
    def __init__(
        self,
        spec: WorkerSpec,
        logs: WorkerLogs,
        *,
        rendezvous: OperatorRendezvous,
        signals: Signals,
        handover: Handover,
        timeouts: Timeouts,
        prefix_template: str | None,
    ) -> None:
        super().__init__(
            spec,
            logs,
            start_method="forkserver",
            log_line_prefix_template=follow_ranks(prefix_template, self._rank_now),
        )
        self.failure: Failure | None = None
        self._rendezvous_handler = rendezvous
        self._client = rendezvous.client
        self._signals = signals
        self._wakeup = rendezvous.wakeup
        self._logs = logs
        self._handover = handover
        self._stacks_wanted = False
        self._timeouts = timeouts
        self._processes: WorkerProcesses | None = None
        self._start_error: OSError | None = None
        self._local_failures = LocalFailures()
        self._oom_kills = OomKills()
        self._preparation: Preparation | None = None

    def _initialize_workers(self, worker_group: WorkerGroup, *args: Any, **kwargs: Any) -> None:
        prepare_seconds = self._timeouts.prepare_seconds
        if prepare_seconds is None or self._rendezvous_handler.finds_group():
            super()._initialize_workers(worker_group, *args, **kwargs)
            return
        self._client.report(
            state="preparing", round=0, rank=0, world_size=0, failure=None, places=None
        )
        worker_group.workers = self._assign_worker_ranks(None, 0, 1, worker_group.spec)
        store: Any = self._rendezvous_handler.make_store(1)
        worker_group.store, worker_group.group_rank, worker_group.group_world_size = store, 0, 1  # type: ignore[assignment]
        self._logs.preparing = True
        self._start_workers(worker_group)
        self._logs.preparing = False
        assert self._processes is not None
        self._preparation = Preparation(self._processes, self._handover, prepare_seconds)
        self._preparation.finish(self._rendezvous_handler.wait)
        self._keep_workers(worker_group)
        self._preparation = None
        worker_group.state = WorkerState.HEALTHY

    def check_preparation(self) -> None:
        if self._preparation is None or self._processes is None:
            return
        self._find_failures(dict(self._processes.exit_codes()))
        if (failure := self._preparation.failure(self._local_failures.in_order())) is None:
            return
        if self._preparation.late:
            self._dump_stacks()
            time.sleep(STACKS_SECONDS)
        self.failure = failure
        self._client.report(state="failed", failure=failure)
        raise PreparationError(failure.message)

    def keeps_processes(self) -> bool:
        """Whether the workers can join another group without a restart. Safe in any thread."""
        processes = self._processes
        return processes is not None and self._handover.all_in_process(processes.pids.values())

    def ask_for_stacks(self) -> None:
        """Safe in any thread."""
        self._stacks_wanted = True
        self._wakeup.ring()

    def _assign_worker_ranks(
        self, _store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec, *_: Any
    ) -> list[Worker]:
        # All pods run equally many workers, so nothing needs to be exchanged.
        size = spec.local_world_size
        first, world_size = group_rank * size, group_world_size * size
        return [
            Worker(
                local_rank=local_rank,
                global_rank=first + local_rank,
                role_rank=first + local_rank,
                world_size=world_size,
                role_world_size=world_size,
            )
            for local_rank in range(size)
        ]

    def _start_workers(
        self, worker_group: WorkerGroup, *args: Any, **kwargs: Any
    ) -> dict[int, Any]:
        since = time.monotonic()
        self._logs.tails.start_round()
        self._handover.start_round()
        self._local_failures = LocalFailures()
        self._oom_kills.happened()  # forgets kills of earlier rounds
        self._start_error = None
        make_temporary_folder_again()
        try:
            pids: dict[int, Any] = super()._start_workers(worker_group, *args, **kwargs)
        except Exception as error:
            program = worker_group.spec.entrypoint
            fault = start_fault(
                error,
                temporary=tempfile.gettempdir(),
                log_dir=self._logs.root_log_dir,
                program=program if isinstance(program, str) else "",
            )
            if fault is not None:
                raise fault from error
            if not isinstance(error, OSError):
                raise
            self._start_error = error
            return {}
        finally:
            self._signals.install()  # torch has just installed its own
        assert self._pcontext is not None
        self._processes = WorkerProcesses(self._pcontext, self._logs.tails.end_line)
        if not self._logs.preparing:
            self._rendezvous_handler.progress.note_started()
        shown = " ".join(map(str, pids.values()))
        logger.info("workers started in %s: pids %s", milliseconds(since), shown)
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup, *_args: Any, **_kwargs: Any) -> RunResult:
        """Returns HEALTHY for a failed group, too: see `OperatorRendezvous`."""
        self._wait_for_news()
        if self._stacks_wanted:
            self._stacks_wanted = False
            self._dump_stacks()
            places = self._processes.find_places() if self._processes else []
            noted = NotedPlaces(time.monotonic(), [asdict(place) for place in places])
            self._client.report(places=noted)
        if self._client.verdict is not None:
            return self._result_of_verdict(worker_group)
        handler = self._rendezvous_handler
        # A newer round takes precedence over a failure, which is then its consequence.
        if not handler.newer_round_known() and not handler.broken:
            self._look_at_exits()
        way = self._way_to_next_round()
        if self._signals.received is not None and self._may_leave(way):
            raise SignalException(f"got {self._signals.received.name}", self._signals.received)
        # A still newer round counts only in the next look: it may need a step boundary, too.
        handler.restarts = way is Way.RESTART
        if way is Way.KEEP_PROCESSES:
            self._keep_workers(worker_group)
        return RunResult(WorkerState.HEALTHY)

    def _way_to_next_round(self) -> Way | None:
        handler = self._rendezvous_handler
        newer = handler.newer_round_known()
        if not newer and not handler.broken:
            return None
        if self._processes is None or self._processes.exit_codes():
            return Way.RESTART
        return self._handover.way(
            self._processes.pids.values(),
            newer_round=self._client.newest.number if newer else None,
            orderly=handler.newer_round_is_orderly(),
            urgent=self._signals.received is not None or not handler.newer_round_keeps_all(),
            leaves=newer and self._client.newest.rank is None,
        )

    def _keep_workers(self, worker_group: WorkerGroup) -> None:
        since = time.monotonic()
        assert self._processes is not None
        pids = self._processes.pids
        self._rendezvous(worker_group)
        self._local_failures = LocalFailures()
        gone = bool(self._processes.exit_codes())  # they may have waited for the round for hours
        if gone:
            logger.info("a worker that waited is gone: all are started again")
            self._shutdown()
            pids = self._start_workers(worker_group)
        for worker in worker_group.workers:
            worker.id = pids.get(worker.local_rank)
        if gone:
            return
        taken = self._rendezvous_handler.taken
        environments = {
            worker.id: group_environment(
                worker.global_rank,
                worker.world_size,
                store=(taken.store_address, taken.store_port),
                local_world_size=worker_group.spec.local_world_size,
                unit_replicas=self._logs.unit_replicas,
            )
            for worker in worker_group.workers
        }
        self._handover.keep_processes(environments)
        self._rendezvous_handler.progress.note_started()
        shown = " ".join(map(str, pids.values()))
        logger.info("workers taken along in %s: pids %s", milliseconds(since), shown)

    def _rank_now(self, local_rank: int) -> int:
        return int(self.get_worker_group().workers[local_rank].global_rank)

    def _dump_stacks(self) -> None:
        if self._processes is not None:
            exited = self._processes.exit_codes()
            running = {
                pid: f"rank {self._rank_now(local_rank)} (local rank {local_rank})"
                for local_rank, pid in self._processes.pids.items()
                if local_rank not in exited
            }
            dump_stacks(running)

    def _look_at_exits(self) -> None:
        if self._start_error is not None:
            name, rank = type(self._start_error).__name__, self._rank_now(0)
            message = f"{name}: {self._start_error}"
            self._report_failure(Failure(0, rank, 0, 127, time.monotonic(), name, message))
        elif self._processes is not None:
            exit_codes = dict(self._processes.exit_codes())  # a worker may exit between two reads
            running = self._find_failures(exit_codes)
            seconds_left = self._local_failures.seconds_left()
            if seconds_left is not None:
                if not running or not seconds_left:
                    self._report_failure(*self._local_failures.in_order())
            elif not running and self._client.reported.state == "running":
                self._client.report(state="succeeded")
                logger.info("all workers have exited with 0; waiting for the verdict")

    def _find_failures(self, exit_codes: dict[int, int]) -> set[int]:
        """Records workers that have failed or lost a peer; returns the local ranks that run."""
        assert self._processes is not None
        assert self._pcontext is not None
        found, pids = self._local_failures, self._processes.pids
        failed = {
            rank: code for rank, code in sorted(exit_codes.items()) if code and rank not in found
        }
        oom_killed = -signal.SIGKILL in failed.values() and self._oom_kills.happened()
        for local_rank, exit_code in failed.items():
            found.add(
                describe(
                    local_rank=local_rank,
                    rank=self._rank_now(local_rank),
                    pid=pids[local_rank],
                    exit_code=exit_code,
                    error_file=str(self._pcontext.error_files.get(local_rank, "")),
                    stderr_file=str(self._pcontext.stderrs.get(local_rank, "")),
                    stderr=self._logs.tails.text(local_rank),
                    oom_killed=oom_killed,
                )
            )
        lost = self._handover.lost_peers(pids)
        for local_rank, message in lost.items():
            rank, pid, now = self._rank_now(local_rank), pids[local_rank], time.monotonic()
            exception = message.partition(":")[0]
            found.add(Failure(local_rank, rank, pid, 1, now, exception, message))
        return set(pids) - set(exit_codes) - set(lost)

    def _report_failure(self, failure: Failure, *others: Failure) -> None:
        self.failure = failure
        # Only for TORCHELASTIC_RESTART_COUNT: the operator has the budget.
        self._remaining_restarts -= 1
        self._rendezvous_handler.broken = True
        if self._signals.received is None:
            self._client.report(state="failed", failure=failure)
        logger.warning("failed: %s", failure.summary())
        for other in others:
            logger.warning("failed, too: %s", other.summary())

    def _result_of_verdict(self, worker_group: WorkerGroup) -> RunResult:
        logger.info("the operator's verdict: %s", self._client.verdict)
        if self._client.verdict == "complete":
            results = {worker.global_rank: None for worker in worker_group.workers}
            return RunResult(WorkerState.SUCCEEDED, return_values=results)
        self._remaining_restarts = 0  # has torch's loop stop the workers and end
        return RunResult(WorkerState.FAILED)

    def _may_leave(self, way: Way | None) -> bool:
        if way is None:  # there was neither a newer round nor a failure
            return time.monotonic() >= self._leave_at()
        return way is not Way.WAIT or not self._rendezvous_handler.newer_round_known()

    def _wait_for_news(self) -> None:
        reap_orphans(set(self._processes.pids.values()) if self._processes else set())
        seconds = self._timeouts.monitor_seconds
        if (left := self._local_failures.seconds_left()) is not None:
            seconds = min(seconds, left)
        if self._signals.received is not None:
            seconds = min(seconds, max(0.0, self._leave_at() - time.monotonic()))
        if self._processes is not None:
            self._processes.wait(self._wakeup, seconds)
        else:
            self._wakeup.wait(seconds)

    def _leave_at(self) -> float:
        """When to stop workers if no round follows SIGTERM: they need the rest to save."""
        most = max(LEAVE_SECONDS, self._timeouts.stop_seconds / 2)
        return self._signals.at + min(self._client.leave_seconds, most)

    def _stop_workers(self, worker_group: WorkerGroup, *args: Any, **kwargs: Any) -> None:
        if self._client.reported.state == "running":
            self._client.report(state="stopping")
        super()._stop_workers(worker_group, *args, **kwargs)

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, *args: Any, **kwargs: Any
    ) -> None:
        processes, self._processes = self._processes, None
        if processes is not None:
            since = time.monotonic()
            running = not processes.all_exited()
            if running:
                logger.info("stopping the workers with %s", death_sig.name)
            asked_at = self._signals.at if self._signals.received else since
            deadline = asked_at + self._timeouts.stop_seconds
            failed = any(processes.exit_codes().values())
            try:
                processes.stop(
                    death_sig, deadline, self._wakeup, lambda: self._patience_seconds(failed=failed)
                )
            except UnkillableError:
                # Torch would wait for it again, in older releases without end.
                self._pcontext = None
                raise
            finally:
                processes.close()
            if running:
                logger.info("workers stopped in %s", milliseconds(since))
        # Torch only closes the tails of the log files: the processes are gone.
        super()._shutdown(death_sig, *args, **kwargs)
        if processes is not None and (running or failed):
            self._logs.end_lines()

    def _patience_seconds(self, *, failed: bool) -> float | None:
        """How long a worker that is being stopped may stay in one call of C; None: without limit.

        After the loss of a peer, a worker that does not stop is stuck. In an orderly change, it may
        be in a long computation of its own, after which its handler runs.
        """
        handler = self._rendezvous_handler
        if failed or handler.broken or not handler.newer_round_is_orderly():
            return 0.0
        return PEER_STOPPED_SECONDS if self._client.peer_stopped(handler.taken.number) else None

    def _exit_barrier(self) -> None:
        """Does nothing: the operator's verdict is the barrier."""
