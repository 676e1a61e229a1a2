"""The loop: a job's key comes out of the queue, its plan is made and carried out."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from elastic_pytorch_operator.budget import Budget
from elastic_pytorch_operator.cluster import Cluster, ClusterError
from elastic_pytorch_operator.execute import Executor
from elastic_pytorch_operator.injection import AgentImage
from elastic_pytorch_operator.job import InvalidJob, Job, JobKey
from elastic_pytorch_operator.metrics import Metrics
from elastic_pytorch_operator.observe import observe
from elastic_pytorch_operator.plan import Memory, Plan, plan
from elastic_pytorch_operator.roster import Roster
from elastic_pytorch_operator.stock_group import plan_stock
from elastic_pytorch_operator.store import Store
from elastic_pytorch_operator.workqueue import WorkQueue

logger = logging.getLogger(__name__)

WORKERS = 8
RESYNC_SECONDS = 300.0
REFUSED_SECONDS = 10.0  # between two tries to create what a policy or a quota refuses


class Controller:
    """Reconciles jobs.

    Args:
        cluster: to write to, and to list from.
        store: what is known of the cluster.
        roster: what agents say.
        queue: the jobs that are to be looked at.
        operator_url: where agents find the operator.
        clock: monotonic seconds.
        agent_image: which brings the agent into the pods; None: the jobs' images do.
        metrics: what is told of the work.
        leading: whether this replica may act.

    Attributes:
        lost_leader_node: the node of the operator that led before this one and let its lease run out; empty: none is known.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        roster: Roster,
        queue: WorkQueue[JobKey],
        operator_url: str,
        clock: Callable[[], float] = time.monotonic,
        agent_image: AgentImage | None = None,
        metrics: Metrics | None = None,
        leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._roster = roster
        self._executor = Executor(cluster, store, operator_url, agent_image)
        self._clock = clock
        self._queue = queue
        self._metrics = metrics or Metrics()
        self._leading = leading
        self._memories: dict[str, Memory] = {}
        self._listening_since = clock()
        self.lost_leader_node = ""

    def trust(self, authorities: str) -> None:
        """Has the agents of new pods trust these authorities, PEM."""
        self._executor.authorities = authorities

    async def prime(self) -> None:
        """Fills the store before the first plan.

        Raises:
            ClusterError: the cluster could not be listed.
        """
        await self._relist()
        self.listen()

    def listen(self) -> None:
        """Agents are listened to from here on."""
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
        for key in self._store.replace_all(jobs, pods, nodes, began) | set(self._store.keys):
            self._queue.add(key)

    async def resync(self) -> None:
        """Puts right what the watches have missed, until it is cancelled."""
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            try:
                await self._relist()
                self._executor.forget_services()
            except ClusterError as error:
                logger.warning("cannot list the cluster: %s", error)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            began = time.monotonic()
            result = "error"
            try:
                result = "requeue_after" if await self.reconcile(key) else "success"
                self._queue.forgive(key)
            except ClusterError as error:
                delay = self._queue.add_after_failure(key)
                if self._leading():  # else it is no matter of this replica's any more
                    logger.warning("the API server: %s", error, extra={"job": str(key), "retry_seconds": delay})
            except Exception:
                delay = self._queue.add_after_failure(key)
                logger.exception("cannot reconcile", extra={"job": str(key), "retry_seconds": delay})
            finally:
                self._queue.done(key)
                self._metrics.reconciled(result, time.monotonic() - began)

    async def reconcile(self, key: JobKey) -> bool:
        """Makes and carries out the plan of one job; whether it is to be looked at again at a known time.

        Raises:
            ClusterError: the API server could not be asked, or failed.
        """
        if not self._leading():
            return False  # also if this process was held up for longer than its lease, and nothing has told it yet
        job = self._store.job(key)
        if job is None:
            known = {j.uid for k in self._store.keys if isinstance(j := self._store.job(k), Job)}
            self._roster.forget_others(known)
            self._memories = {uid: memory for uid, memory in self._memories.items() if uid in known}
            return False
        if isinstance(job, InvalidJob):
            await self._executor.report_invalid(self._store.job_manifest(key), job)
            return False
        observed = observe(
            job,
            self._store,
            self._roster,
            now=self._clock(),
            time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            listening_since=self._listening_since,
            lost_leader_node=self.lost_leader_node,
            service_exists=self._executor.has_service(job.uid),
        )
        memory = self._memories.get(job.uid) or _recall(job)
        todo = plan_stock(job, observed, memory) if job.stock else plan(job, observed, memory)
        self._metrics.decided(memory, todo)
        await self._carry_out(job, todo)
        return todo.recheck_at is not None

    async def _carry_out(self, job: Job, todo: Plan) -> None:
        """Rounds first: they need no API server, and somebody waits for them."""
        self._memories[job.uid] = todo.memory
        if todo.round is not None:
            self._roster.declare(job.uid, todo.round)
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
            declared = self._roster.job(job.uid).round
            self._roster.nudge(job.uid, declared.number if declared else 0)
        if todo.dump_stacks and todo.memory.stall is not None:
            self._roster.ask_for_stacks(job.uid, todo.memory.stall.round)
            logger.warning("asked for stacks: %s", todo.memory.stall.cause, extra={"job": str(job.key)})
        outcome = await self._executor.execute(job, todo.actions)
        now = self._clock()
        memory = self._memories[job.uid]
        if outcome.refusal:
            memory = replace(memory, refusal=outcome.refusal, refused_until=now + REFUSED_SECONDS)
        elif memory.refusal and now >= memory.refused_until:
            memory = replace(memory, refusal="", refusal_told=False)
        if outcome.invalid:
            memory = replace(memory, invalid=outcome.invalid)
        if outcome.wrote_status:
            memory = replace(memory, written_at=now)
        self._memories[job.uid] = memory
        if todo.verdict is not None:
            self._roster.conclude(job.uid, todo.verdict)
        if todo.actions or todo.round:
            self._queue.add(job.key, 5.0 if outcome.conflict else 0.0)
        if todo.recheck_at is not None:
            self._queue.add(job.key, todo.recheck_at - now)


def _recall(job: Job) -> Memory:
    """What can be known of a job's past from its status."""
    progress = job.status.get("progress") or {}
    return Memory(
        budget=Budget(
            failures=int(job.status.get("failures", 0)),
            step=int(progress.get("step", 0)),
            checkpoint_step=int(progress.get("checkpointStep", 0)),
        )
    )
