"""`elastic.steps` computes what a plain loop over whole batches does, and forgets nothing."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.state.values.registered import Registered
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from tests.torch_features import needs_fsdp2
from tests.worker_image.scripts import small_texts
from tests.worker_image.scripts.small_texts import IGNORED, new_model
from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch

SAMPLES, BATCH, EPOCHS = 17, 7, 2


def texts() -> TensorDataset:
    """Sequences of which each has another number of tokens that count; one has none."""
    inputs, targets, _ = small_texts.texts(SAMPLES).tensors
    targets[4] = IGNORED
    return TensorDataset(inputs, targets)


def loss_of(
    model: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor, *, by_token: bool
) -> Tensor:
    if by_token:
        return cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    return model(inputs).square().mean()


def rules_of(model: nn.Module) -> tuple[SGD, StepLR, StepLR]:
    optimizer = SGD(model.parameters(), lr=0.5, momentum=0.9)
    return optimizer, StepLR(optimizer, 2, 0.9), StepLR(optimizer, 1, 0.5)


def plain_loop(*, by_token: bool) -> list[Tensor]:
    """What is to come out: whole batches in one process, with the library's order."""
    model, data = new_model(), texts()
    optimizer, scheduler, epoch_scheduler = rules_of(model)
    sampler = elastic.ElasticSampler(data, BATCH, seed=2)
    for _ in sampler.epochs(EPOCHS):
        for inputs, targets in DataLoader(data, batch_sampler=sampler):
            with sampler.part() as part:
                assert part.weight == 1
                loss_of(model, inputs, targets, by_token=by_token).backward()
            clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            sampler.advance()
        epoch_scheduler.step()
    return [parameter.detach() for parameter in model.parameters()]


def with_the_library(
    *, by_token: bool, micro_batch_size: int | None, sharded: bool, scaled: bool
) -> list[Tensor]:
    """The same with `elastic.steps`, in a group or alone; left and gone on with in the midst."""
    model, data = new_model(), texts()
    in_group: Any = model
    if sharded:
        from torch.distributed.fsdp import fully_shard

        in_group = fully_shard(model)
    elif dist.is_initialized():
        in_group = DistributedDataParallel(model)
    optimizer, scheduler, epoch_scheduler = rules_of(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12) if scaled else None  # type: ignore[attr-defined]
    sampler = elastic.ElasticSampler(data, BATCH, micro_batch_size=micro_batch_size, seed=2)
    registered = {
        "model": model,
        "optimizer": optimizer,
        "one": scheduler,
        "other": epoch_scheduler,
        "sampler": sampler,
    }
    state: Any = elastic.State(None, **registered, **({"scaler": scaler} if scaler else {}))
    if sharded:
        state = Committed(**registered)
    state.restore()
    loader = DataLoader(data, batch_sampler=sampler)

    ends: list[tuple[int, int]] = []
    leave_after = 2
    for epoch in elastic.epochs(state, EPOCHS):  # noqa: B007
        for step in elastic.steps(state, loader, in_group):
            optimizer.zero_grad()
            for inputs, targets in step.parts:
                count = (targets != IGNORED).sum() if by_token else None
                loss = loss_of(in_group, inputs, targets, by_token=by_token)
                step.backward(loss if scaler is None else scaler.scale(loss), count=count)
            if scaler is None:
                clip_grad_norm_(in_group.parameters(), 0.1)
                optimizer.step()
            else:
                scaler.unscale_(optimizer)
                clip_grad_norm_(in_group.parameters(), 0.1)
                scaler.step(optimizer)
                scaler.update()
            scheduler.step()
            assert step.number == state.step
            ends += [(step.epoch, state.step)] if step.ends_epoch else []
            if step.number == leave_after:
                break
        if step.ends_epoch:
            epoch_scheduler.step()
    assert (ends, epoch, state.step) == ([(0, 3), (1, 6)], 1, 6)
    assert list(elastic.epochs(state, EPOCHS)) == []
    return [whole(parameter.detach()) for parameter in model.parameters()]


class Committed(Registered):
    """In the place of a ShardedState, which writes to a disk."""

    def __init__(self, **registered: Any) -> None:
        super().__init__(registered)
        self._step = 0

    @property
    def step(self) -> int:
        return self._step

    def restore(self) -> None: ...
    def _end_step(self, *, loss: Any) -> None:
        assert loss is None or loss.requires_grad is False
        self._step += 1
        self._advance()

    def _complete_step(self) -> None: ...


def whole(parameter: Tensor) -> Tensor:
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


Ways = dict[tuple[bool, int | None, bool], list[Tensor]]


def all_ways() -> Ways:
    return {
        way: with_the_library(
            by_token=way[0], micro_batch_size=way[1], sharded=False, scaled=way[2]
        )
        for way in itertools.product((False, True), (None, 2), (False, True))
    }


def all_sharded_ways() -> Ways:
    return {
        way: with_the_library(by_token=way[0], micro_batch_size=way[1], sharded=True, scaled=False)
        for way in itertools.product((False, True), (None, 2), (False,))
    }


def check(ways: Ways, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    for way, parameters in ways.items():
        expected = plain_loop(by_token=way[0])
        torch.testing.assert_close(
            parameters, expected, rtol=rtol, atol=atol, msg=lambda text, way=way: f"{way}: {text}"
        )


def test_alone_it_is_the_plain_loop() -> None:
    check(all_ways())


@pytest.mark.process
@pytest.mark.parametrize("world_size", [pytest.param(2, marks=pytest.mark.long), 5])
def test_in_a_group_of_any_size_it_is_the_plain_loop(world_size: int) -> None:
    for ways in run_group(world_size, all_ways):
        check(ways)


@needs_fsdp2
@pytest.mark.process
@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_sharded_model_learns_the_same(world_size: int) -> None:
    for ways in run_group(world_size, all_sharded_ways):
        # FSDP2 of torch 2.8 divides gradients by a factor of single precision.
        check(ways, rtol=1e-4, atol=1e-5)


def train_with_batch_norm() -> int:
    data = TensorDataset(torch.randn(SAMPLES, 5))
    model = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    sampler = elastic.ElasticSampler(data, BATCH)
    optimizer = SGD(model.parameters(), lr=0.1)
    state = elastic.State(None, model=model, optimizer=optimizer, sampler=sampler)
    state.restore()
    ddp = DistributedDataParallel(model)
    for step in elastic.steps(state, DataLoader(data, batch_sampler=sampler), ddp, epochs=2):
        optimizer.zero_grad()
        for batch in step.parts:
            step.backward(ddp(*batch).square().mean())
        optimizer.step()
    return state.step


@pytest.mark.process
def test_a_batch_norm_gets_through_the_short_batch_at_an_epochs_end() -> None:
    assert run_group(3, train_with_batch_norm) == [6] * 3


def train_compiled() -> list[list[Tensor]]:
    """Plain, or compiled around or inside the wrapper; each step syncs in its last part only."""
    outcomes = []
    for wrapped in (
        DistributedDataParallel,
        lambda model: torch.compile(DistributedDataParallel(model), backend="eager"),
        lambda model: DistributedDataParallel(torch.compile(model, backend="eager")),
    ):
        model, data = new_model(), texts()
        sampler = elastic.ElasticSampler(data, BATCH, micro_batch_size=2)
        optimizer = SGD(model.parameters(), lr=0.1)
        state = elastic.State(None, model=model, optimizer=optimizer, sampler=sampler)
        state.restore()
        in_group = wrapped(model)
        for step in elastic.steps(
            state, DataLoader(data, batch_sampler=sampler), in_group, epochs=1
        ):
            optimizer.zero_grad()
            for batch in step.parts:
                step.backward(loss_of(in_group, *batch, by_token=False))
            optimizer.step()
        outcomes.append([parameter.detach() for parameter in model.parameters()])
    return outcomes


@pytest.mark.process
def test_a_model_may_be_compiled_inside_or_outside_of_its_wrapper() -> None:
    for plain, outside, inside in run_group(2, train_compiled):
        torch.testing.assert_close(outside, plain)
        torch.testing.assert_close(inside, plain)


def draw_in_turns(folder: Path, upto: int, *, seed_random: bool) -> list[float]:
    """What the body draws at the head of each turn, up to a step.

    The data are of four steps an epoch.
    """
    torch.manual_seed(5)  # as each start of a script
    data, model = TensorDataset(torch.ones(16, 1)), nn.Sequential(nn.Linear(1, 1), nn.Dropout())
    sampler = elastic.ElasticSampler(data, 4, seed_random=seed_random)
    loader, optimizer = DataLoader(data, batch_sampler=sampler), SGD(model.parameters(), lr=0.1)
    state = elastic.State(
        folder, elastic.State.Options(every=1), model=model, optimizer=optimizer, sampler=sampler
    )
    state.restore()
    drawn = []
    for step in elastic.steps(state, loader, model, max_steps=upto):
        drawn.append(torch.rand(1).item())
        optimizer.zero_grad()
        for (inputs,) in step.parts:
            step.backward(model(inputs).mean())
        optimizer.step()
    state.close()
    return drawn


@pytest.mark.parametrize("seed_random", [False, True])
def test_random_numbers_of_the_body_do_not_depend_on_restarts(
    seed_random: bool, tmp_path: Path
) -> None:
    undisturbed = draw_in_turns(tmp_path / "undisturbed", 7, seed_random=seed_random)
    again = [
        draw_in_turns(tmp_path / "restarted", upto, seed_random=seed_random) for upto in (2, 6, 7)
    ]
    assert [number for each in again for number in each] == undisturbed
