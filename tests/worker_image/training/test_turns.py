"""A turn of `elastic.steps` is one step: none or two is an error, one left out is counted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.training.step import Step
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD

from tests.worker_image.torch_group import run_group
from tests.worker_image.training.small_training import Told, Training

pytestmark = pytest.mark.torch


Turn = Callable[[Training, Step], object]


def nothing(training: Training, step: Step) -> None:
    del training, step


def no_part(training: Training, step: Step) -> None:
    del step
    training.optimizer.step()


def one_part_only(training: Training, step: Step) -> None:
    step.backward(training.loss(next(step.parts)))
    training.optimizer.step()


def step_in_a_part(training: Training, step: Step) -> None:
    for batch in step.parts:
        step.backward(training.loss(batch))
        training.optimizer.step()


def no_step(training: Training, step: Step) -> None:
    training.backward(step)


def two_steps(training: Training, step: Step) -> None:
    training.do(step)
    training.optimizer.step()


def step_that_is_skipped(training: Training, step: Step) -> None:
    training.backward(step)
    assert step.skip(True)
    training.optimizer.step()


def skip_before_the_parts(training: Training, step: Step) -> None:
    del training
    step.skip(True)


def skip_after_the_step(training: Training, step: Step) -> None:
    training.do(step)
    step.skip(True)


def no_backward(training: Training, step: Step) -> None:
    for batch in step.parts:
        training.loss(batch)


def plain_backward(training: Training, step: Step) -> None:
    for batch in step.parts:
        training.loss(batch).backward()


def plain_backward_before(training: Training, step: Step) -> None:
    for batch in step.parts:
        training.loss(batch).backward()
        step.backward(training.loss(batch))


def plain_backward_after(training: Training, step: Step) -> None:
    for batch in step.parts:
        step.backward(training.loss(batch))
        training.loss(batch).backward()


def two_backwards(training: Training, step: Step) -> None:
    for batch in step.parts:
        step.backward(training.loss(batch))
        step.backward(training.loss(batch))


def backward_below_the_parts(training: Training, step: Step) -> None:
    training.backward(step)
    step.backward(training.model.weight.sum())


def parts_twice(training: Training, step: Step) -> None:
    training.backward(step)
    training.backward(step)


MISTAKES: list[tuple[Turn, str]] = [
    *[
        (each, r"parts of this step are not gone through: write `for")
        for each in (nothing, no_part, one_part_only, step_in_a_part)
    ],
    (
        no_step,
        r"has taken no step in this turn.*call optimizer.step\(\) "
        r"after.*scaler.*register.*step\.skip",
    ),
    (two_steps, r"has taken a step in this turn already"),
    (step_that_is_skipped, r"left out, as step.skip has said"),
    (skip_before_the_parts, r"parts of this step are not gone through"),
    (skip_after_the_step, r"call step.skip before optimizer.step\(\)"),
    *[
        (each, r"step.backward\(loss\) was not called for this part: write it instead of loss")
        for each in (no_backward, plain_backward)
    ],
    *[
        (each, r"only step.backward adds to the gradients")
        for each in (plain_backward_before, plain_backward_after)
    ],
    *[(each, r"add the losses of a part up") for each in (two_backwards, backward_below_the_parts)],
    (parts_twice, r"gone through once"),
]


@pytest.mark.parametrize(("turn", "error"), MISTAKES, ids=[turn.__name__ for turn, _ in MISTAKES])
def test_a_turn_that_is_not_one_step_is_an_error_at_once(turn: Turn, error: str) -> None:
    training = Training()
    steps = training.steps()
    with pytest.raises(RuntimeError, match=error):
        turn(training, next(steps))
        next(steps)
    assert training.state.step <= 1
    steps.close()
    training.optimizer.step()  # after the loop it is the script's again


def test_gradients_of_the_step_before_that_are_still_there() -> None:
    training = Training()
    with pytest.raises(
        RuntimeError,
        match=r"gradients of the step before are still there.*zero_grad\(\) before the loop",
    ):
        for step in training.steps():
            for batch in step.parts:
                step.backward(training.loss(batch))
            training.optimizer.step()
    assert training.state.step == 1


def test_one_of_two_optimizers_that_takes_no_step() -> None:
    training = Training()
    other = SGD([training.model.bias], lr=0.0)
    of_another_model = SGD(nn.Linear(1, 1).parameters(), lr=0.0)
    training.optimizer = SGD([training.model.weight], lr=0.0)
    objects: Any = {"model": training.model, "sampler": training.sampler, "third": of_another_model}
    training.state = Told(one=training.optimizer, other=other, **objects)
    training.state.restore()
    steps = training.steps()
    for _ in range(2):
        training.model.zero_grad()
        step = next(steps)
        training.do(step)
        assert training.state.step == step.number - 1
        other.step()
        assert training.state.step == step.number
    training.model.zero_grad()
    training.do(next(steps))
    with pytest.raises(RuntimeError, match="an optimizer of the model has taken no step"):
        next(steps)


Body = Callable[[Training], object]
CLEARING: list[tuple[str, Body]] = [
    ("zero_grad", lambda training: training.optimizer.zero_grad()),
    ("zero_grad in place", lambda training: training.optimizer.zero_grad(set_to_none=False)),
    ("zero_grad of the model", lambda training: training.model.zero_grad()),
    ("clip_grad_norm_", lambda training: clip_grad_norm_(training.model.parameters(), 0.01)),
]
EACH_CLEARING = pytest.mark.parametrize(
    "clear", [each for _, each in CLEARING], ids=[name for name, _ in CLEARING]
)


@EACH_CLEARING
@pytest.mark.parametrize("count", [None, 2])
def test_gradients_that_the_body_clears_within_a_step(clear: Body, count: int | None) -> None:
    training = Training(micro_batch_size=2)
    step = next(training.steps())
    parts = step.parts
    batch = next(parts)
    clear(training)  # of no gradients yet
    step.backward(training.loss(batch), count=count)
    batch = next(parts)
    clear(training)
    with pytest.raises(
        RuntimeError,
        match=r"gradients of this step were cleared or changed.*before the loop over step.parts, "
        r"and clip",
    ):
        step.backward(training.loss(batch), count=count)


@pytest.mark.parametrize("after_backward", [False, True])
@EACH_CLEARING
def test_gradients_that_the_only_part_clears(clear: Body, after_backward: bool) -> None:
    training = Training()
    training.optimizer.zero_grad()
    with pytest.raises(
        RuntimeError,
        match=r"gradients of (this step were cleared or changed|the step before are still there)",
    ):
        for step in training.steps():
            for batch in step.parts:
                if not after_backward:
                    clear(training)
                step.backward(training.loss(batch))
                if after_backward:
                    clear(training)
            training.optimizer.step()
    assert training.state.step <= 1


@EACH_CLEARING
def test_gradients_that_a_loop_with_part_clears_within_a_step(clear: Body) -> None:
    training = Training(micro_batch_size=2)
    with pytest.raises(RuntimeError, match=r"below `if part\.last`"):
        for batch in training.loader:
            clear(training)
            with training.sampler.part(training.model) as part:
                (part.weight * training.model(*batch).mean()).backward()


@pytest.mark.parametrize("micro_batch_size", [None, 2])
@EACH_CLEARING
def test_gradients_are_the_scripts_outside_of_the_parts(
    clear: Body, micro_batch_size: int | None
) -> None:
    training = Training(micro_batch_size=micro_batch_size)
    for step in training.steps():
        clear(training)
        for batch in step.parts:
            step.backward(training.loss(batch))
        clip_grad_norm_(training.model.parameters(), 0.01)
        training.optimizer.step()
        training.optimizer.zero_grad(set_to_none=False)
    assert training.state.step == 3


@pytest.mark.parametrize("micro_batch_size", [None, 2])
def test_a_step_that_the_scaler_leaves_out_is_a_step(micro_batch_size: int | None) -> None:
    training = Training(micro_batch_size=micro_batch_size)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)  # type: ignore[attr-defined]
    objects: Any = {
        "model": training.model,
        "optimizer": training.optimizer,
        "sampler": training.sampler,
    }
    training.state = Told(scaler=scaler, **objects)
    training.state.restore()
    scales = []
    for step in training.steps():
        training.optimizer.zero_grad()
        for batch in step.parts:
            step.backward(scaler.scale(training.loss(batch)))
        if step.number == 2:
            training.model.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(training.optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    assert (training.state.step, scales) == (3, [8.0, 4.0, 4.0])
    assert training.state.losses() == pytest.approx([1.5, 5.5, 9.5])


def test_a_step_that_is_skipped_is_counted() -> None:
    training = Training()
    for step in training.steps():
        training.backward(step)
        if step.skip(torch.tensor(step.number == 2)):
            continue
        training.optimizer.step()
    assert training.state.losses() == pytest.approx([1.5, 5.5, 9.5])


def steps_without_a_skip() -> list[tuple[int, bool]]:
    training = Training()
    ddp = DistributedDataParallel(training.model)
    skipped = []
    for step in training.steps(model=ddp):
        training.optimizer.zero_grad()
        for batch in step.parts:
            step.backward(ddp(*batch).mean())
        if step.skip(step.number == 2 and dist.get_rank() == 1):
            skipped.append((step.number, True))
            continue
        training.optimizer.step()
        skipped.append((step.number, False))
    return skipped


@pytest.mark.process
def test_all_ranks_skip_a_step_that_one_of_them_skips() -> None:
    assert run_group(2, steps_without_a_skip) == [[(1, False), (2, True), (3, False)]] * 2
