"""A step of `elastic.steps` is committed once its body is done, however the loop is left."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
from elastic_pytorch.pod.planned_stop import script_end
from elastic_pytorch.state.last_commits import end_training
from elastic_pytorch.storage import checkpoint_folder
from elastic_pytorch.training.step import Step
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def script_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "last_value", raising=False)
    monkeypatch.setattr(script_end, "over", False)


class Training:
    """A model, its State, and what its loop has done after each step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        data = TensorDataset(torch.arange(64.0).reshape(32, 2))
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0)
        sampler = elastic.ElasticSampler(data, batch_size=4, seed=3)
        self.state: Any = elastic.State(
            folder,
            elastic.State.Options(every=1, flush_seconds=0.0),
            model=self.model,
            optimizer=self.optimizer,
            sampler=sampler,
            seen=0,
        )
        self.loader = DataLoader(data, batch_sampler=sampler)
        self.state.restore()

    def steps(self, until: int) -> Iterator[Step]:
        return elastic.steps(self.state, self.loader, self.model, max_steps=until)

    def do(self, step: Step) -> None:
        self.optimizer.zero_grad()
        for batch in step.parts:
            step.backward(self.model(*batch).square().mean())
        self.optimizer.step()
        self.state.seen += 1

    def kept(self) -> int:
        end_training()
        version = checkpoint_folder.newest_and_claimed(str(self.folder))[0]
        return version.step if version else 0


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    found = Training(tmp_path / "checkpoints")
    yield found
    found.state.close()


def to_its_end(training: Training) -> None:
    for step in training.steps(3):
        training.do(step)


def left(training: Training) -> None:
    for step in training.steps(9):
        training.do(step)
        if training.state.step == 3:
            break


def left_and_flushed(training: Training) -> None:
    left(training)
    assert training.state.flush()
    assert checkpoint_folder.newest_and_claimed(str(training.folder))[0].step == 3


def left_twice(training: Training) -> None:
    for end in (1, 3):
        for step in training.steps(9):
            training.do(step)
            if training.state.step == end:
                break


def failed_in_its_body(training: Training) -> None:
    for step in training.steps(9):
        training.do(step)
        if training.state.step == 4:
            raise ValueError


@pytest.mark.parametrize(
    "run", [to_its_end, left, left_and_flushed, left_twice, failed_in_its_body]
)
def test_step_is_kept_when_its_body_is_done(
    training: Training, run: Callable[[Training], None]
) -> None:
    try:
        run(training)
    except ValueError as error:
        sys.last_value = error  # as Python does before exit handlers run
    assert training.kept() == 3
    if run is not failed_in_its_body:
        training.state.close()
        again = Training(training.folder)
        assert (again.state.step, again.state.seen) == (3, 3)
        again.state.close()


def test_a_step_is_counted_once_the_optimizer_has_taken_it(training: Training) -> None:
    for step in training.steps(3):
        assert training.state.step == step.number - 1
        training.do(step)
        assert training.state.step == step.number
