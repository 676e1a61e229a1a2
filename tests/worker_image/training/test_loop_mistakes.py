"""What is forgotten or does not fit in a loop with `elastic.steps` is an error with words."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD
from torch.optim.lr_scheduler import ChainedScheduler, ReduceLROnPlateau, SequentialLR, StepLR
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


Body = Callable[[Training], object]
CLEARING: list[tuple[str, Body]] = [
    ("zero_grad", lambda training: training.optimizer.zero_grad()),
    ("zero_grad in place", lambda training: training.optimizer.zero_grad(set_to_none=False)),
    ("zero_grad of the model", lambda training: training.model.zero_grad()),
    ("clip_grad_norm_", lambda training: clip_grad_norm_(training.model.parameters(), 0.01)),
]
EACH_CLEARING = pytest.mark.parametrize("clear", [each for _, each in CLEARING], ids=[name for name, _ in CLEARING])


@EACH_CLEARING
@pytest.mark.parametrize("count", [None, 2])
def test_gradients_that_the_body_clears_within_a_step(clear: Body, count: int | None) -> None:
    training = Training(micro_batch_size=2)
    steps = training.steps()
    step = next(steps)
    clear(training)  # of no gradients yet
    step.backward(training.loss(step), count=count)
    step = next(steps)
    clear(training)
    with pytest.raises(RuntimeError, match=r"earlier micro-batches have left were cleared or changed.*before_step to clip"):
        step.backward(training.loss(step), count=count)


@EACH_CLEARING
def test_gradients_that_a_loop_with_part_clears_within_a_step(clear: Body) -> None:
    training = Training(micro_batch_size=2)
    with pytest.raises(RuntimeError, match=r"below `if part\.last`"):
        for batch in training.loader:
            clear(training)
            with training.sampler.part(training.model) as part:
                (part.weight * training.model(*batch).mean()).backward()


@pytest.mark.parametrize("micro_batch_size", [None, 2])
def test_gradients_may_be_cleared_between_steps(micro_batch_size: int | None) -> None:
    training = Training(micro_batch_size=micro_batch_size)
    before_a_step = True
    for step in training.steps():
        if before_a_step:
            training.optimizer.zero_grad()
        step.backward(training.loss(step))
        before_a_step = step.last
    assert training.state.step == 3


@pytest.mark.parametrize("after_backward", [False, True])
def test_a_step_of_the_optimizer_in_the_body(after_backward: bool) -> None:
    training = Training()
    for step in training.steps(max_steps=1):
        if after_backward:
            step.backward(training.loss(step))
        with pytest.raises(RuntimeError, match=r"leave optimizer.step\(\) out of the loop's body"):
            training.optimizer.step()
        if not after_backward:
            step.backward(training.loss(step))
    training.optimizer.step()  # after the loop it is the script's again


SCHEDULERS: list[tuple[str, Callable[[SGD], Any]]] = [
    ("StepLR", lambda optimizer: StepLR(optimizer, 1)),
    ("ChainedScheduler", lambda optimizer: ChainedScheduler([StepLR(optimizer, 1), StepLR(optimizer, 2)])),
    ("SequentialLR", lambda optimizer: SequentialLR(optimizer, [StepLR(optimizer, 1), StepLR(optimizer, 2)], [2])),
]


@pytest.mark.parametrize("new", [each for _, each in SCHEDULERS], ids=[name for name, _ in SCHEDULERS])
@pytest.mark.parametrize("argument", ["scheduler", "epoch_scheduler"])
@pytest.mark.parametrize("after_backward", [False, True])
def test_a_step_of_a_scheduler_in_the_body(new: Callable[[SGD], Any], argument: str, after_backward: bool) -> None:
    training = Training()
    scheduler = new(training.optimizer)
    training.state = Told(model=training.model, optimizer=training.optimizer, sampler=training.sampler, scheduler=scheduler)
    training.state.restore()
    with pytest.raises(RuntimeError, match=r"leave scheduler.step\(\) out of the body"):
        for step in training.steps(**{argument: scheduler}):
            if after_backward:
                step.backward(training.loss(step))
            scheduler.step()
            if not after_backward:
                step.backward(training.loss(step))
    assert training.state.step == after_backward


def test_a_scheduler_that_the_loop_was_not_given_is_the_scripts() -> None:
    training = Training()
    plateau = ReduceLROnPlateau(training.optimizer)
    for step in training.steps():
        step.backward(training.loss(step))
        plateau.step(1.0)
    assert plateau.last_epoch == training.state.step == 3


@pytest.mark.parametrize(("micro_batch_size", "said"), [(None, 0), (2, 1)])
def test_a_body_that_runs_several_times_a_step_is_said_once(
    micro_batch_size: int | None, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(micro_batch_size=micro_batch_size)
    with caplog.at_level("INFO"):
        for step in training.steps():
            step.backward(training.loss(step))
    assert caplog.text.count("each step has 2 micro-batches in this group") == said


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
