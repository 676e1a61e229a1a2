"""What is forgotten or does not fit in a loop with `elastic.steps` is an error with words."""

from collections.abc import Iterable, Iterator
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from tests.worker_image.training.small_training import DATA, Told, Training
from tests.worker_image.training.test_sampler import group

pytestmark = pytest.mark.torch


def test_a_scheduler_that_is_not_registered() -> None:
    training = Training()
    scheduler = StepLR(training.optimizer, 1)
    with pytest.raises(
        RuntimeError, match="not registered with the State: the scheduler of the optimizer"
    ):
        training.steps()
    scaler = torch.amp.GradScaler("cpu")
    objects: Any = {
        "model": training.model,
        "optimizer": training.optimizer,
        "sampler": training.sampler,
        "scaler": scaler,
    }
    training.state = Told(**objects)
    with pytest.raises(RuntimeError, match="the scheduler of the optimizer"):
        training.steps()
    training.state = Told(scheduler=scheduler, **objects)
    training.state.restore()
    training.steps()


def test_a_model_optimizer_or_sampler_that_is_another_one() -> None:
    training, other = Training(), Training()
    with pytest.raises(
        RuntimeError, match="the model, the loader's sampler, the optimizer of the model"
    ):
        training.steps(loader=other.loader, model=other.model)


def test_a_compiled_model_is_the_one_that_is_registered() -> None:
    training = Training()
    assert training.state._holds(torch.compile(training.model))
    assert not training.state._holds(torch.compile(nn.Linear(1, 1)))


def test_an_end_that_is_not_told() -> None:
    with pytest.raises(ValueError, match="say once when to end"):
        Training().steps(epochs=None)


def test_an_end_that_is_told_twice() -> None:
    training = Training()
    for _ in elastic.epochs(training.state, 1):
        with pytest.raises(ValueError, match="say once when to end"):
            training.steps()
        break
    for step in training.steps():  # its epochs are over
        training.do(step)


def test_epochs_of_no_sampler_or_of_two() -> None:
    one, other = Training(), Training()
    for number, objects in (
        (0, {"model": one.model}),
        (2, {"one": one.sampler, "other": other.sampler}),
    ):
        with pytest.raises(RuntimeError, match=f"{number} samplers and streams are registered"):
            elastic.epochs(Told(**objects), 3)


def test_an_inner_loop_that_is_begun_again_ends_with_its_epoch() -> None:
    training = Training()
    taken: list[tuple[int, int, int]] = []
    for epoch in elastic.epochs(training.state, 2):
        for part, most in enumerate((1, 9, 9)):
            for done, step in enumerate(training.steps(epochs=None), 1):
                training.do(step)
                taken.append((epoch, part, step.number))
                if done == most:
                    break
    assert taken == [(0, 0, 1), (0, 1, 2), (0, 1, 3), (1, 0, 4), (1, 1, 5), (1, 1, 6)]


def test_a_model_whose_gradients_nothing_puts_together() -> None:
    training = Training()
    with group(0, 2), pytest.raises(RuntimeError, match="neither in DistributedDataParallel nor"):
        training.steps()


def test_a_loss_that_is_not_of_the_model_of_the_group() -> None:
    training = Training()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        ddp = DistributedDataParallel(training.model)
        steps = training.steps(model=ddp)
        step = next(steps)
        for batch in step.parts:
            step.backward(ddp(*batch).mean())
        training.optimizer.step()
        with pytest.raises(RuntimeError, match="not computed with the model that steps was given"):
            training.do(next(steps))
        del steps
        assert not ddp._forward_pre_hooks
    finally:
        dist.destroy_process_group()


def test_a_count_that_comes_and_goes() -> None:
    for first, second in ((3, None), (None, 3)):
        training = Training(micro_batch_size=2)
        step = next(training.steps())
        parts = step.parts
        step.backward(training.loss(next(parts)), count=first)
        with pytest.raises(RuntimeError, match="for all parts of a step or for none"):
            step.backward(training.loss(next(parts)), count=second)


class Shard:
    """Deals batches out to ranks, and has no batch_size."""

    def __init__(self, batch_sampler: Iterable[list[int]]) -> None:
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[list[int]]:
        yield from list(self.batch_sampler)[::2]


class Wrapped:
    def __init__(self, dataloader: Any) -> None:
        self.dataloader = dataloader

    def __iter__(self) -> Iterator[Any]:
        yield from self.dataloader


def test_a_second_sharding_is_named_before_the_first_step() -> None:
    training = Training()
    again = DataLoader(DATA, batch_sampler=Shard(training.sampler))
    for loader in (again, Wrapped(again)):
        with pytest.raises(
            RuntimeError, match=r"test_loop_mistakes.Shard stands between.*Accelerate's prepare"
        ):
            training.steps(loader=loader)
    for step in training.steps(loader=Wrapped(training.loader)):
        training.do(step)
    assert training.state.step == 3


def test_a_loader_that_cannot_do() -> None:
    training = Training()
    by_torch = BatchSampler(SequentialSampler(range(12)), 4, drop_last=False)
    with pytest.raises(TypeError, match="batch_sampler is a BatchSampler"):
        training.steps(loader=DataLoader(DATA, batch_sampler=by_torch))
    with pytest.raises(TypeError, match="not a list"):
        training.steps(loader=[1, 2])


@pytest.mark.skipif(
    "in_order" not in DataLoader.__init__.__annotations__,
    reason="torch before 2.6 has no such option",
)
def test_a_loader_that_does_not_keep_the_order() -> None:
    training = Training()
    with pytest.raises(RuntimeError, match="in_order=False"):
        training.steps(loader=DataLoader(DATA, batch_sampler=training.sampler, in_order=False))


class Impatient(DataLoader[Any]):
    def __iter__(self) -> Any:
        return iter(list(super().__iter__())[:1])


@pytest.mark.parametrize(
    ("micro_batch_size", "left"), [(None, 2), (2, 3)], ids=["between steps", "in a step"]
)
def test_a_loader_that_ends_too_early(micro_batch_size: int | None, left: int) -> None:
    training = Training(micro_batch_size=micro_batch_size)
    with pytest.raises(
        RuntimeError, match=f"the loader has ended, and {left} batches of epoch 0 are left"
    ):
        for step in training.steps(loader=Impatient(DATA, batch_sampler=training.sampler)):
            training.do(step)


def test_a_body_may_look_at_a_batch_of_its_loader() -> None:
    training = Training()
    for step in training.steps(epochs=3):
        training.do(step)
        if step.number % 3 == 1:
            assert len(next(iter(training.loader))[0]) == 4
    assert training.state.losses() == pytest.approx([1.5, 5.5, 9.5] * 3)


def test_gradients_of_a_step_that_was_left_are_not_taken_along() -> None:
    training = Training(micro_batch_size=2)
    for step in training.steps():
        step.backward(training.loss(next(step.parts)))
        break
    assert training.model.weight.grad is not None
    next(training.steps())
    assert training.model.weight.grad is None


def test_the_loss_that_is_told_is_the_mean_over_the_step() -> None:
    for micro_batch_size, count in ((None, None), (2, None), (3, None), (2, 5), (None, 5)):
        training = Training(micro_batch_size=micro_batch_size)
        for step in training.steps():
            training.backward(step, count)
            training.optimizer.step()
        assert training.state.losses() == pytest.approx([1.5, 5.5, 9.5])
    training = Training(micro_batch_size=2)
    for step in training.steps(max_steps=1):
        for number, batch in enumerate(step.parts):
            step.backward(training.loss(batch), count=1 if number else 3)
        training.optimizer.step()
    assert training.state.losses() == pytest.approx([(3 * 0.5 + 2.5) / 4])
