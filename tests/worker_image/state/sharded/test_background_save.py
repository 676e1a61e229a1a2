"""Sharded checkpoints that are written beside the training, of which only whole ones count."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.sharded import sharded_checkpoint
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder, sharded_folder
from elastic_pytorch.storage.checkpoint_folder import by_name
from elastic_pytorch.storage.checkpoint_format import SHARDED, name_of

from tests.waiting import WAIT_SECONDS
from tests.worker_image.state.sharded.exact_training import Training
from tests.worker_image.state.test_state_memory import pods, run_pods, running_in_pods

pytestmark = [pytest.mark.process, pytest.mark.torch]

SHARDS = sharded_checkpoint._write_shards.__code__
DEATHS: dict[str, tuple[int, CodeType, str]] = {  # which rank, and where
    "shards": (1, SHARDS, "call"),
    "checksums": (1, sharded_folder.describe_files.__code__, "call"),
    "rest": (0, checkpoint_folder.write.__code__, "call"),
    "name": (0, sharded_folder.FolderDrafts.publish.__code__, "call"),
    "named": (0, sharded_folder.FolderDrafts.publish.__code__, "return"),
}


def at(code: CodeType, event: str, count: int, action: Callable[[], object]) -> None:
    """Acts when other threads of this process have called, or left, a function so often."""
    left = count

    def profile(frame: FrameType, happened: str, _argument: Any) -> None:
        nonlocal left
        if frame.f_code is code and happened == event:
            left -= 1
            if left == 0:
                action()

    threading.setprofile(profile)


def go_on(folder: Path, records: Path, steps: int, flush_seconds: float = 600.0) -> StateVersion:
    """Returns where it has begun."""
    training = Training(folder, records, every=1, flush_seconds=flush_seconds)
    found = training.restore()
    training.steps(training.state.step + steps)
    return found


def hold_up(folder: Path, records: Path) -> int:
    """Holds a save up until training has gone on for ten steps.

    Returns which step is on the disk then.
    """
    goes_on = threading.Event()
    at(SHARDS, "call", 1, lambda: goes_on.wait(WAIT_SECONDS))
    training = Training(folder, records, every=1, flush_seconds=0.0)
    training.restore()
    while training.state._background.version is None:
        training.steps(training.state.step + 1)
    training.steps(training.state.step + 10)
    goes_on.set()
    training.state._take_saved(wait=True)
    return training.state._saved.step


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 2])
def test_training_goes_on_while_a_checkpoint_is_written_and_that_is_of_one_step(
    size: int, tmp_path: Path
) -> None:
    folder, records = tmp_path / "folder", tmp_path / "records"
    records.mkdir()
    with pods(size) as servers:
        [saved, *others] = run_pods(servers, 1, hold_up, folder, records)
        assert others == [saved] * (size - 1)
    with pods(3) as new:
        [found, *_] = run_pods(new, 1, go_on, folder, records, 3)
    assert found.step == saved > 0


def stop_in_save(folder: Path, records: Path) -> bool:
    """Stops for a planned change while a save is in progress. Whether it is on the disk then."""
    training = Training(folder, records, every=1, flush_seconds=0.0)
    training.restore()
    state = training.state
    while (version := state._background.version) is None:
        training.steps(state.step + 1)
    state._settle_last(stop=True)
    return (folder / name_of(version, SHARDED)).exists()


def test_planned_stop_waits_for_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    with pods(2) as servers:
        assert run_pods(servers, 1, stop_in_save, tmp_path / "folder", tmp_path / "records") == [
            True,
            True,
        ]


def die_in_save(folder: Path, records: Path, death: str) -> None:
    """Dies in the third save."""
    victim, code, event = DEATHS[death]
    training = Training(folder, records, every=1, flush_seconds=0.0)
    if training.rank == victim:
        at(code, event, 3, lambda: os.kill(os.getpid(), signal.SIGKILL))
    training.restore()
    training.steps(1_000_000)


@pytest.mark.parametrize(
    "death",
    [
        pytest.param(death, marks=[] if death in ("shards", "named") else pytest.mark.long)
        for death in DEATHS
    ],
)
def test_death_in_a_save_leaves_the_checkpoint_before_or_all_of_this_one(
    death: str, tmp_path: Path
) -> None:
    folder, records = tmp_path / "folder", tmp_path / "records"
    records.mkdir()
    with (
        pods(2) as servers,
        running_in_pods(servers, 1, die_in_save, folder, records, death) as group,
    ):
        codes = group.exit_codes()
        assert codes[DEATHS[death][0]] == -signal.SIGKILL and None not in codes, group.errors()
    whole = by_name(folder, SHARDED)
    assert len(whole) == 2, "the first two, or the last two"
    with pods(2) as new:
        assert run_pods(new, 1, go_on, folder, records, 3) == [whole[0][0]] * 2


def fail_to_save(folder: Path, records: Path) -> tuple[int, int]:
    """A file is in the folder's place for a while.

    Returns how many saves have failed, and the step that is saved then.
    """
    training = Training(folder, records, every=1, flush_seconds=0.0)
    training.restore()
    if training.rank == 0:
        folder.rename(folder.with_name("away"))
        folder.write_bytes(b"")
    state = training.state
    failed = torch.zeros(1, dtype=torch.int64)
    while failed < 2:
        training.steps(state.step + 1)
        failed.fill_(state._failed_saves)
        dist.all_reduce(failed, dist.ReduceOp.MIN)
    if training.rank == 0:
        folder.unlink()
    assert state.flush()
    return int(failed), state._saved.step - state.step


def test_failed_saves_are_counted_and_the_next_one_is_tried(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    with pods(2) as servers:
        outcomes = run_pods(servers, 1, fail_to_save, tmp_path / "folder", tmp_path / "records")
    assert outcomes == [(2, 0)] * 2
