"""What the operator's Workloads rely on in a real Kueue: the tests play the operator's part."""

import pytest

from tests.e2e.kueue.conftest import MakeQueue, Owner
from tests.e2e.kueue.workloads import EXTRA_PRIORITY, Workload, released
from tests.waiting import until

pytestmark = pytest.mark.long


def test_a_workload_of_our_kind_is_admitted_with_the_flavor_of_its_queue(
    make_queue: MakeQueue, owner: Owner
) -> None:
    queue = make_queue(6)
    base = queue.workload("base", owner, 2)
    base.until("Admitted")
    (assigned,) = base.status["admission"]["podSetAssignments"]
    assert assigned["name"] == "workers"
    assert assigned["count"] == 2
    assert assigned["flavors"] == {"cpu": queue.name, "memory": queue.name}
    queue.until_used(2)


def test_an_evicted_workload_keeps_its_quota_until_one_patch_releases_it(
    make_queue: MakeQueue, owner: Owner
) -> None:
    queue = make_queue(2)
    low = queue.workload("low", owner, 2)
    low.until("Admitted")
    high = queue.workload("high", owner, 2, priority=10)
    assert low.until("Evicted")["reason"] == "Preempted"
    assert high.remains(lambda it: not it.holds("QuotaReserved")), (
        "nothing takes the quota of one that has not released it"
    )
    assert low.holds("QuotaReserved")

    low.release()
    high.until("Admitted")
    assert "admission" not in low.status
    high.delete()
    low.until("Admitted")
    assert low.conditions()["Evicted"]["status"] == "False", (
        "Kueue clears it at the next reservation"
    )


def test_a_release_that_a_late_write_of_kueue_has_undone_can_be_repeated(
    make_queue: MakeQueue, owner: Owner
) -> None:
    queue = make_queue(2)
    low = queue.workload("low", owner, 2)
    low.until("Admitted")
    high = queue.workload("high", owner, 2, priority=10)
    low.until("Evicted")
    evicted = low.status
    low.release()
    # Kueue's own writes carry no resourceVersion, but the admission that it remembers.
    low.patch_status({"admission": evicted["admission"], "conditions": evicted["conditions"]})
    assert low.holds("QuotaReserved")
    low.release()
    low.patch_status(released(low.get()))
    high.until("Admitted")
    assert not low.holds("QuotaReserved")


def test_an_admission_cannot_be_nulled_alone(make_queue: MakeQueue, owner: Owner) -> None:
    base = make_queue(2).workload("base", owner, 2)
    base.until("Admitted")
    assert "admission" in base.patch_status({"admission": None}, check=False)
    assert base.holds("QuotaReserved")


def test_a_workload_with_a_minimum_gets_what_there_is_and_nothing_later(
    make_queue: MakeQueue, owner: Owner
) -> None:
    queue = make_queue(6)
    other = queue.workload("other", owner, 2)
    other.until("Admitted")
    partial = queue.workload("partial", owner, 8, min_count=2)
    partial.until("Admitted")
    assert partial.status["admission"]["podSetAssignments"][0]["count"] == 4
    other.delete()
    queue.until_used(4)
    assert partial.remains(lambda it: it.status["admission"]["podSetAssignments"][0]["count"] == 4)


def evicted(*workloads: Workload) -> list[Workload]:
    return [workload for workload in workloads if workload.holds("Evicted")]


def test_extras_are_preempted_before_any_base_and_no_extra_preempts(
    make_queue: MakeQueue, owner: Owner
) -> None:
    queue = make_queue(6)
    base = queue.workload("a-base", owner, 2)
    base.until("Admitted")
    extras = [queue.workload(f"a-extra-{k}", owner, 1, priority=EXTRA_PRIORITY) for k in range(4)]
    for extra in extras:
        extra.until("Admitted")
    # Lower than the base of the job that grows, and its extras go first nevertheless.
    second = queue.workload("b-base", owner, 2, priority=-10)
    # Of those that were admitted in the same second it may take any.
    until(
        lambda: len(evicted(*extras)) == 2,
        lambda: f"two extras to be evicted, not {evicted(*extras)}",
    )
    victims = evicted(*extras)
    assert evicted(base, *extras) == victims, "as few as suffice, and no base"
    assert all(victim.holds("Evicted", "Preempted") for victim in victims)
    late = queue.workload("b-extra", owner, 1, priority=EXTRA_PRIORITY)

    victims[0].delete()
    assert second.remains(lambda it: not it.holds("QuotaReserved")), (
        "one of the two that it needs is not released"
    )
    victims[1].release()
    second.until("Admitted")
    assert base.holds("Admitted")
    assert late.remains(lambda it: not it.holds("QuotaReserved"))
    left = [extra for extra in extras if extra not in victims]
    assert not evicted(base, second, *left), "an extra takes nothing from others"
    queue.until_used(6)


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_a_base_does_not_wait_behind_older_extras(
    make_queue: MakeQueue, owner: Owner, strategy: str
) -> None:
    queue = make_queue(3, strategy=strategy)
    first = queue.workload("a-base", owner, 3)
    first.until("Admitted")
    extra = queue.workload("a-extra", owner, 1, priority=EXTRA_PRIORITY)
    extra.until("QuotaReserved", "False")
    second = queue.workload("b-base", owner, 3)
    second.until("QuotaReserved", "False")
    first.delete()
    second.until("Admitted")
    assert not extra.holds("QuotaReserved")


def test_the_count_of_an_admitted_base_can_be_lowered_but_not_raised(
    make_queue: MakeQueue, owner: Owner
) -> None:
    queue = make_queue(4)
    base = queue.workload("base", owner, 4)
    base.until("Admitted")
    waiting = queue.workload("waiting", owner, 2)
    pods = base.get()["spec"]["podSets"][0]
    base.patch({"spec": {"podSets": [pods | {"count": 2}]}})
    waiting.until("Admitted")
    assert base.holds("Admitted")
    assert "podSets" in base.patch({"spec": {"podSets": [pods | {"count": 3}]}}, check=False)


def test_an_extra_made_anew_under_its_name_waits_and_is_admitted_when_there_is_room(
    make_queue: MakeQueue, owner: Owner
) -> None:
    queue = make_queue(2)
    base = queue.workload("a-base", owner, 1)
    base.until("Admitted")
    extra = queue.workload("a-extra-1", owner, 1, priority=EXTRA_PRIORITY)
    extra.until("Admitted")
    second = queue.workload("b-base", owner, 1)
    extra.until("Evicted")
    extra.delete()
    extra = queue.workload("a-extra-1", owner, 1, priority=EXTRA_PRIORITY)
    second.until("Admitted")
    assert extra.remains(lambda it: not it.holds("QuotaReserved"))
    second.delete()
    extra.until("Admitted")
    queue.until_used(2)


@pytest.mark.parametrize("end", ["finished", "deactivated", "deleted"])
def test_quota_is_free_at_once(make_queue: MakeQueue, owner: Owner, end: str) -> None:
    queue = make_queue(2)
    base = queue.workload("base", owner, 2)
    base.until("Admitted")
    waiting = queue.workload("waiting", owner, 2)
    waiting.until("QuotaReserved", "False")
    match end:
        case "finished":
            base.set_condition("Finished", "True", "Succeeded")
        case "deactivated":
            base.patch({"spec": {"active": False}})
        case "deleted":
            base.delete()
    waiting.until("Admitted")


def test_a_deactivated_workload_is_admitted_again_once_it_is_active(
    make_queue: MakeQueue, owner: Owner
) -> None:
    base = make_queue(2).workload("base", owner, 2)
    base.until("Admitted")
    base.patch({"spec": {"active": False}})
    assert base.until("Evicted")["reason"] == "Deactivated"
    base.release()
    base.patch({"spec": {"active": True}})
    base.until("Admitted")
