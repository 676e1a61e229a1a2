"""What a step says of its parts, and which gradients count as left from the step before."""

import gc
import weakref
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

from tests.worker_image.training.small_training import DATA, Told, Training

pytestmark = pytest.mark.torch


def clear_in_place(training: Training) -> None:
    for parameter in training.model.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()


@pytest.mark.parametrize("micro_batch_size", [None, 2])
def test_gradients_that_are_cleared_in_place_after_the_step_are_cleared(
    micro_batch_size: int | None,
) -> None:
    training = Training(micro_batch_size=micro_batch_size)
    for step in training.steps(epochs=2):
        for batch in step.parts:
            step.backward(training.loss(batch))
        clip_grad_norm_(training.model.parameters(), 0.01)
        training.optimizer.step()
        clear_in_place(training)
    assert training.state.step == 6


@pytest.mark.parametrize("batch_size", [12, 6])
def test_gradients_of_the_epoch_before_that_are_still_there(batch_size: int) -> None:
    training = Training()
    sampler = training.sampler = elastic.ElasticSampler(DATA, batch_size)
    training.loader = DataLoader(DATA, batch_sampler=sampler)
    objects: Any = {"model": training.model, "optimizer": training.optimizer, "sampler": sampler}
    training.state = Told(**objects)
    training.state.restore()
    with pytest.raises(RuntimeError, match="gradients of the step before are still there"):
        for step in training.steps(epochs=2):
            for batch in step.parts:
                step.backward(training.loss(batch))
            training.optimizer.step()
    assert training.state.step == 1


def test_gradients_of_a_skipped_step_that_are_still_there() -> None:
    training = Training()
    with pytest.raises(RuntimeError, match="gradients of the step before are still there"):
        for step in training.steps():
            for batch in step.parts:
                step.backward(training.loss(batch))
            if step.skip(step.number == 2):
                continue
            training.optimizer.step()
            training.optimizer.zero_grad()
    assert training.state.step == 2


@pytest.mark.parametrize("with_steps", [True, False])
def test_gradients_of_a_step_that_is_over_take_no_memory(with_steps: bool) -> None:
    training = Training(micro_batch_size=2)
    gradients: list[weakref.ref[Any]] = []
    for step in training.steps() if with_steps else ():
        training.optimizer.zero_grad()
        for batch in step.parts:
            assert all(gradient() is None for gradient in gradients[: 2 * (step.number - 1)])
            step.backward(training.loss(batch))
            gradients.append(weakref.ref(training.model.weight.grad))
        training.optimizer.step()
    for batch in () if with_steps else training.loader:
        with training.sampler.part(training.model) as part:
            (part.weight * training.loss(batch)).backward()
        gradients.append(weakref.ref(training.model.weight.grad))
        if part.last:
            training.optimizer.step()
            training.optimizer.zero_grad()
            training.state.commit(loss=0.0)
            assert all(gradient() is None for gradient in gradients)
    assert len(gradients) == 6


def test_a_place_that_is_loaded_forgets_the_model_before() -> None:
    training = Training(micro_batch_size=2)
    batch = next(iter(training.loader))
    with training.sampler.part(training.model) as part:
        (part.weight * training.loss(batch)).backward()
    before = weakref.ref(training.model)
    weight = weakref.ref(training.model.weight)
    del training.model, training.state, training.optimizer
    gc.collect()
    training.sampler.load_state_dict(training.sampler.state_dict())
    gc.collect()
    assert before() is weight() is None


def test_what_a_part_is_can_be_asked_until_the_next_one() -> None:
    training = Training(micro_batch_size=3)
    seen = []
    for step in training.steps(max_steps=2):
        training.optimizer.zero_grad()
        for batch in step.parts:
            before = step.samples, step.last
            step.backward(training.loss(batch))
            assert (step.samples, step.last) == before
            seen.append(before)
        training.optimizer.step()
    assert seen == [(3, False), (1, True)] * 2


@pytest.mark.parametrize("micro_batch_size", [None, 2])
def test_a_scaler_leaves_a_step_out_whose_gradients_are_then_cleared_in_place(
    micro_batch_size: int | None,
) -> None:
    training = Training(micro_batch_size=micro_batch_size)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)  # type: ignore[attr-defined]
    objects: Any = {
        "model": training.model,
        "optimizer": training.optimizer,
        "sampler": training.sampler,
    }
    training.state = Told(scaler=scaler, **objects)
    training.state.restore()
    for step in training.steps():
        for batch in step.parts:
            step.backward(scaler.scale(training.loss(batch)))
        if step.number == 2:
            training.model.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(training.optimizer)
        scaler.update()
        clear_in_place(training)
    assert (training.state.step, scaler.get_scale()) == (3, 4.0)
