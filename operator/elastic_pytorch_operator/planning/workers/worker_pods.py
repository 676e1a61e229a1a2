"""Which worker pods should exist, each with its own index, and which go if there are too many.

Pods of one unit come and go together, as a unit that lacks a worker does not train. A spare is any
pod beyond the wanted ones that is in no round, so it becomes a member without a write.
"""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from elastic_pytorch_operator.model.actions import Action, DeletePodGroup, PutPodGroup
from elastic_pytorch_operator.model.observed import Observed, PodView
from elastic_pytorch_operator.planning.failed_writes import POD_GROUP, FailedWrites
from elastic_pytorch_operator.planning.queueing.quota import Target
from elastic_pytorch_operator.planning.workers.liveness import Candidate
from elastic_pytorch_operator.spec.job import Job


@dataclass(frozen=True, slots=True)
class Replicas:
    create: tuple[int, ...] = ()
    apart: frozenset[int] = frozenset()  # beyond the wanted ones, on nodes without a pod of the job
    victims: frozenset[str] = frozenset()  # to be removed once the current round does without them
    discard: tuple[PodView, ...] = ()  # they no longer serve and can go at once
    # On lost nodes, where no kubelet will confirm that they have stopped.
    abandon: tuple[PodView, ...] = ()


@dataclass(frozen=True, slots=True)
class Going:
    # Workers that go once their group does without them. They are replaced when the last of them is
    # being deleted, for their replacements may need their places.
    outdated: Collection[str] = ()
    displaced: Collection[str] = ()  # the same, if they may not stay there; replaced at once
    misled: Collection[str] = ()  # they avoid a node that would take them; replaced at once
    staying: Collection[str] = ()  # they train until their replacements, made at once, are ready
    leaving: Collection[str] = ()  # the same, but they leave now
    doubted: Collection[str] = ()  # nodes whose workers go first, of equal ones


def plan_replicas(
    job: Job,
    target: Target,
    observed: Observed,
    candidates: Collection[Candidate],
    going: Going,
) -> Replicas:
    """Compares the pods there are with those wanted, and the spares beyond them.

    An ended pod is kept for its log until the next one of its index has ended, too, unless it
    lingers: then it holds devices and quota, which its replacement needs. A suspended job keeps
    none, so that it leaves nothing that its template was used for.
    """
    pods, wanted = observed.pods, target.size
    spares = target.pods - wanted
    gone = {candidate.worker for candidate in candidates if candidate.gone}
    ready = {candidate.worker for candidate in candidates if candidate.ready}
    missing = [pod for pod in pods if pod.name in gone and not pod.ended]
    abandon = (pod for pod in missing if observed.on_unready_node(pod))
    leaves = {*gone, *going.staying, *going.leaving}
    running = (pod for pod in pods if pod.stays and not pod.disrupted)
    serving = [pod for pod in running if pod.name not in leaves]
    replaced = {pod.name for pod in serving if pod.name in going.outdated}
    removed = replaced | {pod.name for pod in serving if pod.name in going.displaced}
    misled = tuple(pod for pod in serving if pod.name in going.misled and pod.name not in removed)
    live = [pod for pod in serving if pod.name not in removed and pod.name not in going.misled]
    victims = _choose_victims(
        live, going.doubted, ready, observed.trained, wanted, spares, job.unit_replicas
    )
    succeeded = {c.worker for c in candidates if c.succeeded and c.worker in observed.ranks}
    done = {pod.name for pod in pods if pod.succeeded and pod.name in succeeded}
    kept = [pod for pod in pods if pod.name in done]
    kept += [pod for pod in live if pod.name not in victims]
    taken = {pod.index for pod in kept}
    create = () if replaced else free_indices(taken, wanted + spares - len(kept), job.unit_replicas)
    silent = tuple(p for p in missing if not (p.deleting or observed.on_unready_node(p)))
    return Replicas(
        create=create,
        apart=frozenset(create[max(0, wanted - len(kept)) :]),
        victims=frozenset({*victims, *removed, *going.leaving}),
        discard=silent + misled + _spent(pods, done, keep_last=wanted > 0),
        abandon=tuple(pod for pod in abandon if not pod.deleting or observed.on_removed_node(pod)),
    )


def free_indices(taken: Collection[int], count: int, unit: int) -> tuple[int, ...]:
    """Returns indices for new pods: first those that units there lack, then the lowest."""
    begun = {index - index % unit for index in taken}
    units = (index for first in sorted(begun) for index in range(first, first + unit))
    lacking = (index for index in units if index not in taken)
    fresh = (index for index in itertools.count() if index - index % unit not in begun)
    return tuple(itertools.islice(itertools.chain(lacking, fresh), max(0, count)))


def _choose_victims(
    live: Sequence[PodView],
    doubted: Collection[str],
    ready: Collection[str],
    members: Collection[str],
    wanted: int,
    spares: int,
    unit: int,
) -> set[str]:
    """The pods to remove: of duplicate indices, spare units and members that are too many.

    A member that is no longer wanted becomes a spare where one is missing.
    """

    def worth(pod: PodView) -> tuple[bool, bool, bool, bool]:
        outside, unready = pod.name not in members, pod.name not in ready
        return outside, not pod.node, unready, pod.node in doubted

    def unit_worth(pods: Sequence[PodView]) -> tuple[int, ...]:
        flags = zip(*map(worth, pods), strict=True)
        return *(sum(each) + unit - len(pods) for each in flags), pods[0].index // unit

    victims: set[str] = set()
    units: dict[int, dict[int, PodView]] = {}
    for pod in sorted(live, key=lambda p: (worth(p), p.created_at, p.name)):
        if units.setdefault(pod.index // unit, {}).setdefault(pod.index, pod) is not pod:
            victims.add(pod.name)
    groups = [list(by_index.values()) for by_index in units.values()]
    outside = unit * sum(not any(pod.name in members for pod in pods) for pods in groups)
    kept = 0
    for pods in sorted(groups, key=unit_worth):
        is_member = any(pod.name in members for pod in pods)
        room = wanted + (max(0, spares - outside) if is_member else spares)
        if kept + unit > room:
            victims |= {pod.name for pod in pods}
        else:
            kept += unit
    return victims


def _spent(
    pods: Sequence[PodView], done: Collection[str], *, keep_last: bool
) -> tuple[PodView, ...]:
    ended = sorted((pod for pod in pods if pod.ended), key=lambda pod: pod.created_at)
    newest = {pod.index: pod for pod in ended}
    spent = (p for p in ended if p.lingers or not keep_last or newest[p.index] is not p)
    return tuple(pod for pod in spent if not pod.deleting and pod.name not in done)


@dataclass(frozen=True, slots=True)
class PodGroupPlan:
    actions: tuple[Action, ...] = ()
    holds_pods: bool = False  # no pod may be made, as the PodGroup cannot be


def plan_pod_group(
    job: Job, target: Target | None, observed: Observed, failed: FailedWrites
) -> PodGroupPlan:
    """Pods wait only for the first PodGroup; without a target, the job has ended."""
    if job.scheduling.gang is None:
        return PodGroupPlan()
    if target is None or target.stopped:
        over = target is None or not (observed.pods or observed.stores)
        return PodGroupPlan((DeletePodGroup(),) if over and observed.pod_group_minimum != 0 else ())
    if observed.pod_group_minimum == job.minimum:
        return PodGroupPlan()
    there = bool(observed.pod_group_minimum or observed.group_size)
    put = PutPodGroup(before_pods=not there, without_pods=not (observed.pods or observed.stores))
    return PodGroupPlan((put,), holds_pods=not there and POD_GROUP in failed)
