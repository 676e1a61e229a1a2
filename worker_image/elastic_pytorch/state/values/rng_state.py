"""The random number generators: seeded for a micro-batch, and their state in a commit.

A generator's state belongs to one rank of one group: where rank and size are the same, it is
restored as it was. Any other rank derives its own from the committed state, its step and the rank:
so no two ranks draw the same numbers, and none repeats old ones.

All devices that CUDA shows to this process count, as the model may be on any of them. XPU and MPS
are not handled.
"""

import hashlib
import random
import sys
from collections.abc import Sequence
from typing import Any

import torch


def device_generators() -> Sequence[torch.Generator]:
    """Returns the default generators of the GPUs; none before this process uses one."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):  # type: ignore[no-untyped-call]
        return ()
    generators: tuple[torch.Generator, ...] = torch.cuda.default_generators
    return generators


def mixed(*parts: object) -> int:
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def seed_all(seed: int) -> None:
    for generator in (torch.default_generator, *device_generators()):
        generator.manual_seed(seed)
    random.seed(seed)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed(seed & 0xFFFF_FFFF)


def capture(rank: int, world_size: int) -> dict[str, Any]:
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "rank": rank,
        "world": world_size,
        "torch": torch.get_rng_state(),
        "devices": [generator.get_state() for generator in device_generators()],
        "python": [version, torch.tensor(words), gauss],
    }
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        kind, keys, position, has_gauss, cached = numpy_random.get_state()
        state["numpy"] = [kind, keys, position, has_gauss, cached]
    return state


def put_back(state: dict[str, Any], rank: int, world_size: int, step: int) -> None:
    if (state["rank"], state["world"]) != (rank, world_size):
        drawn = hashlib.sha256(state["torch"].numpy().tobytes()).hexdigest()
        seed_all(mixed(drawn, step, rank, world_size))
        return
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    # By position: a checkpoint may come from a pod with more devices or fewer.
    for generator, captured in zip(device_generators(), state.get("devices", []), strict=False):
        generator.set_state(captured)
    if "numpy" in state and (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.set_state(tuple(state["numpy"]))
