"""The quota that pods use: none is made without, and none is given back before they are gone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from elastic_pytorch_operator.model.actions import (
    Action,
    CreatePod,
    CreateService,
    DeleteWorkload,
    PatchWorkload,
    ResizeWorkload,
)
from elastic_pytorch_operator.model.observed import NodeView
from elastic_pytorch_operator.model.workload import WorkloadView
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan
from elastic_pytorch_operator.planning.queueing.quota import NO_LIMIT, find_quota
from elastic_pytorch_operator.planning.queueing.workloads import grant_pods
from elastic_pytorch_operator.spec.queue import Queue
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.operator.builders import a_pod, a_queued_job, a_workload, observed
from tests.situations import situations

TWO = [("lm-base", False)] * 2
QUOTA_NAMES = st.sampled_from(["lm-base", *(f"lm-extra-{number}" for number in range(1, 4))])


def left_of(workload: WorkloadView, planned: Sequence[Action]) -> int:
    """For how many pods a Workload has quota after the actions of a plan."""
    left = workload.held
    for action in planned:
        match action:
            case ResizeWorkload(workload.name, _, count):
                left = min(left, count)
            case DeleteWorkload(workload.name) | PatchWorkload(workload.name, spec={"active": _}):
                left = 0
            case PatchWorkload(workload.name, status={"admission": None}):
                left = 0
    return left


@given(
    base=st.integers(2, 4),
    states=st.lists(st.sampled_from(["pending", "admitted", "evicted"]), min_size=1, max_size=4),
    pods=st.lists(st.tuples(QUOTA_NAMES, st.booleans()), max_size=6),
    coming=st.dictionaries(st.integers(10, 12), QUOTA_NAMES, max_size=2),
    wanted=st.integers(0, 4),
    spares=st.integers(0, 1),
    queue=st.sampled_from(["team", "other", None]),
)
@example(2, ["admitted"] * 3, [*TWO, ("lm-extra-2", True)], {}, 3, 0, "team")
@example(3, ["admitted"] * 3, [*TWO, ("lm-base", True), ("lm-extra-1", False)], {}, 4, 0, "team")
@example(3, ["admitted"], TWO, {10: "lm-base"}, 2, 0, "team")
@example(2, ["admitted"] * 2, [*TWO, ("lm-base", True)], {}, 3, 0, "team")
@example(2, ["evicted"], [], {10: "lm-base"}, 2, 0, "team")
def test_quota_never_falls_below_the_pods_there_those_on_their_way_and_those_of_the_plan(
    base: int,
    states: list[str],
    pods: list[tuple[str, bool]],
    coming: dict[int, str],
    wanted: int,
    spares: int,
    queue: str | None,
) -> None:
    workloads = tuple(
        a_workload(number, state, count=1 if number else base)
        for number, state in enumerate(states)
    )
    there = [
        a_pod(index, workload=name, deleting=deleting)
        for index, (name, deleting) in enumerate(pods)
    ]
    seen = observed(there, workloads=workloads, being_created=coming)
    assume(len(pods) + len(coming) <= sum(workload.held for workload in workloads))
    job = replace(
        a_queued_job(spares=spares), wanted=wanted, queue=None if queue is None else Queue(queue)
    )
    planned = plan(job, seen, Memory()).actions
    created = [action for action in planned if isinstance(action, CreatePod)]
    left = sum(left_of(workload, planned) for workload in workloads)
    if queue is None and not any(workload.reserves for workload in workloads):
        left += len(created)
    assert len(pods) + len(coming) + len(created) <= left


def test_base_is_filled_before_the_extras_and_no_pod_is_made_without_a_place() -> None:
    there = observed([a_pod(0, workload="lm-base")], workloads=(a_workload(), a_workload(1)))
    asked = [CreateService(), CreatePod(1), CreatePod(2), CreatePod(3)]
    service, *pods = grant_pods(there, find_quota(a_queued_job(), there), asked)
    assert service == CreateService()
    made = [(p.index, p.grant) for p in pods if isinstance(p, CreatePod) and p.grant]
    places = [(index, grant.workload, grant.extra) for index, grant in made]
    assert places == [(1, "lm-base", False), (2, "lm-extra-1", True)]
    assert len(pods) == 2
    assert grant_pods(there, NO_LIMIT, asked) == asked


def test_place_of_a_pod_that_is_on_its_way_is_not_given_away_again() -> None:
    pods = (a_pod(0, workload="lm-base"), a_pod(1, workload="lm-base"))
    there = observed(
        pods,
        workloads=(a_workload(), a_workload(1), a_workload(2)),
        being_created={2: "lm-extra-2"},
    )
    (created,) = grant_pods(there, find_quota(a_queued_job(), there), [CreatePod(2), CreatePod(3)])
    assert isinstance(created, CreatePod) and created.grant is not None
    assert (created.index, created.grant.workload) == (3, "lm-extra-1")


@situations(
    "extras, granted",
    {
        "deleted": ((), 0),
        "there": ((a_workload(1),), 1),
        "evicted": ((a_workload(1, "evicted"),), 1),
        "deactivated": ((a_workload(1, active=False),), 0),
    },
)
def test_pod_whose_extra_was_given_back_keeps_a_place_of_the_base(
    extras: tuple[WorkloadView, ...], granted: int
) -> None:
    """Workers only count, whichever Workload their pods were made by."""
    pods = (a_pod(0, workload="lm-base"), a_pod(1, workload="lm-extra-1"))
    there = observed(pods, workloads=(a_workload(), *extras))
    assert len(grant_pods(there, find_quota(a_queued_job(), there), [CreatePod(2)])) == granted


@pytest.mark.parametrize(("node", "granted"), [("node-1", 0), ("lost", 1)])
def test_pod_that_is_being_deleted_keeps_its_place_until_it_is_gone_or_its_node_is_lost(
    node: str, granted: int
) -> None:
    pods = (a_pod(0, workload="lm-base"), a_pod(1, workload="lm-base", deleting=True, node=node))
    nodes = {"node-1": NodeView("node-1"), "lost": NodeView("lost", ready=False)}
    there = observed(pods, workloads=(a_workload(),), nodes=nodes)
    assert len(grant_pods(there, find_quota(a_queued_job(), there), [CreatePod(1)])) == granted
