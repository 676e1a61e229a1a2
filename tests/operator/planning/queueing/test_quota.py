from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from elastic_pytorch_operator.model.observed import NodeView, PodView
from elastic_pytorch_operator.model.workload import Admission, WorkloadView
from elastic_pytorch_operator.planning.queueing.quota import (
    EVICTION_SETTLE_SECONDS,
    NO_LIMIT,
    QuotaLack,
    Target,
    displaced_pods,
    extra_counts,
    find_quota,
    holding_pods,
)

from tests.operator.builders import (
    NOW,
    a_dead_pod,
    a_job,
    a_pending_pod,
    a_pod,
    a_queued_job,
    a_workload,
    an_extra,
    observed,
)
from tests.situations import situations


def quota(*workloads: WorkloadView, **job: Any):  # type: ignore[no-untyped-def]
    queued = replace(a_queued_job(), **job)
    return find_quota(queued, observed(workloads=workloads))


def by_quota(index: int) -> PodView:
    return a_pod(index, workload="lm-base")


@pytest.mark.parametrize(
    ("workloads", "pods", "held"),
    [
        ((a_workload(),), [by_quota(0), by_quota(1)], True),
        ((a_workload(),), [], True),  # its pods are gone, and it is to be deleted
        ((a_workload(state="evicted"),), [by_quota(0)], True),
        ((a_workload(1),), [by_quota(0)], True),  # a base that was lost
        ((a_workload(active=False),), [by_quota(0)], True),
        ((a_workload(deleting=True),), [by_quota(0)], True),
        # A finalizer holds it, and the job has begun without it.
        ((a_workload(deleting=True),), [a_pod(0)], False),
        ((a_workload(state="pending"),), [a_pod(0)], False),
        ((a_workload(conditions={"Finished": ("True", "OwnerNotFound")}),), [by_quota(0)], False),
        ((), [by_quota(0)], False),
    ],
)
def test_job_whose_label_is_taken_off_is_held_while_it_has_quota(
    workloads: tuple[WorkloadView, ...], pods: list[PodView], held: bool
) -> None:
    there = observed(pods, workloads=workloads)
    found = find_quota(replace(a_queued_job(), queue=None), there)
    assert (found.queue, found.lack) == (("team", QuotaLack.NO_QUEUE) if held else ("", None))
    assert (found is NO_LIMIT) == (not held)


def test_pod_that_is_on_its_way_holds_a_job_that_leaves_its_queue() -> None:
    there = observed(workloads=(a_workload(deleting=True),), being_created={0: "lm-base"})
    assert find_quota(replace(a_queued_job(), queue=None), there).lack is QuotaLack.NO_QUEUE


def test_units_are_asked_for_and_spared_as_a_whole() -> None:
    job = a_job(replicas=6, minimum=2, maximum=6, unitReplicas=2, spares=2)
    fields = {"wanted": 6, "minimum": 2, "allowed": job.allowed, "unit_replicas": 2, "spares": 2}
    assert quota(a_workload(count=2), **fields).lacking == (2, 2, 2)


@pytest.mark.parametrize(
    ("workloads", "size"),
    [
        ((), 0),
        ((a_workload(state="pending"),), 0),
        ((a_workload(),), 2),
        ((a_workload(), a_workload(1)), 3),
        ((a_workload(), a_workload(2)), 3),
        ((a_workload(), a_workload(1), a_workload(2, "pending")), 3),
        ((a_workload(), a_workload(1), a_workload(2, "evicted")), 3),
        ((a_workload(), a_workload(1), a_workload(2), a_workload(3)), 4),  # more than are wanted
        ((a_workload(state="evicted"), a_workload(1)), 0),
        ((a_workload(state="pending"), a_workload(1)), 0),
        ((a_workload(active=False), a_workload(1)), 0),
        ((a_workload(queue="another"),), 0),
        ((a_workload(deleting=True),), 0),
        ((a_workload(), a_workload(1, active=False)), 2),
        ((a_workload(), a_workload(1, count=2)), 2),  # of other sizes than now
        ((a_workload(), a_workload(1, admission=Admission("shared", 1, ("other",)))), 2),
        ((a_workload(count=3),), 3),  # the minimum was lowered
        ((a_workload(count=3), a_workload(1)), 4),
        ((a_workload(count=3), a_workload(1), a_workload(2)), 4),
        ((a_workload(conditions={"Finished": ("True", "OwnerNotFound")}),), 0),
    ],
)
def test_workers_run_by_the_admitted_base_and_the_admitted_extras(
    workloads: tuple[WorkloadView, ...], size: int
) -> None:
    found = quota(*workloads)
    assert found.size == size
    assert found.limited
    assert (found.lack is None) == (size == 4)


@situations(
    "job, numbers, lacking",
    {
        "none is needed": ({"wanted": 2}, [], ()),
        "one that has quota": ({"wanted": 3}, [3], ()),
        "and one that waits": ({}, [3, 1], ()),
        "another one": ({"wanted": 5}, [3, 1], (1,)),
        "one of another size": ({"wanted": 4, "allowed": (2, 4)}, [2], ()),
        "two of other sizes": ({"wanted": 8, "allowed": (2, 4, 8)}, [2], (4,)),
        "a spare": ({"wanted": 3, "spares": 1}, [3, 1], ()),
    },
)
def test_extras_with_quota_serve_before_those_that_wait(
    job: dict[str, Any], numbers: list[int], lacking: tuple[int, ...]
) -> None:
    """A job that is made smaller would stop workers, and make them again when one is admitted."""
    found = quota(
        a_workload(), a_workload(1, "pending"), a_workload(2, count=2), a_workload(3), **job
    )
    assert ([extra.number for extra in found.fitting], found.lacking) == (numbers, lacking)


def test_size_is_one_of_those_that_are_allowed() -> None:
    allowed = {"allowed": (2, 4, 8), "wanted": 8, "requested": 8}
    assert quota(a_workload(), a_workload(1, count=2), **allowed).size == 4
    assert quota(a_workload(), a_workload(2, count=4), **allowed).size == 4
    assert quota(a_workload(), a_workload(1, count=2), a_workload(2, count=4), **allowed).size == 8


def test_extras_of_other_flavors_are_used_and_do_not_take_the_place_of_the_base() -> None:
    job = a_queued_job(scheduling={"extraWorkers": {"nodeSelector": {"capacity": "spot"}}})
    there = observed(workloads=(a_workload(count=3), an_extra(job, 1), an_extra(job, 2)))
    found = find_quota(job, there)
    assert (found.size, found.lacking, [extra.number for extra in found.extras]) == (4, (), [1])


def test_a_lowered_minimum_asks_for_extras_in_place_of_a_part_of_the_base() -> None:
    assert quota(a_workload(count=3), a_workload(1)).lacking == (1,)
    # The steps between allowed sizes stay as they were: others would not fit the extras that there
    # are.
    allowed = {"allowed": (2, 4, 8), "wanted": 8, "requested": 8}
    assert quota(a_workload(count=4), a_workload(1, count=4), **allowed).size == 8


def test_suspended_job_waits_for_no_quota() -> None:
    found = quota(a_workload(), suspend=True, wanted=0)
    assert (found.usable, found.lack) == ((), None)


def test_extras_that_are_evicted_one_after_the_other_leave_together() -> None:
    workloads = (
        a_workload(),
        a_workload(1, "evicted", evicted_since=NOW),
        a_workload(2, "evicted", evicted_since=NOW + 0.1),
    )
    facts = observed(workloads=workloads)
    at_once = find_quota(a_queued_job(), facts)
    assert (at_once.size, at_once.recheck_at) == (4, NOW + EVICTION_SETTLE_SECONDS)
    later = find_quota(a_queued_job(), replace(facts, now=NOW + EVICTION_SETTLE_SECONDS))
    assert (later.size, later.recheck_at) == (2, None)
    assert [extra.number for extra in later.evicted] == [1, 2]


@pytest.mark.parametrize(
    ("wanted", "allowed", "base", "counts"),
    [
        (2, (), 2, ()),
        (5, (), 2, (1, 1, 1)),
        (5, (), 3, (1, 1)),
        (8, (2, 4, 8), 2, (2, 4)),
        (4, (2, 4, 8), 2, (2,)),
        (8, (2, 4, 8), 4, (4,)),
    ],
)
def test_one_extra_for_each_step_up_to_the_wanted_size(
    wanted: int, allowed: Sequence[int], base: int, counts: Sequence[int]
) -> None:
    job = replace(a_queued_job(2, 8), allowed=tuple(allowed))
    assert extra_counts(job, wanted, base) == counts


def test_pods_hold_quota_until_they_have_ended_or_are_gone() -> None:
    pods = [
        a_pod(0),
        a_pending_pod(1),
        a_pod(2, deleting=True),
        a_dead_pod(3),
        a_pod(4, exit_code=0, sidecar_runs=True),
        a_pod(5, deleting=True, node="lost"),
        a_pod(6, node="lost"),
    ]
    there = observed(
        pods, nodes={"node-0": NodeView("node-0"), "lost": NodeView("lost", ready=False)}
    )
    assert [pod.index for pod in holding_pods(there)] == [0, 1, 2, 4, 6]


@situations(
    "minimum, workloads, size, pods",
    {
        "the minimum comes first": (2, (a_workload(),), 2, 2),
        "what is granted is for workers first": (
            2,
            (a_workload(), a_workload(1), a_workload(3)),
            4,
            4,
        ),
        "then for spares": (2, (a_workload(), *map(a_workload, (1, 2, 3))), 4, 5),
        "a spare is preempted": (
            2,
            (a_workload(), *map(a_workload, (1, 2, 3)), a_workload(4, "evicted")),
            4,
            5,
        ),
        "a fixed size has extras for spares alone": (
            None,
            (a_workload(count=4), a_workload(1)),
            4,
            5,
        ),
        "none without the base": (
            2,
            (a_workload(state="evicted"), *map(a_workload, (1, 2, 3))),
            0,
            0,
        ),
    },
)
def test_spares_run_by_extras_that_come_last(
    minimum: int | None, workloads: tuple[WorkloadView, ...], size: int, pods: int
) -> None:
    job = a_queued_job(minimum, spares=2)
    found = find_quota(job, observed(workloads=workloads))
    target = Target(job.wanted, found, job.spares)
    assert (target.size, target.pods) == (size, pods)
    assert (found.lack is None) == (size == 4)


def test_extras_of_spares_follow_the_steps_between_allowed_sizes() -> None:
    job = replace(a_queued_job(spares=1), allowed=(2, 4), wanted=4)
    found = find_quota(job, observed(workloads=(a_workload(), a_workload(2))))
    assert (found.lacking, found.size, found.pods) == ((2,), 2, 3)
    assert Target(4, found, 1).pods == 3


def test_only_pods_whose_nodes_kueue_has_chosen_belong_to_one_workload() -> None:
    pods = (
        a_pod(0, topology=True, workload="lm-base"),
        a_pod(1, topology=True, workload="lm-extra-1"),
        a_pod(2, workload="lm-extra-1"),
    )
    there = observed(pods, workloads=(a_workload(), a_workload(1, "evicted")))
    assert displaced_pods(a_queued_job(), there, find_quota(a_queued_job(), there)) == {"w1"}
    assert displaced_pods(a_queued_job(), there, NO_LIMIT) == frozenset()


def test_every_pod_belongs_to_one_workload_where_extras_have_other_flavors() -> None:
    job = a_queued_job(scheduling={"extraWorkers": {"nodeSelector": {"capacity": "spot"}}})
    pods = (
        a_pod(0, workload="lm-base"),
        a_pod(1, workload="lm-extra-1"),
        a_pod(2, workload="lm-extra-2"),
    )
    extras = (an_extra(job, 1, "evicted"), an_extra(job, 2))
    there = observed(pods, workloads=(a_workload(), *extras))
    assert displaced_pods(job, there, find_quota(job, there)) == {"w1"}


@situations(
    "target, size, stopped, held",
    {"no queue": (Target(3), 3, False, False), "suspended": (Target(0), 0, True, False)},
)
def test_job_without_a_queue_has_what_it_wants(
    target: Target, size: int, stopped: bool, held: bool
) -> None:
    assert (target.size, target.stopped, target.held) == (size, stopped, held)


@situations(
    "workloads, wanted, size, stopped, held",
    {
        "no quota": ((), 4, 0, True, True),
        "suspended without quota": ((), 0, 0, True, False),
        "suspended with quota": ((a_workload(),), 0, 0, True, False),
        "quota for a part": ((a_workload(),), 4, 2, False, False),
        "quota for all": ((a_workload(), a_workload(1)), 3, 3, False, False),
        "quota for more": ((a_workload(), a_workload(1), a_workload(2)), 3, 3, False, False),
        "no Kueue": (None, 4, 0, True, True),
        "suspended, no Kueue": (None, 0, 0, True, False),
    },
)
def test_job_in_a_queue_has_what_has_quota(
    workloads: tuple[WorkloadView, ...] | None, wanted: int, size: int, stopped: bool, held: bool
) -> None:
    job = replace(a_queued_job(), wanted=wanted)
    target = Target(wanted, find_quota(job, observed(workloads=workloads)))
    assert (target.size, target.stopped, target.held) == (size, stopped, held)
