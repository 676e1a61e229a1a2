import signal
from pathlib import Path

import pytest
from elastic_pytorch.failures.failure import Failure
from elastic_pytorch.failures.local_failures import ECHO_WAIT_SECONDS, LocalFailures

from tests.worker_image.agents import Agents, Events, has_ended
from tests.worker_image.scripted_operator import ScriptedOperator

GLOO = (
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
    "by peer [10.244.1.5]:41231"
)
REMOTE = (
    "DistBackendError: NCCL error in: x.cpp:3, "
    "remote process exited or there was a network error\nncclRemoteError: A call failed"
)
DUPLICATE = (
    "DistBackendError: NCCL error in: x.cpp:3, invalid usage\nncclInvalidUsage: This\n"
    "Last error:\nDuplicate GPU detected : rank 0"
)
CRASH, ABORT = "killed by SIGSEGV", "killed by SIGABRT\nncclRemoteError: A call failed"


def failure(
    local_rank: int, observed: float, message: str = "ValueError: boom", exit_code: int = 1
) -> Failure:
    kind = message.partition(":")[0] if exit_code > 0 else ""
    return Failure(local_rank, local_rank, 100 + local_rank, exit_code, observed, kind, message)


@pytest.mark.parametrize(
    ("situation", "failures", "order"),
    [
        ("one", [failure(3, 10)], [3]),
        ("two of their own, the later one in front", [failure(0, 11), failure(1, 10)], [1, 0]),
        ("an echo that was seen first", [failure(0, 10, GLOO), failure(1, 11)], [1, 0]),
        (
            "echoes around a crash",
            [failure(0, 10, REMOTE), failure(1, 12, CRASH, -11), failure(2, 11, REMOTE)],
            [1, 0, 2],
        ),
        (
            "a wrong set-up among echoes",
            [failure(0, 10, REMOTE), failure(1, 11, DUPLICATE)],
            [1, 0],
        ),
        ("an abort for a peer", [failure(0, 10, ABORT, -6), failure(1, 11)], [1, 0]),
        (
            "nothing but echoes",
            [failure(1, 11, GLOO), failure(0, 12, GLOO), failure(2, 10, REMOTE)],
            [2, 1, 0],
        ),
        ("a worker that is known twice", [failure(0, 10, GLOO), failure(0, 9)], [0]),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else None,
)
def test_order(situation: str, failures: list[Failure], order: list[int]) -> None:
    found = LocalFailures()
    for each in failures:
        found.add(each)
    assert [each.local_rank for each in found.in_order()] == order, situation


def test_only_echoes_are_waited_upon() -> None:
    now = 100.0
    found = LocalFailures(lambda: now)
    assert found.seconds_left() is None
    found.add(failure(0, now, GLOO))
    now += ECHO_WAIT_SECONDS / 2
    found.add(failure(1, now, GLOO))
    assert found.seconds_left() == pytest.approx(ECHO_WAIT_SECONDS / 2)
    found.add(failure(2, now))
    assert found.seconds_left() == 0
    assert 2 in found and 3 not in found


FAIL = """
import os, sys, time
from pathlib import Path

rank = int(os.environ["RANK"])
Path(f"pid{rank}").write_text(str(os.getpid()))
while not Path(f"fail{rank}").exists():
    time.sleep(0.01)
if rank == 0:
    raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4")
raise ValueError(f"boom on rank {rank}")
"""


@pytest.mark.process
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_cause_is_told_and_not_the_lowest_local_rank(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path, start_method: str
) -> None:
    (tmp_path / "fail.py").write_text(FAIL)
    agent = agents("w0", "--nproc-per-node=3", f"--start-method={start_method}", "fail.py")
    operator.begin("w0")
    pids = [
        int(operator.wait(lambda r=rank: (p := tmp_path / f"pid{r}").exists() and p.read_text()))
        for rank in range(3)
    ]
    agent.signal(signal.SIGSTOP)  # so that it sees all at one look
    for rank in (0, 2, 1):
        (tmp_path / f"fail{rank}").touch()
        operator.wait(lambda pid=pids[rank]: has_ended(pid))
    agent.signal(signal.SIGCONT)
    operator.wait_for("failed", "w0")
    told = operator.last("w0")
    assert (told.failure["rank"], told.failure["pid"]) in [(2, pids[2]), (1, pids[1])], told.failure
    assert told.failure["message"] in ("ValueError: boom on rank 2", "ValueError: boom on rank 1")
    if start_method == "forkserver":  # which writes error files: their times tell which was first
        assert told.failure["rank"] == 2
    # The forkserver may tell of the third one too late for the look.
    operator.wait(lambda: "failed, too: " in agent.text())
    assert "failed, too: rank 0 (local rank 0, pid" in agent.text()


@pytest.mark.process
def test_echo_alone_is_told_while_the_others_run(
    operator: ScriptedOperator, agents: Agents, tmp_path: Path, events: Events
) -> None:
    (tmp_path / "fail.py").write_text(FAIL)
    agents("w0", "--nproc-per-node=2", "--monitor-interval=600", "fail.py")
    operator.begin("w0")
    operator.wait(lambda: (tmp_path / "pid0").exists() and (tmp_path / "pid1").exists())
    (tmp_path / "fail0").touch()
    operator.wait_for("failed", "w0")
    told = operator.last("w0")
    assert told.failure["rank"] == 0
