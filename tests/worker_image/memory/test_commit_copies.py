import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
from elastic_pytorch.memory.commit_copies import Copier
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.state import last_commits
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_file import load_newest
from torch import nn

from tests.worker_image.gated_lane import GatedLane
from tests.worker_image.scripts.snapshots import read_newest

pytestmark = pytest.mark.torch

SIZE = 64


class StateOnDevice(elastic.State):
    """A State of whose tensors a gated lane copies those of 32-bit floats."""

    _LANE = GatedLane


class Training:
    """Its weights are the steps done, with an average of them and a buffer of forward's."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.model = nn.Module()
        self.model.weight = nn.Parameter(torch.zeros(SIZE))
        self.model.register_buffer("seen", torch.zeros(SIZE))
        self.average = nn.Module()
        self.average.weight = nn.Parameter(torch.zeros(SIZE))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0, momentum=1.0)
        registered = {"model": self.model, "average": self.average, "optimizer": self.optimizer}
        self.state = StateOnDevice(
            folder, StateOnDevice.Options(**{"every": 1, "overlap": True, **options}), **registered
        )
        self.state.restore()

    @property
    def lane(self) -> GatedLane:
        lane = self.state._commits._copier._lane
        assert isinstance(lane, GatedLane)
        return lane

    @property
    def snapshot(self) -> Snapshot:
        assert self.state._commits.snapshot is not None
        return self.state._commits.snapshot

    def forward(self) -> None:
        with torch.no_grad():
            self.model.seen += 1

    def finish_step(self) -> None:
        """Momentum and weight become what they are after a step, for each step something else."""
        self.model.weight.grad = torch.full((SIZE,), -1.0)
        self.optimizer.step()
        with torch.no_grad():
            self.average.weight += 1

    def step(self) -> None:
        self.forward()
        self.finish_step()
        self.state.commit()

    def kept(self) -> int:
        """The step that is kept; what is kept is of this step alone."""
        return check(*read_newest(self.snapshot))


def check(version: StateVersion, tree: Any) -> int:
    step = version.step
    assert tree["step"] == step
    model, momentum = tree["objects"]["model"], tree["objects"]["optimizer"]["state"]
    assert set(model["weight"].tolist()) == {step * (step + 1) / 2}
    assert set(model["seen"].tolist()) == {step}
    assert set(tree["objects"]["average"]["weight"].tolist()) == {step}
    assert step == 0 or set(momentum[0]["momentum_buffer"].tolist()) == {-step}
    return int(step)


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


def test_what_is_kept_is_what_was_committed(training: Training) -> None:
    assert training.kept() == 0
    for step in range(1, 8):
        training.step()
        assert training.snapshot.copying
        assert training.kept() == step - 1
        training.forward()
        assert training.snapshot.copying, "forward and backward go on beside the copy"
        assert training.kept() == step - 1
        training.lane.let_go()
        training.state._commits.settle(wait=False)
        assert training.kept() == step
        with torch.no_grad():
            training.model.seen -= 1
    assert training.lane.begun == 7


def test_an_optimizer_waits_before_it_writes(training: Training) -> None:
    for step in range(1, 8):
        training.step()
        assert training.lane.let_through == step - 1
        assert training.kept() == step - 1
    assert training.lane.begun == 7


def test_without_overlap_nothing_is_copied_beside_the_training(tmp_path: Path) -> None:
    training = Training(tmp_path, overlap=False)
    for step in range(1, 4):
        training.step()
        assert training.kept() == step
    assert training.lane.begun == 0
    assert not training.optimizer._optimizer_step_pre_hooks


def test_a_copy_into_which_something_else_has_written_is_dropped(
    training: Training, caplog: pytest.LogCaptureFixture
) -> None:
    training.step()
    training.step()
    with torch.no_grad():
        kept = training.model.weight.clone()
        training.model.weight.zero_()  # as for a validation with averaged weights
        training.model.weight.copy_(kept)
    training.step()
    assert training.kept() == 3, "nothing is copied beside the training any more"
    assert "was changed by something else" in caplog.text
    training.step()
    assert training.kept() == 4
    assert training.lane.begun == 2
    assert caplog.text.count("was changed by something else") == 1


def test_an_optimizer_that_is_skipped_costs_nothing(training: Training) -> None:
    """A gradient scaler that has found an infinity."""
    training.step()
    training.state.commit()
    assert read_newest(training.snapshot)[0].step == 2, "no step was seen: it is copied in turn"
    assert training.lane.begun == 1


def test_steps_of_a_recorded_graph_are_never_copied_beside(training: Training) -> None:
    training.step()
    training.lane.recording = True
    training.step()
    training.lane.recording = False
    assert training.kept() == 2
    for step in range(3, 6):  # replayed: no hook is called, and no version counts
        with torch.no_grad():
            momentum = training.optimizer.state[training.model.weight]["momentum_buffer"]
            momentum.data.sub_(1)
            training.model.weight.data.sub_(momentum)
            training.average.weight += 1
        training.forward()
        training.state.commit()
        assert training.kept() == step
    assert training.lane.begun == 1


@pytest.mark.parametrize("end", ["flush", "total", "restore", "gone"])
def test_a_copy_is_complete_at_the_end(tmp_path: Path, end: str) -> None:
    training = Training(tmp_path, total_steps=3 if end == "total" else None)
    for _ in range(3):
        training.step()
    snapshot = Snapshot(os.dup(training.snapshot.fd))
    if end == "flush":
        assert training.state.flush()
        loaded = load_newest(tmp_path, StateVersion(0, 0))
        assert check(loaded.version, loaded.tree) == 3
    elif end == "restore":
        assert training.state.restore() == 3
    elif end == "gone":
        del training
    assert check(*read_newest(snapshot)) == 3
    snapshot.close()


def test_flushes_wait_for_the_copy(tmp_path: Path) -> None:
    training = Training(tmp_path, flush_seconds=0)
    for _ in range(3):
        training.step()
        training.forward()
        training.lane.let_go()
        training.state._commits.settle(wait=False)
        training.state._flush(now=False)
        with torch.no_grad():
            training.model.seen -= 1
    assert training.state.flush()
    loaded = load_newest(tmp_path, StateVersion(0, 0))
    assert check(loaded.version, loaded.tree) == 3


def test_no_copy_is_in_progress_once_the_group_is_left(training: Training) -> None:
    """Its end would make it the newest state in the memory that the next State has by then."""
    training.step()
    assert training.snapshot.copying
    training.state._leave_group()
    assert not training.snapshot.copying
    assert training.kept() == 1


def spoil(training: Training) -> None:
    """Commits steps, and writes to a weight while the last one is copied beside the training."""
    for _ in range(3):
        training.step()
    assert training.snapshot.copying
    with torch.no_grad():
        training.model.weight.add_(1)


def test_flush_does_not_take_an_older_step_for_the_last_one(training: Training) -> None:
    spoil(training)
    assert not training.state.flush()
    loaded = load_newest(training.state._folder, StateVersion(0, 0))
    assert check(loaded.version, loaded.tree) == 2
    training.step()
    assert training.state.flush()


class Failed(Exception):
    pass


def fail(error: str, message: str) -> None:
    raise Failed(f"{error}: {message}")


def test_the_end_of_a_process_does_not_wait_for_a_commit_that_was_dropped(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_commits, "LAST_FLUSH_SECONDS", 10.0)
    monkeypatch.setattr(last_commits, "_fail", fail)
    monkeypatch.delattr(sys, "last_value", raising=False)  # of a test that failed before this one
    spoil(training)
    with pytest.raises(Failed, match=r"LastCheckpointNotWritten: .*: its copy in memory was not"):
        last_commits.end_training()
    training.step()
    training.state.close()


@pytest.fixture
def copiers() -> Iterator[list[Copier]]:
    made: list[Copier] = []
    yield made
    for copier in made:
        copier.close()


def test_only_what_an_optimizer_owns_is_copied_beside(copiers: list[Copier]) -> None:
    owned, other = nn.Parameter(torch.ones(8)), torch.ones(8)
    stepping, resting = (
        torch.optim.SGD([owned], lr=0.1),
        torch.optim.SGD([nn.Parameter(other)], lr=0.1),
    )
    lane = GatedLane()
    copiers.append(Copier(lane, [stepping, resting, "text"], overlap=True))
    owned.grad = torch.ones(8)
    stepping.step()
    targets = [torch.zeros(8), torch.zeros(8), torch.zeros(8, dtype=torch.int64)]
    copy = copiers[0].copy(targets, [owned.detach(), other, torch.arange(8)])
    assert [int((target != 0).sum()) for target in targets] == [4, 8, 7]
    assert not copy.done()
    assert copy.finish()
    assert [int((target != 0).sum()) for target in targets] == [8, 8, 7]


def test_time_that_the_training_waits_elsewhere_counts_for_the_interval(tmp_path: Path) -> None:
    training = Training(tmp_path, every=None)
    training.lane.seconds = 1e6
    deadline = time.monotonic() + 60
    while training.state._interval.steps == 1:  # about ten times a second the ranks agree
        training.step()
        assert time.monotonic() < deadline
    assert training.state._interval.steps > 10**6


@pytest.mark.parametrize("overlap", [True, False])
def test_each_commit_is_measured_although_the_device_is_steps_behind(
    tmp_path: Path, overlap: bool
) -> None:
    training = Training(tmp_path, overlap=overlap)
    training.lane.behind = True
    training.lane.seconds = 3.0
    for _ in range(5):
        training.step()
    costs = list(training.state._interval._commits)
    assert len(costs) == 4, "all commits but the last, which is still under way"
    assert all(3 <= cost < 6 for cost in costs), "each on its own"
