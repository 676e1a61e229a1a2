from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import DeletePod
from elastic_pytorch_operator.model.observed import NodeView, PodView
from elastic_pytorch_operator.planning.stock.rendezvous import (
    Phase,
    Rendezvous,
    current_number,
    delete_stores,
    judge_rendezvous,
)
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import a_dead_pod, a_job, a_pod, observed
from tests.operator.planning.stock.test_pod_exits import BOOM, GLOO, gave_up

C10D = {"rendezvous": {"backend": "c10d"}}
ETCD = {"rendezvous": {"backend": "etcd-v2", "endpoint": "etcd:2379"}}
RENDEZVOUS_CLOSED = "RendezvousClosedError"
STORES = (
    a_pod(0, name="s1", rendezvous=1),
    a_pod(0, name="s2", rendezvous=2),
    a_pod(0, name="s3", rendezvous=3, deleting=True),
)


def runs(index: int) -> PodView:
    return a_pod(index, rendezvous=1)


def ended(index: int, message: str = "", exit_code: int = 1, **fields: Any) -> PodView:
    return a_dead_pod(index, exit_message=message, exit_code=exit_code, rendezvous=1, **fields)


def a_store(number: int = 1, **fields: Any) -> PodView:
    return a_pod(0, name=f"store-{number}", rendezvous=number, role="store", **fields)


def judged(
    *pods: PodView,
    disturbed: bool = False,
    stores: tuple[PodView, ...] = (),
    lost: tuple[str, ...] = (),
) -> Rendezvous:
    job: Job = a_job(**(C10D if stores else ETCD))
    return judge_rendezvous(job, observed(pods, stores=stores), lost, 1, disturbed=disturbed)


def test_rendezvous_whose_workers_run_is_open() -> None:
    assert judged(runs(0), runs(1)).phase is Phase.OPEN
    assert judged().phase is Phase.OPEN


def test_lost_worker_leaves_it_open() -> None:
    assert judged(runs(0), ended(1, exit_code=137)).phase is Phase.OPEN


def test_worker_that_ran_out_of_memory_leaves_it_open() -> None:
    assert judged(runs(0), ended(1, exit_code=137, exit_reason="OOMKilled")).phase is Phase.OPEN


def test_failed_script_ends_it_and_is_to_blame() -> None:
    found = judged(ended(0, gave_up(GLOO)), ended(1, gave_up(BOOM)))
    assert (found.phase, found.counts) == (Phase.OVER, True)
    assert found.cause is not None
    assert found.cause.pod.name == "w1"


def test_who_says_what_has_gone_wrong_is_blamed_before_who_does_not() -> None:
    found = judged(ended(0, gave_up("step 5")), ended(1, gave_up(BOOM)))
    assert found.cause is not None
    assert found.cause.pod.name == "w1"


def test_failed_script_is_to_blame_even_after_a_loss() -> None:
    assert judged(ended(0, gave_up(BOOM)), ended(1, exit_code=137)).counts


def test_peers_errors_after_a_loss_are_nobodys_fault() -> None:
    found = judged(ended(0, gave_up(GLOO)), ended(1, RENDEZVOUS_CLOSED), disturbed=True)
    assert (found.phase, found.counts) == (Phase.OVER, False)
    assert "lost" in found.why


def test_peers_errors_without_a_loss_are_the_jobs_own() -> None:
    assert judged(ended(0, gave_up(GLOO)), ended(1, RENDEZVOUS_CLOSED)).counts


def test_worker_told_to_stop_closes_it_in_old_releases_which_is_nobodys_fault() -> None:
    found = judged(
        ended(0, RENDEZVOUS_CLOSED), ended(1, "SignalException: Process 1 got signal: 15"), runs(2)
    )
    assert (found.phase, found.counts) == (Phase.OVER, False)


def test_store_out_of_reach_is_nobodys_fault() -> None:
    found = judged(ended(0, "RendezvousConnectionError"))
    assert (found.phase, found.counts) == (Phase.OVER, False)


def test_lost_store_ends_it() -> None:
    assert judged(runs(0), stores=(a_store(),)).phase is Phase.OPEN
    dead = a_store(phase="Failed", started=False, exit_code=137)
    assert judged(runs(0), stores=(dead,)).phase is Phase.OVER
    assert judged(runs(0), stores=(a_store(deleting=True),)).phase is Phase.OVER
    assert judged(runs(0), stores=(a_store(),), lost=("store-1",)).phase is Phase.OVER
    assert judged(runs(0), stores=(a_store(2),)).phase is Phase.OVER


def test_worker_that_is_done_waits_for_the_others() -> None:
    assert judged(ended(0, exit_code=0), runs(1)).phase is Phase.FINISHING
    assert judged(ended(0, exit_code=0), ended(1, exit_code=0)).phase is Phase.DONE


def test_newcomer_who_finds_it_closed_by_success_spoils_nothing() -> None:
    assert (
        judged(ended(0, exit_code=0), ended(1, exit_code=0), ended(2, RENDEZVOUS_CLOSED)).phase
        is Phase.DONE
    )


def test_worker_lost_when_all_were_done_spoils_nothing() -> None:
    assert judged(ended(0, exit_code=0), ended(1, exit_code=137)).phase is Phase.DONE


def test_worker_that_never_started_does_not_hold_up_the_end() -> None:
    waiting = a_pod(1, started=False, phase="Pending", rendezvous=1)
    assert judged(ended(0, exit_code=0), waiting).phase is Phase.DONE


def test_success_of_one_that_breaks_the_others_is_none() -> None:
    found = judged(ended(0, exit_code=0), ended(1, gave_up(GLOO)))
    assert (found.phase, found.counts) == (Phase.OVER, True)
    assert "w0 had returned while others still trained" in found.why


def test_number_is_that_of_the_newest_pods() -> None:
    job = a_job(**C10D, status={"round": 7})
    assert current_number(job, observed([runs(0)], stores=(a_store(3),))) == 3
    assert current_number(job, observed()) == 8
    assert current_number(a_job(**C10D), observed()) == 1


@pytest.mark.parametrize(("keep", "gone"), [(0, ["s1", "s2"]), (2, ["s1"]), (3, ["s1", "s2"])])
def test_all_others_are_deleted_once(keep: int, gone: list[str]) -> None:
    deleted = delete_stores(observed(stores=STORES), keep=keep, why="it is over")
    assert deleted == [DeletePod(name, f"uid-{name}", "it is over") for name in gone]


def test_no_kubelet_is_waited_for_on_a_node_that_has_been_removed() -> None:
    nodes = {"node-0": NodeView("node-0", ready=False, removed=True)}
    assert [
        pod.force for pod in delete_stores(observed(stores=STORES, nodes=nodes), keep=2, why="")
    ] == [True]
