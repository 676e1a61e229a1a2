"""What follows an epoch's last step belongs to it: a group that is lost in it does it again."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
from elastic_pytorch.memory.state_names import names
from elastic_pytorch.pod.agent_link import pod_client
from elastic_pytorch.state.last_commits import end_training, last_commits
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from tests.worker_image.training.test_step_ends import script_goes_on  # noqa: F401 - a fixture

pytestmark = pytest.mark.torch

EPOCHS, STEPS = 3, 4  # an epoch's
DATA = TensorDataset(torch.arange(24.0).reshape(12, 2))


class Lost(Exception): ...


class Training:
    """What a loop trains, and an epoch's evaluation, in which its process may be lost."""

    def __init__(self, folder: Path, *, streamed: bool = False, lost_in: int = -1) -> None:
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)
        self.scheduler = StepLR(self.optimizer, 1, 0.5)
        self.sampler: Any
        self.loader: Iterable[Any]
        if streamed:
            self.sampler = elastic.ElasticStream([0], lambda _: iter(DATA), batch_size=3, seed=3)
            self.loader = self.sampler.loader()
        else:
            self.sampler = elastic.ElasticSampler(DATA, batch_size=3, seed=3)
            self.loader = DataLoader(DATA, batch_sampler=self.sampler)
        self.lost_in = lost_in
        kept = {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "sampler": self.sampler,
        }
        self.state: Any = elastic.State(
            folder, elastic.State.Options(every=1, flush_seconds=0.0), evaluated=[], **kept
        )
        self.state.restore()

    def forget(self) -> None:
        last_commits.pop(self.state._name)
        self.state._leave()
        pod_client().drop(self.state._name)
        names.free(self.state._identity)
        self.state._leave_unfinished()

    def loss(self, batch: Any) -> torch.Tensor:
        return self.model(*batch).square().mean() * 1e-3

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.state.commit()

    def end_epoch(self, epoch: int) -> None:
        self.scheduler.step()
        if epoch == self.lost_in:
            raise Lost
        self.state.evaluated = [*self.state.evaluated, epoch]


def take_steps(training: Training, **end: int) -> None:
    for step in elastic.steps(training.state, training.loader, training.model, **end):
        training.optimizer.zero_grad()
        for batch in step.parts:
            step.backward(training.loss(batch))
        training.optimizer.step()


def by_epochs(training: Training) -> None:
    for epoch in elastic.epochs(training.state, EPOCHS):
        take_steps(training)
        training.end_epoch(epoch)


def by_steps(training: Training) -> None:
    for epoch in range(training.sampler.epoch, EPOCHS):
        take_steps(training, epochs=epoch + 1)
        training.end_epoch(epoch)


def by_number_of_steps(training: Training) -> None:
    for epoch in range(training.state.step // STEPS, EPOCHS):
        take_steps(training, max_steps=(epoch + 1) * STEPS)
        training.end_epoch(epoch)


def train_by_parts(training: Training) -> None:
    for batch in training.loader:
        with training.sampler.part(training.model) as part:
            (part.weight * training.loss(batch)).backward()
        training.step()


def by_parts(training: Training) -> None:
    for epoch in training.sampler.epochs(EPOCHS):
        train_by_parts(training)
        training.end_epoch(epoch)


def by_parts_in_a_range(training: Training) -> None:
    for epoch in range(training.sampler.epoch, EPOCHS):
        train_by_parts(training)
        training.end_epoch(epoch)


LOOPS = [
    *[
        (loop, False)
        for loop in (by_epochs, by_steps, by_number_of_steps, by_parts, by_parts_in_a_range)
    ],
    *[(loop, True) for loop in (by_epochs, by_steps, by_parts)],
]


@pytest.mark.parametrize("lost_in", range(EPOCHS))
@pytest.mark.parametrize(
    ("loop", "streamed"),
    LOOPS,
    ids=[f"{loop.__name__}{'_of_a_stream' if streamed else ''}" for loop, streamed in LOOPS],
)
def test_an_evaluation_in_which_the_process_is_lost_is_done_again(
    loop: Callable[[Training], None],
    streamed: bool,
    lost_in: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = Training(tmp_path / "run", streamed=streamed, lost_in=lost_in)
    with pytest.raises(Lost) as lost:
        loop(first)
    # As Python does before exit handlers run.
    monkeypatch.setattr(sys, "last_value", lost.value, raising=False)
    end_training()
    monkeypatch.delattr(sys, "last_value")
    first.forget()
    second = Training(tmp_path / "run", streamed=streamed)
    assert second.state.step == (lost_in + 1) * STEPS - 1, (
        "the epoch's last step is not done before what follows it"
    )
    loop(second)
    assert second.state.flush()
    second.state.close()
    third = Training(tmp_path / "run", streamed=streamed)
    assert (third.state.step, third.state.evaluated) == (EPOCHS * STEPS, list(range(EPOCHS)))
    assert third.optimizer.param_groups[0]["lr"] == 0.5**EPOCHS
    third.state.close()


def test_the_last_step_of_a_training_is_kept_when_the_next_training_begins(tmp_path: Path) -> None:
    first = Training(tmp_path / "first")
    by_steps(first)
    assert first.state._version.step == first.state.step - 1
    second = Training(tmp_path / "second")
    assert first.state._version.step == first.state.step
    for training in (first, second):
        training.state.close()
