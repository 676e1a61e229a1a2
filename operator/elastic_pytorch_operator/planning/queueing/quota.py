"""How many workers of a job may run now, by its spec and the admitted Workloads of its queue.

None may while the job leaves its queue: what Kueue gives to others when the quota is back must not
be in use.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from elastic_pytorch_operator.api import kueue
from elastic_pytorch_operator.api.times import earliest
from elastic_pytorch_operator.model.actions import Action, CreatePod
from elastic_pytorch_operator.model.observed import Observed, PodView
from elastic_pytorch_operator.model.workload import BASE, WorkloadView
from elastic_pytorch_operator.spec.job import Job
from elastic_pytorch_operator.spec.sizes import largest_allowed

# Kueue evicts the Workloads of one preemption by one write each: they leave in one round.
EVICTION_SETTLE_SECONDS = 0.5


class QuotaLack(Enum):
    UNSUPPORTED = auto()  # the operator does not use Kueue
    NO_WORKLOAD = auto()
    OTHER_TEMPLATE = auto()
    OTHER_QUEUE = auto()  # the base waits, or has quota, in the former queue
    NO_QUEUE = auto()  # the label was removed, and the quota is not given back yet
    DEACTIVATED = auto()
    EVICTED = auto()
    NOT_ADMITTED = auto()
    EXTRAS = auto()  # the minimum may run, and some of the others wait


@dataclass(frozen=True, slots=True)
class Quota:
    limited: bool = False  # the job is in a queue, or leaves one
    size: int = 0  # workers that may run
    pods: int = 0  # pods that may run: the spares need quota, too
    base: WorkloadView | None = None  # for the minimum, admitted or not
    base_size: int = 0  # workers for which the base has quota that may be used now
    extras: tuple[WorkloadView, ...] = ()  # usable now, by number
    fitting: tuple[WorkloadView, ...] = ()  # those that the job would ask for now
    lacking: tuple[int, ...] = ()  # workers of each extra that it has yet to ask for
    queue: str = ""  # in which it waits, or which it leaves
    lack: QuotaLack | None = None  # None: all wanted workers may run
    missing: int = 0  # workers of extras that may not run
    waiting: tuple[WorkloadView, ...] = ()  # the extras by which none may run
    # Evicted, but their workers stay a while, so that what Kueue evicts together leaves together.
    staying: tuple[WorkloadView, ...] = ()
    evicted: tuple[WorkloadView, ...] = ()  # Kueue wants them back, so workers have to leave
    recheck_at: float | None = None

    @property
    def usable(self) -> tuple[WorkloadView, ...]:
        return (self.base, *self.extras) if self.base is not None and self.base_size else ()

    @property
    def covered(self) -> int:
        return self.base_size + sum(extra.granted for extra in self.extras)


NO_LIMIT = Quota()


def find_quota(job: Job, observed: Observed) -> Quota:
    """Extras for spares come last, and their quota, too, goes to workers while one waits."""
    wanted = job.wanted
    if job.queue is None:
        return _find_quota_to_give_back(wanted, observed)
    if observed.workloads is None:
        return Quota(limited=True, lack=QuotaLack.UNSUPPORTED if wanted else None)
    base = next((workload for workload in observed.workloads if workload.number == BASE), None)
    serves = wanted > 0 and base is not None and is_for(base, job)
    base_size = base.granted if base is not None and serves else 0
    if not base_size or base is None:
        lack = _lack_of_base(job, job.queue.name, base) if wanted else None
        return Quota(limited=True, base=base, queue=job.queue.name, lack=lack)
    extras = [workload for workload in observed.workloads if workload.number != BASE]
    fitting, lacking = _match(extras, job, base_size)
    usable = tuple(extra for extra in fitting if extra.granted and takes_flavors(extra, job, base))
    used = {extra.name for extra in usable}
    evicted = tuple(extra for extra in fitting if extra.active and extra.evicted and extra.reserves)
    since = (extra.evicted_since for extra in evicted)
    until = earliest(*(at + EVICTION_SETTLE_SECONDS for at in since if at is not None))
    if until is not None and until <= observed.now:
        until = None
    staying = () if until is None else evicted
    workers = base_size + sum(e.granted for e in usable) + sum(e.count for e in staying)
    size = min(largest_allowed(workers, job.allowed), wanted)
    return Quota(
        limited=True,
        size=size,
        pods=workers,
        base=base,
        base_size=base_size,
        extras=usable,
        fitting=fitting,
        lacking=lacking,
        queue=job.queue.name,
        lack=QuotaLack.EXTRAS if size < wanted else None,
        missing=wanted - size,
        waiting=tuple(extra for extra in extras if extra.name not in used),
        staying=staying,
        evicted=evicted,
        recheck_at=until,
    )


def _find_quota_to_give_back(wanted: int, observed: Observed) -> Quota:
    """A deleted Workload, which a finalizer may keep, holds the job up only while pods use it."""
    reserving = (workload for workload in observed.workloads or () if workload.reserves)
    workloads = [workload for workload in reserving if not workload.is_true(kueue.FINISHED)]
    by_quota = observed.being_created or any(pod.workload for pod in holding_pods(observed))
    if not any(by_quota or not workload.deleting for workload in workloads):
        return NO_LIMIT
    lack = QuotaLack.NO_QUEUE if wanted else None
    return Quota(limited=True, queue=workloads[0].queue, lack=lack)


def _lack_of_base(job: Job, queue: str, base: WorkloadView | None) -> QuotaLack:
    if base is None or base.deleting:
        return QuotaLack.NO_WORKLOAD
    if base.queue != queue:
        return QuotaLack.OTHER_QUEUE
    if not is_for(base, job):
        return QuotaLack.OTHER_TEMPLATE
    if not base.active:
        return QuotaLack.DEACTIVATED
    return QuotaLack.EVICTED if base.evicted and base.reserves else QuotaLack.NOT_ADMITTED


def _base_to_be(job: Job, base_size: int) -> int:
    """From which size the extras count: a base above the minimum shrinks as they take its place.

    Not with allowed sizes, where extras lead from one to the next and those there would no longer
    fit, and not for extras of other flavors.
    """
    return base_size if job.allowed or job.extras_choose_flavors else min(base_size, job.minimum)


def is_for(workload: WorkloadView, job: Job) -> bool:
    queue = job.queue
    return (
        queue is not None
        and workload.queue == queue.name
        and workload.quota_for == job.quota_for(extra=workload.number != BASE)
    )


def _match(
    extras: Iterable[WorkloadView], job: Job, base_size: int
) -> tuple[tuple[WorkloadView, ...], tuple[int, ...]]:
    """The extras that serve the job, first those with quota; and workers of those it lacks."""
    fitting: list[WorkloadView] = []
    lacking = [
        *extra_counts(job, job.wanted, _base_to_be(job, base_size)),
        *(job.unit_replicas for _ in range(job.spares // job.unit_replicas)),
    ]
    for extra in sorted(extras, key=lambda extra: not extra.granted):
        if is_for(extra, job) and extra.count in lacking:
            lacking.remove(extra.count)
            fitting.append(extra)
    return tuple(fitting), tuple(lacking)


def takes_flavors(extra: WorkloadView, job: Job, base: WorkloadView) -> bool:
    """Those of the base, as a group runs on equal nodes, unless `extraWorkers` chooses others."""
    if job.extras_choose_flavors or extra.admission is None or base.admission is None:
        return True
    return {*extra.admission.flavors} == {*base.admission.flavors}


def extra_counts(job: Job, wanted: int, base: int) -> tuple[int, ...]:
    """For how many workers each extra asks: one, or as many as lead to the next allowed size."""
    sizes = job.allowed or range(base + 1, wanted + 1)
    rising = [base, *(size for size in sizes if base < size <= wanted)]
    return tuple(after - before for before, after in pairwise(rising))


def workloads_of_unseen_pods(observed: Observed, actions: Iterable[Action] = ()) -> list[str]:
    """The Workloads of pods that are being created, or will be: their requests count already."""
    asked = [a.grant.workload for a in actions if isinstance(a, CreatePod) and a.grant is not None]
    if not observed.being_created:  # as with nearly all plans
        return asked
    # Perhaps before their creation is confirmed.
    seen = {(pod.index, pod.workload) for pod in holding_pods(observed) if not pod.deleting}
    return [*asked, *(place[1] for place in observed.being_created.items() if place not in seen)]


def is_matched(pod: PodView, job: Job) -> bool:
    """Whether a pod belongs to one Workload; of other pods, only the number counts."""
    return pod.topology or job.extras_choose_flavors


def displaced_pods(job: Job, observed: Observed, quota: Quota) -> frozenset[str]:
    if not quota.limited:
        return frozenset()
    usable = {workload.name for workload in (*quota.usable, *quota.staying)}
    matched = (pod for pod in observed.pods if is_matched(pod, job))
    return frozenset(pod.name for pod in matched if pod.workload not in usable and not pod.ended)


def holding_pods(observed: Observed) -> tuple[PodView, ...]:
    """Worker pods whose requests count; one that is being deleted on a lost node may never go."""
    alive = (pod for pod in observed.pods if not pod.ended or pod.lingers)
    return tuple(pod for pod in alive if not (pod.deleting and observed.on_unready_node(pod)))


@dataclass(frozen=True, slots=True)
class Target:
    wanted: int  # 0 while the job is suspended
    quota: Quota = NO_LIMIT
    spares: int = 0  # pods beyond these that wait for a loss

    @property
    def size(self) -> int:
        return self.quota.size if self.quota.limited else self.wanted

    @property
    def pods(self) -> int:
        whole = self.size + self.spares
        return 0 if self.stopped else min(whole, self.quota.pods) if self.quota.limited else whole

    @property
    def stopped(self) -> bool:
        return self.size == 0

    @property
    def held(self) -> bool:
        """Whether only the lack of quota stops the job."""
        return self.wanted > 0 and self.stopped
