from collections.abc import Sequence
from dataclasses import replace

import pytest
from elastic_pytorch_operator.model.failure import Fault
from elastic_pytorch_operator.model.observed import AgentView, Failure, NodeView, PodView
from elastic_pytorch_operator.planning.failures.round_failure import RoundFailure, judge_round
from elastic_pytorch_operator.planning.workers.liveness import assess_workers

from tests.operator.builders import NOW, a_dead_pod, a_failure, a_pod, a_round, an_agent, observed
from tests.situations import situations

ECHO = a_failure("RuntimeError: gloo: Connection closed by peer", failed_at=NOW - 5)
LATER_ECHO = a_failure("torch.distributed.DistBackendError: NCCL error", failed_at=NOW - 4)
BOOM = a_failure(failed_at=NOW - 3)
KILLED = a_failure("killed by SIGKILL", signal="SIGKILL", exit_code=137, failed_at=NOW - 3)
ABORTED = a_failure(
    "killed by SIGABRT", signal="SIGABRT", exit_code=134, traceback="ncclRemoteError: A call failed"
)


def failed(worker: str, failure: Failure | None, **fields: float) -> AgentView:
    return an_agent(worker, "failed", failure=failure, **{"state_since": NOW - 2.5, **fields})


def judge(
    agents: Sequence[AgentView], pods: Sequence[PodView] | None = None, size: int = 3
) -> RoundFailure:
    seen = observed(
        pods if pods is not None else [a_pod(i) for i in range(3)],
        agents,
        round=a_round(0, 1, 2, size=size),
    )
    return judge_round(seen, assess_workers(seen))


ALL_ECHO = [failed("w0", ECHO), failed("w1", LATER_ECHO), failed("w2", LATER_ECHO)]


@situations(
    "agents, worker, fault",
    {
        "all train": ([an_agent(f"w{i}") for i in range(3)], None, None),
        "one raises, the others report echoes": (
            [failed("w0", ECHO), failed("w1", BOOM), failed("w2", ECHO)],
            "w1",
            Fault.CODE,
        ),
        "one raises, the others wait in C++": (
            [an_agent("w0"), failed("w1", BOOM), an_agent("w2")],
            "w1",
            Fault.CODE,
        ),
        "one was killed from outside": (
            [failed("w0", ECHO), failed("w1", KILLED), failed("w2", ECHO)],
            "w1",
            Fault.OUTSIDE,
        ),
        "nothing but echoes": (ALL_ECHO, "w0", Fault.CODE),
        "torchrun of the user's tells nothing": (
            [an_agent("w0"), failed("w1", None), an_agent("w2")],
            "w1",
            Fault.CODE,
        ),
    },
)
def test_with_every_member_there(
    agents: list[AgentView], worker: str | None, fault: Fault | None
) -> None:
    found = judge(agents)
    assert not found.open
    assert (found.cause and found.cause.worker, found.cause and found.cause.fault) == (
        worker,
        fault,
    )


ENDED = [a_dead_pod(0, exit_code=0), a_dead_pod(1, exit_code=1), a_dead_pod(2, exit_code=0)]


def gave_up(worker: str, failure: Failure) -> AgentView:
    return replace(failed(worker, failure), gives_up=True)


@situations(
    "agents, pods, worker",
    {
        "all": ([gave_up("w0", ECHO), gave_up("w1", BOOM), gave_up("w2", ECHO)], ENDED, "w1"),
        "the one that raised": (
            [failed("w0", ECHO), gave_up("w1", BOOM), an_agent("w2")],
            [a_pod(0), ENDED[1], a_pod(2)],
            "w1",
        ),
        "all, and each saw but echoes": (
            [gave_up("w0", ECHO), gave_up("w1", ECHO), gave_up("w2", LATER_ECHO)],
            ENDED,
            "w0",
        ),
        "one, as another was killed": (
            [gave_up("w0", ECHO), an_agent("w1"), an_agent("w2")],
            [ENDED[0], ENDED[1], a_pod(2)],
            None,
        ),
    },
)
def test_torchruns_that_gave_up_are_heard_although_their_pods_have_ended(
    agents: list[AgentView], pods: list[PodView], worker: str | None
) -> None:
    found = judge(agents, pods)
    assert not found.open
    assert (found.cause and found.cause.worker) == worker


def test_peer_that_has_returned_is_the_cause_of_echoes() -> None:
    cause = judge([an_agent("w0", "succeeded"), failed("w1", ECHO), failed("w2", ECHO)]).cause
    assert cause is not None
    assert cause.fault is Fault.CODE
    assert cause.message.startswith(
        "w0 (rank 0) had returned while others still trained: RuntimeError: gloo"
    )


@pytest.mark.parametrize("echo", [ECHO, ABORTED, BOOM])
@situations(
    "pods, third",
    {
        "its pod has gone": ([a_pod(0), a_pod(1)], None),
        "its pod has ended": ([a_pod(0), a_pod(1), a_pod(2, phase="Failed", exit_code=137)], None),
        "its pod is being deleted": ([a_pod(0), a_pod(1), a_pod(2, deleting=True)], an_agent("w2")),
        "its agent leaves": ([a_pod(0), a_pod(1), a_pod(2)], an_agent("w2", "leaving")),
        "its connection has closed": (
            [a_pod(0), a_pod(1), a_pod(2)],
            an_agent("w2", heard_at=NOW - 3, disconnected_since=NOW - 2),
        ),
    },
)
def test_lost_member_explains_what_the_others_report(
    echo: Failure, pods: list[PodView], third: AgentView | None
) -> None:
    agents = [failed("w0", echo), failed("w1", echo), *([third] if third else [])]
    assert judge(agents, pods) == RoundFailure()


def test_echo_of_a_member_that_is_still_in_the_round_before_counts_nothing() -> None:
    behind = an_agent("w0", round_=0)
    assert judge([behind, an_agent("w1"), failed("w2", ECHO)]) == RoundFailure()
    found = judge([behind, an_agent("w1"), failed("w2", BOOM)]).cause
    assert found is not None, "its own failure does"
    assert found.worker == "w2"


def test_members_that_a_new_leader_has_not_heard_are_lost() -> None:
    assert judge(ALL_ECHO, size=4) == RoundFailure()


def test_is_open_until_every_member_has_spoken() -> None:
    fresh = [
        failed("w0", BOOM, state_since=NOW - 0.1),
        an_agent("w1", heard_at=NOW - 0.5),
        an_agent("w2"),
    ]
    assert judge(fresh) == RoundFailure(open=True)


def test_nothing_but_echoes_waits_for_a_later_heartbeat_of_everybody() -> None:
    soon = [failed(f"w{i}", ECHO, state_since=NOW - 0.5) for i in range(3)]
    assert judge(soon).open
    assert judge(ALL_ECHO).echoes_only


def test_outage_of_all_nodes_is_no_loss() -> None:
    seen = observed(
        [a_pod(i) for i in range(3)],
        [failed(f"w{i}", ECHO) for i in range(3)],
        round=a_round(0, 1, 2),
        nodes={f"node-{n}": NodeView(f"node-{n}", ready=False) for n in range(3)},
    )
    assert judge_round(seen, assess_workers(seen)).echoes_only
