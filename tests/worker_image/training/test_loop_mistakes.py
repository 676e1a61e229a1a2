"""What is forgotten or does not fit in a loop with `elastic.steps` is an error with words."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset

pytestmark = pytest.mark.torch

DATA = TensorDataset(torch.arange(12.0).reshape(12, 1))


@pytest.fixture(autouse=True)
def without_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOCAL_SOCKET, raising=False)


@contextmanager
def group(world_size: int) -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


class Training:
    """A whole one, of which each test leaves something out."""

    def __init__(self, *, micro_batch_size: int | None = None) -> None:
        self.sampler = elastic.ElasticSampler(DATA, 4, micro_batch_size=micro_batch_size, shuffle=False)
        self.loader: Any = DataLoader(DATA, batch_sampler=self.sampler)
        self.model = nn.Linear(1, 1)
        nn.init.ones_(self.model.weight)
        nn.init.zeros_(self.model.bias)
        self.optimizer = SGD(self.model.parameters(), lr=0.0)
        self.state = Told(model=self.model, optimizer=self.optimizer, sampler=self.sampler)
        self.state.restore()

    def steps(self, **options: Any) -> Iterator[elastic.Step]:
        given: dict[str, Any] = {"loader": self.loader, "model": self.model, "optimizer": self.optimizer, "epochs": 1}
        return elastic.steps(self.state, **{**given, **options})

    def loss(self, step: elastic.Step) -> Tensor:
        loss: Tensor = self.model(*step.batch).mean()
        return loss


class Told(elastic.State):
    """Keeps the losses that it is told."""

    def __init__(self, **registered: Any) -> None:
        super().__init__(None, **registered)
        self._told: list[float] = []

    def end_step(self, *, loss: Any = None) -> None:
        self._told.append(float(loss))
        super().end_step(loss=loss)

    def losses(self) -> list[float]:
        return self._told


def test_a_backward_that_is_forgotten() -> None:
    training = Training()
    steps = training.steps()
    next(steps)
    with pytest.raises(RuntimeError, match=r"step.backward\(loss\) was not called"):
        next(steps)


def test_a_backward_too_many() -> None:
    training = Training()
    steps = training.steps()
    step = next(steps)
    step.backward(training.loss(step))
    with pytest.raises(RuntimeError, match="add the losses up"):
        step.backward(training.loss(step))


@pytest.mark.parametrize("name", ["scheduler", "epoch_scheduler", "scaler"])
def test_what_is_not_registered(name: str) -> None:
    training = Training()
    given = torch.amp.GradScaler("cpu") if name == "scaler" else StepLR(training.optimizer, 1)  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match=f"not registered with the State: the {name}. "):
        training.steps(**{name: given})


def test_a_model_optimizer_or_sampler_that_is_another_one() -> None:
    training, other = Training(), Training()
    with pytest.raises(RuntimeError, match="the model, the optimizer, the loader's sampler"):
        training.steps(loader=other.loader, model=other.model, optimizer=other.optimizer)


def test_a_compiled_model_is_the_one_that_is_registered() -> None:
    training = Training()
    assert training.state.holds(torch.compile(training.model))
    assert not training.state.holds(torch.compile(nn.Linear(1, 1)))


def test_an_end_that_is_not_told() -> None:
    with pytest.raises(ValueError, match="say when to end"):
        Training().steps(epochs=None)


def test_a_model_whose_gradients_nothing_puts_together() -> None:
    training = Training()
    with group(2), pytest.raises(RuntimeError, match="neither in DistributedDataParallel nor"):
        training.steps()


def test_a_loss_that_is_not_of_the_model_of_the_group() -> None:
    training = Training()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        ddp = DistributedDataParallel(training.model)
        steps = training.steps(model=ddp)
        step = next(steps)
        with pytest.raises(RuntimeError, match="not computed with the model that steps was given"):
            step.backward(training.loss(step))
        step.backward(ddp(*step.batch).mean())
        step = next(steps)
        with pytest.raises(RuntimeError, match="not computed with the model that steps was given"):
            step.backward(training.loss(step))
        del steps
        assert not ddp._forward_pre_hooks
    finally:
        dist.destroy_process_group()


def test_a_count_that_comes_and_goes() -> None:
    for first, second in ((3, None), (None, 3)):
        training = Training(micro_batch_size=2)
        steps = training.steps()
        step = next(steps)
        step.backward(training.loss(step), count=first)
        step = next(steps)
        with pytest.raises(RuntimeError, match="for all micro-batches of a step or for none"):
            step.backward(training.loss(step), count=second)


class Shard:
    """Deals batches out to ranks, and has no batch_size."""

    def __init__(self, batch_sampler: Iterable[list[int]]) -> None:
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[list[int]]:
        yield from list(self.batch_sampler)[::2]


class Wrapped:
    """A loader around a loader."""

    def __init__(self, dataloader: Any) -> None:
        self.dataloader = dataloader

    def __iter__(self) -> Iterator[Any]:
        yield from self.dataloader


def test_a_second_sharding_is_named_before_the_first_step() -> None:
    training = Training()
    again = DataLoader(DATA, batch_sampler=Shard(training.sampler))  # type: ignore[arg-type]
    for loader in (again, Wrapped(again)):
        with pytest.raises(RuntimeError, match=r"test_loop_mistakes.Shard stands between.*Accelerate's prepare"):
            training.steps(loader=loader)
    for step in training.steps(loader=Wrapped(training.loader)):
        step.backward(training.loss(step))
    assert training.state.step == 3


def test_a_loader_that_cannot_do() -> None:
    training = Training()
    by_torch = BatchSampler(SequentialSampler(range(12)), 4, drop_last=False)
    with pytest.raises(TypeError, match="batch_sampler is a BatchSampler"):
        training.steps(loader=DataLoader(DATA, batch_sampler=by_torch))
    with pytest.raises(TypeError, match="not a list"):
        training.steps(loader=[1, 2])


@pytest.mark.skipif("in_order" not in DataLoader.__init__.__annotations__, reason="torch before 2.6 has no such option")
def test_a_loader_that_does_not_keep_the_order() -> None:
    training = Training()
    with pytest.raises(RuntimeError, match="in_order=False"):
        training.steps(loader=DataLoader(DATA, batch_sampler=training.sampler, in_order=False))


class Impatient(DataLoader[Any]):
    """Ends before its time."""

    def __iter__(self) -> Any:
        return iter(list(super().__iter__())[:1])


def test_a_loader_that_ends_too_early() -> None:
    training = Training()
    with pytest.raises(RuntimeError, match="2 batches of epoch 0 are left"):
        for step in training.steps(loader=Impatient(DATA, batch_sampler=training.sampler)):
            step.backward(training.loss(step))


def test_gradients_of_a_step_that_was_left_are_not_taken_along() -> None:
    training = Training(micro_batch_size=2)
    for step in training.steps():
        step.backward(training.loss(step))
        break
    assert training.model.weight.grad is not None
    next(training.steps())
    assert training.model.weight.grad is None


def test_the_loss_that_is_told_is_the_mean_over_the_step() -> None:
    for micro_batch_size, count in ((None, None), (2, None), (3, None), (2, 5), (None, 5)):
        training = Training(micro_batch_size=micro_batch_size)
        for step in training.steps():
            step.backward(training.loss(step), count=count)
        assert training.state.losses() == pytest.approx([1.5, 5.5, 9.5])
    training = Training(micro_batch_size=2)
    for number, step in enumerate(training.steps(max_steps=1)):
        step.backward(training.loss(step), count=1 if number else 3)
    assert training.state.losses() == pytest.approx([(3 * 0.5 + 2.5) / 4])
