from collections.abc import Callable

import pytest
import torch
from elastic_pytorch.training.learning_rate import factor_of, scale_learning_rate
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim import lr_scheduler as schedulers
from torch.optim.lr_scheduler import LRScheduler

from tests.worker_image.training.test_sampler import group

pytestmark = pytest.mark.torch

STEPS = 24

SCHEDULES: dict[str, Callable[[Optimizer], LRScheduler]] = {
    "LambdaLR": lambda optimizer: schedulers.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "StepLR": lambda optimizer: schedulers.StepLR(optimizer, 5),
    "CosineAnnealingLR": lambda optimizer: schedulers.CosineAnnealingLR(optimizer, 30),
    "CosineAnnealingWarmRestarts": lambda optimizer: schedulers.CosineAnnealingWarmRestarts(
        optimizer, 7
    ),
    "OneCycleLR": lambda optimizer: schedulers.OneCycleLR(
        optimizer, max_lr=[0.1, 0.2], total_steps=STEPS + 2
    ),
    "SequentialLR": lambda optimizer: schedulers.SequentialLR(
        optimizer,
        [schedulers.LinearLR(optimizer, total_iters=6), schedulers.ExponentialLR(optimizer, 0.9)],
        [6],
    ),
    "ChainedScheduler": lambda optimizer: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(optimizer, total_iters=4), schedulers.ExponentialLR(optimizer, 0.9)]
    ),
}


def make(schedule: str) -> tuple[Optimizer, LRScheduler]:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = SGD(
        [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[1].parameters(), "lr": 0.2}]
    )
    return optimizer, SCHEDULES[schedule](optimizer)


def rates(optimizer: Optimizer) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


def scale(optimizer: Optimizer, scheduler: LRScheduler | None, world_size: int) -> float:
    with group(0, world_size):
        return scale_learning_rate(optimizer, scheduler, rule="linear", base_world_size=2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rates_are_the_schedules_times_the_factor_over_any_number_of_groups(schedule: str) -> None:
    optimizer, scheduler = make(schedule)
    plain = []
    for _ in range(STEPS):
        plain.append(rates(optimizer))
        optimizer.step()
        scheduler.step()

    saved = None
    step = 0
    for world_size, steps in ((2, 3), (4, 5), (4, 0), (1, 7), (3, 9)):
        optimizer, scheduler = make(schedule)
        if saved:
            optimizer.load_state_dict(saved[0])
            scheduler.load_state_dict(saved[1])
        for _ in range(2):
            assert scale(optimizer, scheduler, world_size) == world_size / 2
        assert scheduler.get_last_lr() == rates(optimizer)
        for _ in range(steps):
            assert rates(optimizer) == pytest.approx(
                [rate * world_size / 2 for rate in plain[step]], rel=1e-9
            )
            optimizer.step()
            scheduler.step()
            step += 1
        saved = optimizer.state_dict(), scheduler.state_dict()
    assert step == STEPS


def test_in_the_living_process_the_factor_is_replaced() -> None:
    optimizer = AdamW(nn.Linear(2, 2).parameters(), lr=torch.tensor(0.1))
    rate = optimizer.param_groups[0]["lr"]
    for world_size, expected in ((4, 0.2), (1, 0.05), (2, 0.1)):
        scale(optimizer, None, world_size)
        assert rate.item() == pytest.approx(expected), (
            "the tensor stays: a compiled step holds on to it"
        )


def test_rules() -> None:
    assert factor_of("linear", 6, 2) == 3
    assert factor_of("sqrt", 8, 2) == 2
    with pytest.raises(ValueError, match="not cubic"):
        factor_of("cubic", 8, 2)
    with pytest.raises(ValueError, match="at least one rank"):
        factor_of("sqrt", 8, 0)


def test_a_scheduler_with_rates_of_its_own_is_refused() -> None:
    optimizer = SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    cyclic = schedulers.CyclicLR(optimizer, base_lr=0.1, max_lr=0.2)
    with pytest.raises(TypeError, match="CyclicLR"):
        scale_learning_rate(optimizer, cyclic, rule="linear", base_world_size=1)
