"""The random number generators: seeded for a micro-batch, and their state as part of what is committed.

A generator's state belongs to one rank of one group: where rank and size are the same, it is
restored as it was. Any other rank gets its own state, derived from the committed one, its step and
the rank: then no two ranks draw the same numbers, and none repeats old ones.

The devices are all that CUDA shows to this process: the model may be on any of them, not only on
the current one. XPU and MPS are not handled.
"""

import hashlib
import random
import sys
from collections.abc import Sequence
from typing import Any

import torch


def device_generators() -> Sequence[torch.Generator]:
    """Returns the default generators of the devices that this process sees; none before it uses one."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):  # type: ignore[no-untyped-call]
        return ()
    generators: tuple[torch.Generator, ...] = torch.cuda.default_generators
    return generators


def mixed(*parts: object) -> int:
    """Returns a seed that differs for each combination of numbers."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def seed_all(seed: int, devices: Sequence[torch.Generator] | None = None) -> None:
    """Seeds the generators of torch, on the CPU and on `devices`, of Python, and of numpy if it is in use."""
    for generator in (
        torch.default_generator,
        *(device_generators() if devices is None else devices),
    ):
        generator.manual_seed(seed)
    random.seed(seed)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed(seed & 0xFFFF_FFFF)


def capture(
    rank: int, world_size: int, devices: Sequence[torch.Generator] | None = None
) -> dict[str, Any]:
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "rank": rank,
        "world": world_size,
        "torch": torch.get_rng_state(),
        "devices": [
            generator.get_state()
            for generator in (device_generators() if devices is None else devices)
        ],
        "python": [version, torch.tensor(words), gauss],
    }
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        kind, keys, position, has_gauss, cached = numpy_random.get_state()
        state["numpy"] = [kind, keys, position, has_gauss, cached]
    return state


def put_back(
    state: dict[str, Any],
    rank: int,
    world_size: int,
    step: int,
    devices: Sequence[torch.Generator] | None = None,
) -> None:
    """Restores a captured state, or for another rank or size sets a state that is derived from it and from the step."""
    devices = device_generators() if devices is None else devices
    if (state["rank"], state["world"]) != (rank, world_size):
        drawn = hashlib.sha256(state["torch"].numpy().tobytes()).hexdigest()
        seed_all(mixed(drawn, step, rank, world_size), devices)
        return
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    # By position: a checkpoint may come from a pod with more devices or fewer.
    for generator, captured in zip(devices, state.get("devices", []), strict=False):
        generator.set_state(captured)
    if "numpy" in state and (numpy_random := sys.modules.get("numpy.random")) is not None:
        kind, keys, *rest = state["numpy"]
        numpy_random.set_state((kind, keys, *rest))
