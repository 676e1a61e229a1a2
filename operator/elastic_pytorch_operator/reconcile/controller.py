"""The loop: it plans a job whose key is due, declares the round, and has the writer do the rest.

Planning waits for nothing: a write that hangs delays neither its job's next round nor another job.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from zlib import crc32

from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.api.conditions import has_ended
from elastic_pytorch_operator.api.times import earliest, write_time
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.model.actions import PatchStatus, RecordEvent
from elastic_pytorch_operator.model.observed import Observed
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.planning.failed_writes import describe
from elastic_pytorch_operator.planning.memory import Memory, Plan, recall
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.reporting.status_writes import Written
from elastic_pytorch_operator.reconcile.execute import Executor
from elastic_pytorch_operator.reconcile.job_writer import Ended, JobWriter, WriteKind
from elastic_pytorch_operator.reconcile.listing import Listing, can_list_any, list_cluster
from elastic_pytorch_operator.reconcile.observe import observe
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.reconcile.write_slots import WriteSlots
from elastic_pytorch_operator.spec.job import Job, JobKey
from elastic_pytorch_operator.spec.platform.job_template import TemplateUnread

logger = logging.getLogger(__name__)

RESYNC_SECONDS = 300.0
RESYNC_PARTS = 60
# Between two checks whether new watches have reported all that was listed before.
WATCH_CHECK_SECONDS = 1.0
UNAVAILABLE_SECONDS = 30.0  # between two tries to list a namespace that could not be listed
PLANS_SECONDS = 0.01  # of plans in a row, before agents are answered
RESTS_PER_WORK = 2.0  # a job rests so much longer than its plan took, for agents and other jobs


class Controller:
    """Reconciles jobs.

    Attributes:
        lost_leader_node: of the leader before that let its lease run out; empty: none is known.
    """

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        registry: AgentRegistry,
        queue: WorkQueue[JobKey],
        agent: AgentSettings,
        clock: Callable[[], float] = time.monotonic,
        metrics: Metrics | None = None,
        leading: Callable[[], bool] = lambda: True,
        slots: WriteSlots | None = None,
        time_of_day: Callable[[], datetime] = lambda: datetime.now(UTC),
        kueue: bool = False,
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._registry = registry
        self._executor = Executor(cluster, cache, agent, clock, time_of_day)
        self._clock = clock
        self._queue = queue
        self._metrics = metrics or Metrics()
        self._leading = leading
        self._time_of_day = time_of_day
        self._kueue = kueue
        self._slots = slots or WriteSlots()
        self._memories: dict[str, Memory] = {}
        self._writers: dict[JobKey, JobWriter] = {}
        # By job UID: when its next agent may have been silent for too long.
        self._silences: dict[str, asyncio.TimerHandle] = {}
        self._reporting: set[str] = set()  # UIDs of jobs that report progress
        self._unended: set[str] = set()  # UIDs of jobs that this leader has seen go on
        self._listening_since = clock()
        self.lost_leader_node = ""

    @property
    def longest_work_seconds(self) -> float:
        return max(self._queue.longest_work_seconds, self._slots.longest_write_seconds)

    def set_authorities(self, authorities: str) -> None:
        self._executor.agent = replace(self._executor.agent, authorities=authorities)

    async def prime(self, *, leave_out_failing: bool = False) -> None:
        """Fills the cache before the first plan, but for namespaces that must not be listed.

        Args:
            leave_out_failing: also leave out namespaces that fail for reasons that may pass.

        Raises:
            ClusterError: the cluster could not be listed.
        """
        await self._relist(leave_out_failing=leave_out_failing)
        self.listen()

    def listen(self) -> None:
        """Starts the takeover grace period: agents can connect now."""
        self._listening_since = self._clock()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.resync())
            tasks.create_task(self.work())

    async def work(self) -> None:
        """Reconciles jobs until it is cancelled.

        Agents are answered in between, but not after each plan: a turn of the event loop with ten
        thousand of them takes longer than twenty plans.
        """
        try:
            while True:
                key = await self._queue.get()
                until = self._clock() + PLANS_SECONDS
                self._plan_next(key)
                while self._queue.has_ready and self._clock() < until:
                    self._plan_next(await self._queue.get())
                await asyncio.sleep(0)
        finally:
            await self._slots.close()
            self._writers.clear()
            for uid in list(self._silences):
                self._silences.pop(uid).cancel()

    def _plan_next(self, key: JobKey) -> None:
        began, rest_seconds = self._clock(), 0.0
        result = "error"
        try:
            result = self.reconcile(key)
            self._queue.forget(key)
        except Exception:
            # News of the job would only make it fail again, so it rests.
            rest_seconds = self._queue.add_after_failure(key)
            facts = {"job": str(key), "retry_seconds": rest_seconds}
            logger.exception("cannot reconcile", extra=facts)
        seconds = self._clock() - began
        self._queue.done(key, rest_seconds=max(rest_seconds, seconds * RESTS_PER_WORK))
        self._metrics.reconciled(result, seconds)

    async def _relist(self, *, leave_out_failing: bool = True) -> None:
        began = self._clock()
        found = await list_cluster(self._cluster, kueue=self._kueue)
        if found.trouble is not None and not leave_out_failing:
            raise found.trouble
        self._log_unavailable(found)
        touched = self._cache.replace_all(
            found.jobs, found.pods, found.nodes, began, found.workloads, found.failed
        )
        for key in sorted(touched.union(self._cache.keys)):
            self._queue.add(key, urgent=False)

    def _log_unavailable(self, found: Listing) -> None:
        for namespace in found.failed.keys() - self._cache.unavailable:
            error = found.failed[namespace]
            logger.warning("a namespace is left out: %s", error, extra={"namespace": namespace})
        for namespace in self._cache.unavailable - found.failed.keys():
            logger.info("a namespace is there again", extra={"namespace": namespace})

    async def resync(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._list_regularly())
            tasks.create_task(self._list_when_due())

    async def _list_when_due(self) -> None:
        asked_at = self._clock()
        while True:
            await asyncio.sleep(WATCH_CHECK_SECONDS)
            due = self._cache.watch_lag.missed(self._clock())
            if not due and self._clock() >= asked_at + UNAVAILABLE_SECONDS:
                asked_at = self._clock()
                due = await can_list_any(self._cluster, self._cache.unavailable, kueue=self._kueue)
            if due:
                await self._try_relist()

    async def _try_relist(self) -> bool:
        try:
            await self._relist()
        except ClusterError as error:
            logger.warning("cannot list the cluster: %s", error)
            return False
        return True

    async def _list_regularly(self) -> None:
        """Looks for Services and PodGroups, which have no watches, each job's at another moment."""
        while True:
            for part in range(RESYNC_PARTS):
                await asyncio.sleep(RESYNC_SECONDS / RESYNC_PARTS)
                for key in self._cache.keys:
                    job = self._cache.job(key)
                    if (
                        isinstance(job, Job)
                        and crc32(job.uid.encode()) % RESYNC_PARTS == part
                        and not has_ended(job.status)
                    ):
                        self._executor.forget_unwatched(job.uid)
                        self._queue.add(key, urgent=False)
            if await self._try_relist():
                self._executor.forget_claims_and_flavors()

    def reconcile(self, key: JobKey) -> str:
        if not self._leading():
            # This process may have been suspended past its lease.
            return "success"
        job = self._cache.job(key)
        if job is None:
            self._forget_others()
            return "success"
        if isinstance(job, TemplateUnread):
            manifest = self._cache.job_manifest(key)
            writer = self._writer(key, manifest["metadata"]["uid"])
            write = self._executor.templates.read(manifest, job)
            writer.ask([write] if write else [], writer.failed)
            self._plan_again(key, writer)
            return "success"
        self._count_end(job)
        writer = self._writer(key, job.uid)
        known = Observed(
            self._clock(),
            write_time(self._time_of_day()),
            listening_since=self._listening_since,
            lost_leader_node=self.lost_leader_node,
            service_exists=self._executor.has_service(job.uid),
            pod_group_minimum=self._executor.pod_group_minimum(job),
            reporting_jobs=len(self._reporting),
            being_created=writer.pods_being_created,
        )
        observed = observe(
            job,
            self._cache,
            self._registry,
            known,
            writer.pods_being_deleted,
            writer.quota_being_returned if self._kueue else None,
        )
        if observed.reports_progress and not has_ended(job.status):
            self._reporting.add(job.uid)
        else:
            self._reporting.discard(job.uid)
        memory = self._memories.get(job.uid) or recall(job, observed.now, observed.time)
        todo = plan(job, observed, memory)
        self._metrics.decided(key.namespace, memory, todo)
        self._memories[job.uid] = todo.memory
        self._inform_agents(job, todo)
        self._have_written(job, todo, writer)
        return "success" if todo.recheck_at is None else "requeue_after"

    def _count_end(self, job: Job) -> None:
        """A leader that finds a job ended does not count its end again."""
        if not has_ended(job.status):
            self._unended.add(job.uid)
        elif job.uid in self._unended:
            self._unended.discard(job.uid)
            if job.ours:
                self._metrics.ended(job.key.namespace, job.status)

    def _forget_others(self) -> None:
        known = self._cache.job_uids
        self._registry.forget_others(known)
        self._executor.forget_others(known)
        self._reporting &= known
        self._unended &= known
        self._memories = {uid: memory for uid, memory in self._memories.items() if uid in known}
        for key in [key for key, writer in self._writers.items() if writer.uid not in known]:
            self._writers.pop(key).drop()
        for uid in self._silences.keys() - known:
            self._silences.pop(uid).cancel()

    def _inform_agents(self, job: Job, todo: Plan) -> None:
        """Agents wait for rounds, which need no API server."""
        if todo.round is not None:
            self._registry.declare(job.uid, todo.round)
            logger.info(
                "declared a round",
                extra={
                    "job": str(job.key),
                    "round": todo.round.number,
                    "members": list(todo.round.workers),
                    "reason": todo.round.reason,
                    "cause": todo.round.cause,
                },
            )
        if todo.nudge:
            declared = self._registry.job(job.uid).round
            self._registry.nudge(job.uid, declared.number if declared else 0)
        if todo.dump_stacks and todo.memory.stall is not None:
            self._registry.ask_for_stacks(job.uid, todo.memory.stall.round)
            cause = todo.memory.stall.cause
            logger.warning("asked for stacks: %s", cause, extra={"job": str(job.key)})

    def _have_written(self, job: Job, todo: Plan, writer: JobWriter) -> None:
        note_tried = partial(self._remember, job.uid, tried_generation=job.generation)
        note_status = partial(self._note_status, job, todo, writer)
        writes = self._executor.writes(job, todo.actions, note_status, note_tried)
        writer.ask(writes, todo.memory.answers.failed)
        self._remember(job.uid, failed=dict(writer.failed))
        patches = any(isinstance(action, PatchStatus) for action in todo.actions)
        if todo.verdict is not None and not patches:
            self._registry.conclude(job.uid, todo.verdict)
        if todo.round or describe(writer.failed) != describe(todo.memory.answers.failed):
            self._queue.add(job.key)
        self._plan_again(job.key, writer, todo.recheck_at)
        if todo.urgent_at is not None:
            self._queue.add(job.key, todo.urgent_at - self._clock(), urgent=True)
        self._await_silence(job.key, job.uid, todo.silent_at)

    def _plan_again(self, key: JobKey, writer: JobWriter, recheck_at: float | None = None) -> None:
        """A write that may be tried already waits for its turn, and its end has the job planned."""
        now = self._clock()
        retries = (failure.retry_at for failure in writer.failed.values() if failure.retry_at > now)
        at = earliest(recheck_at, writer.status_at, *retries)
        if at is not None:
            self._queue.add(key, at - now, urgent=False)

    def _await_silence(self, key: JobKey, uid: str, at: float | None) -> None:
        """Plans a job only if a heartbeat is late by then: most plans would find nothing."""
        if uid in self._silences:
            self._silences.pop(uid).cancel()
        if at is not None:
            loop, seconds = asyncio.get_running_loop(), max(0.0, at - self._clock())
            self._silences[uid] = loop.call_later(seconds, self._look_for_silence, key, uid)

    def _look_for_silence(self, key: JobKey, uid: str) -> None:
        late_at = self._registry.late_at(uid, self._clock())
        if late_at > self._clock():
            self._await_silence(key, uid, late_at)
        else:
            self._queue.add(key, urgent=True)

    def _note_status(self, job: Job, todo: Plan, writer: JobWriter) -> None:
        status = next(action.status for action in todo.actions if isinstance(action, PatchStatus))
        if memory := self._memories.get(job.uid):
            self._memories[job.uid] = replace(memory, written=Written(status, self._clock()))
        if todo.verdict is not None and self._cache.has_job(job.key, job.uid):
            self._registry.conclude(job.uid, todo.verdict)
        for action in todo.actions:
            if isinstance(action, RecordEvent) and action.with_status:
                writer.add_event(self._executor.event(job, action))

    def _end_write(self, writer: JobWriter, ended: Ended) -> None:
        error, before = ended.error, self._memories.get(writer.uid)
        # A former leader need not log what no longer concerns it.
        if error is not None and ended.news and self._leading():
            facts = {"job": str(writer.key), "code": error.code}
            logger.warning("the API server: %s", error, extra=facts)
        if ended.write.kind is WriteKind.EVENTS:
            return
        # The job is deleted, and perhaps forgotten already.
        if not self._cache.has_job(writer.key, writer.uid):
            self._queue.add(writer.key)
            return
        is_status = ended.write.kind is WriteKind.STATUS
        if error is not None and (is_status or error.judgement is Judgement.TROUBLE):
            self._metrics.write_failed()
        news = False
        if before is not None and ended.changed:
            answers = replace(before.answers, failed=dict(writer.failed))
            malformed = error is not None and error.judgement is Judgement.MALFORMED
            if malformed and not self._has_begun(writer):
                answers = replace(answers, invalid=str(error))
            news = describe(answers.failed) != describe(before.answers.failed)
            news = news or answers.invalid != before.answers.invalid
            self._memories[writer.uid] = replace(before, answers=answers)
        if news or (error is None and ended.rest):
            self._queue.add(writer.key, urgent=self._has_begun(writer))
        if ended.changed:
            self._plan_again(writer.key, writer)

    def _has_begun(self, writer: JobWriter) -> bool:
        job = self._cache.job(writer.key)
        begun = isinstance(job, Job) and bool(job.status.get("round"))
        return begun or self._registry.job(writer.uid).round is not None

    def _remember(self, uid: str, **answers: Any) -> None:
        if memory := self._memories.get(uid):
            self._memories[uid] = replace(memory, answers=replace(memory.answers, **answers))

    def _writer(self, key: JobKey, uid: str) -> JobWriter:
        if key in self._writers and self._writers[key].uid != uid:
            self._forget_others()  # another job has got the name
        if key not in self._writers:
            self._writers[key] = JobWriter(key, uid, self._slots, self._end_write, self._clock)
        return self._writers[key]
