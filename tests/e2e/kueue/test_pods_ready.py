"""What Kueue does with Workloads whose pods are not ready in time: each has its own clock."""

from collections.abc import Iterator

import pytest

from tests.e2e.kueue.conftest import MakeQueue, Owner
from tests.e2e.kueue.manager import configured
from tests.e2e.kueue.workloads import EXTRA_PRIORITY

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def impatient(kueue: None) -> Iterator[None]:
    """Seconds in place of half an hour."""
    requeuing = {"backoffBaseSeconds": 1, "backoffMaxSeconds": 2}
    with configured(
        waitForPodsReady={"timeout": "8s", "recoveryTimeout": "8s", "requeuingStrategy": requeuing}
    ):
        yield


def test_a_late_extra_is_evicted_alone_and_comes_back_after_its_release(
    make_queue: MakeQueue, owner: Owner
) -> None:
    queue = make_queue(3)
    base = queue.workload("base", owner, 2)
    base.until("Admitted")
    base.set_condition("PodsReady", "True", "Started")
    extra = queue.workload("extra", owner, 1, priority=EXTRA_PRIORITY)
    assert extra.until("Evicted")["reason"] == "PodsReadyTimeout"
    assert extra.holds("QuotaReserved")
    assert not base.holds("Evicted")

    extra.release()
    extra.until("Requeued")
    extra.until("Admitted")
    extra.set_condition("PodsReady", "True", "Started")
    assert base.holds("Admitted")


def test_a_loss_that_is_not_made_good_in_time_evicts(make_queue: MakeQueue, owner: Owner) -> None:
    queue = make_queue(2)
    base = queue.workload("base", owner, 2)
    base.until("Admitted")
    base.set_condition("PodsReady", "True", "Started")
    base.set_condition("PodsReady", "False", "WaitForRecovery")
    assert base.until("Evicted")["reason"] == "PodsReadyTimeout"
    # Left as it is, the old loss would be counted from its own date, and evict at once.
    base.release()
    base.until("Admitted")
    assert base.remains(lambda it: not it.holds("Evicted"))
