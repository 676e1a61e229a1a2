"""The loop: a job's key comes out of the queue, its plan is made and carried out."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.api.conditions import has_ended
from elastic_pytorch_operator.api.timestamps import write_time
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import Cluster, ClusterError
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.manifests.worker_pod import AgentSettings
from elastic_pytorch_operator.model.actions import TryPod
from elastic_pytorch_operator.model.moments import earliest
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.planning.failed_writes import DRY_RUN, STATUS, describe
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.recall import recall
from elastic_pytorch_operator.reconcile.execute import Executor
from elastic_pytorch_operator.reconcile.observe import observe
from elastic_pytorch_operator.reconcile.workqueue import WorkQueue
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.job import Job, JobKey, parse_ended

logger = logging.getLogger(__name__)

WORKERS = 8
RESYNC_SECONDS = 300.0


class Controller:
    """Reconciles jobs.

    Args:
        cluster: to write to, and to list from.
        cache: what is known of the cluster.
        registry: what agents report.
        queue: the jobs that are to be looked at.
        agent: what the agents in new pods are given.
        clock: monotonic seconds.
        metrics: counts the work.
        leading: whether this replica may act.

    Attributes:
        lost_leader_node: the node of the operator that led before this one and let its lease run out; empty: none is known.
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
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._registry = registry
        self._executor = Executor(cluster, cache, agent, clock)
        self._clock = clock
        self._queue = queue
        self._metrics = metrics or Metrics()
        self._leading = leading
        self._memories: dict[str, Memory] = {}
        self._listening_since = clock()
        self.lost_leader_node = ""

    def set_authorities(self, authorities: str) -> None:
        """Has the agents of new pods trust these authorities, PEM."""
        self._executor.agent = replace(self._executor.agent, authorities=authorities)

    async def prime(self) -> None:
        """Fills the cache before the first plan.

        Raises:
            ClusterError: the cluster could not be listed.
        """
        await self._relist()
        self.listen()

    def listen(self) -> None:
        """Starts the takeover grace period: agents can connect from now on."""
        self._listening_since = self._clock()

    async def run(self) -> None:
        """Works until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.resync())
            tasks.create_task(self.work())

    async def work(self) -> None:
        """Reconciles jobs until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(self._work())

    async def _relist(self) -> None:
        began = self._clock()
        jobs = await self._cluster.list_jobs()
        pods = await self._cluster.list_pods()
        nodes = await self._cluster.list_nodes()
        for key in self._cache.replace_all(jobs, pods, nodes, began) | set(self._cache.keys):
            self._queue.add(key)

    async def resync(self) -> None:
        """Corrects what the watches have missed, until it is cancelled."""
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            try:
                await self._relist()
                self._executor.forget_found()
            except ClusterError as error:
                logger.warning("cannot list the cluster: %s", error)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            began = time.monotonic()
            result = "error"
            try:
                result = await self.reconcile(key)
                self._queue.forget(key)
            except ClusterError as error:
                delay = self._queue.add_after_failure(key)
                if self._leading():  # otherwise it no longer concerns this replica
                    logger.warning("the API server: %s", error, extra={"job": str(key), "retry_seconds": delay})
            except Exception:
                delay = self._queue.add_after_failure(key)
                logger.exception("cannot reconcile", extra={"job": str(key), "retry_seconds": delay})
            finally:
                self._queue.done(key)
                self._metrics.reconciled(result, time.monotonic() - began)

    async def reconcile(self, key: JobKey) -> str:
        """Makes and carries out the plan of one job; returns what came of it, for the metrics.

        Raises:
            ClusterError: what is wrong with a job that cannot be read could not be written into its status.
        """
        if not self._leading():
            return "success"  # also if this process was suspended for longer than its lease, and has not noticed yet
        job = self._cache.job(key)
        if job is None:
            known = self._cache.job_uids
            self._registry.forget_others(known)
            self._memories = {uid: memory for uid, memory in self._memories.items() if uid in known}
            return "success"
        if isinstance(job, InvalidJob):
            manifest = self._cache.job_manifest(key)
            if not has_ended(manifest.get("status") or {}):
                await self._executor.report_invalid(manifest, job)
                return "success"
            job = parse_ended(manifest)
        observed = observe(
            job,
            self._cache,
            self._registry,
            now=self._clock(),
            time=write_time(datetime.now(UTC)),
            listening_since=self._listening_since,
            lost_leader_node=self.lost_leader_node,
            service_exists=self._executor.has_service(job.uid),
        )
        memory = self._memories.get(job.uid) or recall(job, self._clock())
        todo = plan(job, observed, memory)
        self._metrics.decided(key.namespace, memory, todo)
        if not await self._carry_out(job, todo):
            return "error"
        return "success" if todo.recheck_at is None else "requeue_after"

    async def _carry_out(self, job: Job, todo: Plan) -> bool:
        """Returns whether it succeeded. A refusal is no failure: only the job's user can resolve it.

        Rounds come first: they need no API server, and agents wait for them.
        """
        self._memories[job.uid] = todo.memory
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
            logger.warning("asked for stacks: %s", todo.memory.stall.cause, extra={"job": str(job.key)})
        outcome = await self._executor.execute(job, todo.actions, todo.memory.failed)
        failed = STATUS in outcome.failed or any(error.judgement is Judgement.TROUBLE for error in outcome.errors)
        known = {write.words for write in todo.memory.failed.values()}
        for error in outcome.errors:
            # A refusal recurs every few seconds, and is logged once. Those of a replica that no longer leads are not logged.
            if self._leading() and (error.judgement is Judgement.TROUBLE or error.words not in known):
                logger.warning("the API server: %s", error, extra={"job": str(job.key), "code": error.code})
        if not self._cache.has_job(job.key, job.uid):  # deleted meanwhile, and perhaps forgotten already
            self._queue.add(job.key)
            return not failed
        now = self._clock()
        memory = replace(todo.memory, failed=outcome.failed)
        if outcome.malformed and self._registry.job(job.uid).round is None and not job.status.get("round"):
            memory = replace(memory, invalid=outcome.malformed)
        if any(isinstance(action, TryPod) for action in todo.actions) and DRY_RUN not in outcome.failed:
            memory = replace(memory, tried_generation=job.generation)
        if outcome.written is not None:
            memory = replace(memory, written=outcome.written, written_at=now)
        self._memories[job.uid] = memory
        if todo.verdict is not None and STATUS not in outcome.failed:
            self._registry.conclude(job.uid, todo.verdict)
        news = describe(memory.failed) != describe(todo.memory.failed) or memory.invalid != todo.memory.invalid
        if outcome.wrote or todo.round or news:
            self._queue.add(job.key)
        if (at := earliest(todo.recheck_at, *(write.retry_at for write in memory.failed.values()))) is not None:
            self._queue.add(job.key, at - now)
        return not failed
