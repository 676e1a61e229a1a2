"""A rank dies in each phase of a copy: others go on with a complete version, to the last bit."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch.distributed as dist
from elastic_pytorch.memory.slot_memory import SlotMemory
from elastic_pytorch.memory.snapshot import Arriving, Snapshot
from elastic_pytorch.pod.messages import CHANGE
from elastic_pytorch.state.sharded.peers import copies
from elastic_pytorch.state.sharded.peers.memory import PeerMemory
from elastic_pytorch.state_format.state_version import StateVersion

from tests.worker_image.state.sharded.exact_training import Records, Training
from tests.worker_image.state.test_state_memory import pods, run_pods, running_in_pods

pytestmark = [pytest.mark.process, pytest.mark.torch]

LATE_SECONDS = 1.0  # all ranks have stopped by then; if one has not, it hears of the change in time
Point = tuple[CodeType, str]  # where, and whether it is called or returns

SEND, SEAL = copies.send_part.__code__, PeerMemory._seal.__code__
RECEIVE, COMPLETE = Snapshot.receive.__code__, Arriving.complete.__code__
WRITE = SlotMemory.put_skeleton.__code__
PHASES: dict[str, list[Point]] = {
    "before": [(SEND, "call")],
    "emptied": [(RECEIVE, "return")],
    "received": [(COMPLETE, "call")],
    "whole": [(SEND, "return")],
    "agreed": [(SEND, "return"), (SEAL, "return")],
    "next": [(SEND, "return"), (SEAL, "return"), (WRITE, "call")],
}


def die_at(points: list[Point]) -> None:
    """Ends this process once all points have been passed in turn, in whatever thread."""
    left = list(points)

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if left and (frame.f_code, event) == left[0]:
            left.pop(0)
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(profile)
    sys.setprofile(profile)


def train(
    records: Path, victim: int, phase: str, copies: int, until: int, folder: Path | None = None
) -> StateVersion:
    """Where it has begun. One rank dies in a phase of a copy, after some whole ones; -1: none."""
    if dist.get_rank() == victim:
        die_at([(SEND, "return"), (SEAL, "return")] * copies + PHASES[phase])
    training = Training(folder, records, every=1)
    found = training.restore()
    training.steps(until, seconds=0.01)
    return found


def lose(servers: list[Any], records: Path, victim: int, phase: str, copies: int) -> None:
    """A group of which one rank dies, and with it all others."""
    with running_in_pods(servers, 1, train, records, victim, phase, copies, 100_000) as group:
        codes = group.exit_codes()
    assert codes[victim] == -signal.SIGKILL
    assert None not in codes, "the others have heard of it"


SHOWN_BY_MAKE_TEST = {("emptied", 3), ("whole", 2), ("next", 4)}
AFTER = [
    pytest.param(
        phase, after, marks=[] if (phase, after) in SHOWN_BY_MAKE_TEST else pytest.mark.long
    )
    for phase in PHASES
    for after in (2, 3, 4)
]


@pytest.mark.parametrize(("phase", "after"), AFTER)
def test_others_go_on_with_the_newest_version_that_was_copied(
    phase: str, after: int, tmp_path: Path
) -> None:
    with pods(3) as servers, pods(2) as new:
        lose(servers, tmp_path, 1, phase, 2)
        sealed = Records(tmp_path).sealed()
        assert sealed.step > 0
        del servers[1]
        [found, *others] = run_pods(
            [*servers, *new][:after], 1, train, tmp_path, -1, "", 0, sealed.step + 20
        )
    assert sealed <= found and others == [found] * (after - 1)


@pytest.mark.parametrize(
    "phase",
    [
        "emptied",
        *(pytest.param(phase, marks=pytest.mark.long) for phase in ("before", "received", "whole")),
    ],
)
def test_pod_is_lost_in_the_first_copy_after_all_processes_have_started_again(
    phase: str, tmp_path: Path
) -> None:
    with pods(3) as servers:
        lose(servers, tmp_path, 0, "before", 2)
        sealed = Records(tmp_path).sealed()
        assert sealed.step > 0
        lose(servers, tmp_path, 1, phase, 0)
        del servers[1]
        found = run_pods(servers, 1, train, tmp_path, -1, "", 0, 0)
    assert sealed <= found[0] == found[1]


def stop(records: Path) -> int:
    """Stops for a planned change, once a step has its copies. Returns the last step."""
    training = Training(None, records, every=1)
    training.restore()
    while training.sealed().step == 0:
        training.steps(training.state.step + 1, seconds=0.01)
    training.state._settle_last(stop=True)
    return training.state.step


def announce(server: Any, records: Path, *, leaves: bool, late: bool) -> None:
    """Tells a pod of a change; late: when its group has stopped for that."""
    if late:
        while Records(records).sealed().step == 0:
            time.sleep(0.05)
        time.sleep(LATE_SECONDS)
    server.broadcast({"kind": CHANGE, "round": 2, "orderly": False, "leaves": leaves})


@pytest.mark.parametrize(
    ("leaving", "phase", "late"),
    [
        pytest.param(0, "before", False, marks=pytest.mark.long),
        (0, "emptied", False),
        pytest.param(0, "whole", False, marks=pytest.mark.long),
        pytest.param(1, "before", False, marks=pytest.mark.long),
        (1, "before", True),
    ],
    ids=["grows", "emptied", "whole", "shrinks", "shrinks, and the pod that leaves hears it last"],
)
def test_pod_is_lost_in_the_first_copy_after_a_planned_change(
    leaving: int, phase: str, late: bool, tmp_path: Path
) -> None:
    with pods(3) as servers, pods(1) as new, ThreadPoolExecutor() as agents:
        for number, server in enumerate(servers):
            leaves = number >= 3 - leaving
            agents.submit(announce, server, tmp_path, leaves=leaves, late=late and leaves)
        [last, *_] = run_pods(servers, 1, stop, tmp_path)
        sealed = Records(tmp_path).sealed()
        group = [*servers[: 3 - leaving], *new]
        lose(group, tmp_path, 2 if leaving else 1, phase, 0)
        del group[2 if leaving else 1]
        found = run_pods(group, 1, train, tmp_path, -1, "", 0, 0)
    assert sealed <= found[0] == found[1]
    assert not leaving or found[0].step == last, "the pod that is lost had nothing yet"


TOLD, UNTOLD = 3, 4


def fail_to_copy(records: Path) -> None:
    """Ends once a commit says that copies failed, which rank 0 cannot receive any more."""
    training = Training(None, records, every=1)
    training.restore()
    while training.sealed().step == 0:
        training.steps(training.state.step + 1)
    assert training.state._peers is not None
    if training.rank == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), training.state._peers._memory.copies.fd)
    try:
        training.steps(10_000)
    except RuntimeError as error:
        os._exit(TOLD if "copies for peers" in str(error) else UNTOLD)


def test_copies_that_fail_for_another_reason_end_the_training_rather_than_the_commits(
    tmp_path: Path,
) -> None:
    with pods(2) as servers, running_in_pods(servers, 1, fail_to_copy, tmp_path) as group:
        assert group.exit_codes()[0] == TOLD
