from typing import Any

import pytest
from elastic_pytorch_operator.model.actions import DeletePod
from elastic_pytorch_operator.model.observed import NodeView, PodView
from elastic_pytorch_operator.planning.stock.pod_exits import read_end
from elastic_pytorch_operator.planning.stock.rendezvous import (
    Phase,
    Rendezvous,
    current_number,
    delete_stores,
    judge_rendezvous,
)
from elastic_pytorch_operator.spec.job import Job

from tests.operator.builders import NOW, a_dead_pod, a_job, a_pod, observed
from tests.operator.planning.stock.test_pod_exits import BOOM, GLOO, gave_up
from tests.situations import situations

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
    ends = [read_end(pod, NOW) for pod in pods if pod.ended]
    seen = observed(pods, stores=stores)
    return judge_rendezvous(job, seen, ends, lost, 1, disturbed=disturbed)


DONE, KILLED = ended(0, exit_code=0), ended(1, exit_code=137)
TOLD_TO_STOP = "SignalException: Process 1 got signal: 15"


@situations(
    "pods, phase, counts",
    {
        "there is none": ([], Phase.OPEN, False),
        "all run": ([runs(0), runs(1)], Phase.OPEN, False),
        "one is lost": ([runs(0), KILLED], Phase.OPEN, False),
        "one ran out of memory": (
            [runs(0), ended(1, exit_code=137, exit_reason="OOMKilled")],
            Phase.OPEN,
            False,
        ),
        "a script has failed, another worker is lost": (
            [ended(0, gave_up(BOOM)), KILLED],
            Phase.OVER,
            True,
        ),
        "nothing but errors of peers, and none is lost": (
            [ended(0, gave_up(GLOO)), ended(1, RENDEZVOUS_CLOSED)],
            Phase.OVER,
            True,
        ),
        "old releases close it as one is told to stop": (
            [ended(0, RENDEZVOUS_CLOSED), ended(1, TOLD_TO_STOP), runs(2)],
            Phase.OVER,
            False,
        ),
        "the store is out of reach": (
            [ended(0, "RendezvousConnectionError")],
            Phase.OVER,
            False,
        ),
        "one is done, and waits": ([DONE, runs(1)], Phase.FINISHING, False),
        "all are done": ([DONE, ended(1, exit_code=0)], Phase.DONE, False),
        "all are done, and a newcomer finds it closed": (
            [DONE, ended(1, exit_code=0), ended(2, RENDEZVOUS_CLOSED)],
            Phase.DONE,
            False,
        ),
        "one is done, the other was lost": ([DONE, KILLED], Phase.DONE, False),
        "one is done, the other never started": (
            [DONE, a_pod(1, started=False, phase="Pending", rendezvous=1)],
            Phase.DONE,
            False,
        ),
    },
)
def test_phase(pods: list[PodView], phase: Phase, counts: bool) -> None:
    found = judged(*pods)
    assert (found.phase, found.counts) == (phase, counts)


def test_failed_script_ends_it_and_is_to_blame() -> None:
    found = judged(ended(0, gave_up(GLOO)), ended(1, gave_up(BOOM)))
    assert (found.phase, found.counts) == (Phase.OVER, True)
    assert found.cause is not None
    assert found.cause.pod.name == "w1"


def test_who_says_what_has_gone_wrong_is_blamed_before_who_does_not() -> None:
    found = judged(ended(0, gave_up("step 5")), ended(1, gave_up(BOOM)))
    assert found.cause is not None
    assert found.cause.pod.name == "w1"


def test_peers_errors_after_a_loss_are_nobodys_fault() -> None:
    found = judged(ended(0, gave_up(GLOO)), ended(1, RENDEZVOUS_CLOSED), disturbed=True)
    assert (found.phase, found.counts) == (Phase.OVER, False)
    assert "lost" in found.why


def test_lost_store_ends_it() -> None:
    assert judged(runs(0), stores=(a_store(),)).phase is Phase.OPEN
    dead = a_store(phase="Failed", started=False, exit_code=137)
    assert judged(runs(0), stores=(dead,)).phase is Phase.OVER
    assert judged(runs(0), stores=(a_store(deleting=True),)).phase is Phase.OVER
    assert judged(runs(0), stores=(a_store(),), lost=("store-1",)).phase is Phase.OVER
    assert judged(runs(0), stores=(a_store(2),)).phase is Phase.OVER


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
