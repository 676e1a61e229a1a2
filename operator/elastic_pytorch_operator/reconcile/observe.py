"""Puts together what cache and registry know about one job."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from elastic_pytorch_operator.agents.registry import AgentRegistry
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.model.known_workers import known_workers
from elastic_pytorch_operator.model.observed import AgentView, Observed, PodView
from elastic_pytorch_operator.model.round import Member, Round
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.spec.job import Job


def observe(
    job: Job,
    cache: Cache,
    registry: AgentRegistry,
    known: Observed,
    being_deleted: Collection[str] = (),
    quota_being_returned: Mapping[str, int] | None = None,
) -> Observed:
    """A job at this moment, for a plan.

    Args:
        known: the moment, with what cache and registry do not have.
        being_deleted: UIDs of pods that count as deleted before the API server confirms it, or the
            next plan would take the agent of a lost worker for a newcomer's.
        quota_being_returned: likewise, for how many pods Workloads keep quota; None: without Kueue.
    """
    owner, now = (job.key, job.uid), known.now
    pods = _mark_deleting(cache.pods.workers_of(owner), being_deleted)
    agents = registry.agents(job.uid, {pod.name for pod in pods})
    heard = registry.job(job.uid)
    return replace(
        known,
        pods=pods,
        stores=_mark_deleting(cache.pods.stores_of(owner), being_deleted),
        nodes=cache.nodes,
        agents=agents,
        round=heard.round or recover_round(pods, agents, known.listening_since),
        last_heard_at=registry.last_heard_at,
        heard_again_at=registry.heard_again_at,
        arrived_at=heard.arrived_at,
        on_time_since=registry.hearing.on_time_since(now),
        lets_in_since=registry.hearing.lets_in_since(now),
        heartbeat_seconds=registry.longest_heartbeat_seconds(now),
        heard_before=frozenset() if job.stock else heard_before(job, pods),
        reports_progress=any(agent.progress.step is not None for agent in agents.values()),
        workloads=None
        if quota_being_returned is None
        else _reduce(cache.workloads_of(owner), quota_being_returned),
        unreadable=cache.unreadable.of(owner),
    )


def _mark_deleting(pods: tuple[PodView, ...], uids: Collection[str]) -> tuple[PodView, ...]:
    if not uids:  # as with nearly all plans
        return pods
    return tuple(
        replace(
            pod,
            deleting=True,
            ended_before_deletion=pod.ended_before_deletion or (pod.ended and not pod.deleting),
        )
        if pod.uid in uids
        else pod
        for pod in pods
    )


def _reduce(
    workloads: tuple[WorkloadView, ...], kept: Mapping[str, int]
) -> tuple[WorkloadView, ...]:
    return tuple(
        replace(found, count=kept[found.name], deleting=found.deleting or not kept[found.name])
        if found.name in kept
        else found
        for found in workloads
    )


def heard_before(job: Job, pods: Sequence[PodView]) -> frozenset[str]:
    workers = known_workers(job.status, pods)
    return frozenset(worker.pod for worker in workers if worker.heard and worker.pod)


def recover_round(
    pods: Sequence[PodView], agents: Mapping[str, AgentView], now: float
) -> Round | None:
    """The round that agents report to an operator that has just started; None: they report none.

    If agents know of a newer round that none of them has taken up, the workers have to stop: that
    round is empty.
    """
    newest = max((agent.round for agent in agents.values() if agent.world_size > 0), default=0)
    if newest == 0:
        return None
    declared = max(agent.newest for agent in agents.values())
    if declared > newest:
        return Round(declared, (), 0, "", "taken over from the agents", now)
    here = sorted(
        (a for a in agents.values() if a.round == newest and a.world_size > 0),
        key=lambda a: (a.rank, a.worker),
    )
    addresses = {pod.name: pod.address for pod in pods}
    members = tuple(Member(a.worker, addresses[a.worker]) for a in here if a.worker in addresses)
    size = max(len(members), *(agent.world_size for agent in here))
    return Round(newest, members, 0, "", "taken over from the agents", now, size)
