"""Which generators are seeded and kept.

Generators of the CPU stand for those of devices: they are of the same class.
"""

import random
from collections.abc import Iterator
from typing import Any

import numpy.random
import pytest
import torch
from elastic_pytorch.state.values import rng_state

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = rng_state.capture(0, 1)
    yield
    rng_state.put_back(before, 0, 1, 0)


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[torch.Generator]:
    made = [torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)]
    monkeypatch.setattr(rng_state, "device_generators", lambda: made)
    return made


def draw(devices: list[torch.Generator]) -> list[Any]:
    drawn = [torch.rand(3).tolist(), random.random(), numpy.random.rand(3).tolist()]
    return drawn + [torch.rand(3, generator=device).tolist() for device in devices]


def test_seeding_reaches_every_device(devices: list[torch.Generator]) -> None:
    rng_state.seed_all(5)
    first = draw(devices)
    assert first[3] == first[4]
    rng_state.seed_all(5)
    assert draw(devices) == first
    rng_state.seed_all(6)
    assert all(one != other for one, other in zip(draw(devices), first, strict=True))


def test_the_same_rank_goes_on_with_the_numbers_of_every_device(
    devices: list[torch.Generator],
) -> None:
    state = rng_state.capture(1, 2)
    expected = draw(devices)
    rng_state.put_back(state, 1, 2, 7)
    assert draw(devices) == expected


def test_other_ranks_sizes_and_steps_draw_numbers_of_their_own_on_every_device(
    devices: list[torch.Generator],
) -> None:
    state = rng_state.capture(0, 2)
    seen = [draw(devices)]
    # The same state in another step: a training that draws on its devices alone never moves the
    # CPU's generator.
    for rank, world_size, step in ((1, 2, 7), (0, 3, 7), (1, 3, 7), (1, 2, 8), (0, 3, 8)):
        rng_state.put_back(state, rank, world_size, step)
        seen.append(draw(devices))
    for place in range(5):
        assert len({repr(drawn[place]) for drawn in seen}) == len(seen)


def test_a_state_of_more_devices_or_fewer_is_put_back_as_far_as_it_goes(
    devices: list[torch.Generator],
) -> None:
    state = rng_state.capture(0, 1)
    expected = draw(devices)
    other = devices.pop()
    rng_state.put_back(state, 0, 1, 7)
    assert draw(devices)[3] == expected[3]
    devices.append(other)
    del state["devices"]
    rng_state.put_back(state, 0, 1, 7)
    assert draw(devices)[:3] == expected[:3]


def test_without_a_device_in_use_there_is_none_to_seed() -> None:
    if not torch.cuda.is_available():
        assert rng_state.device_generators() == ()
