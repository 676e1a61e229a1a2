"""The state of the random number generators, as part of what is committed.

A generator's state belongs to one rank of one group: where rank and size are what they were, it is put back as it was. Any other rank gets
a state of its own, drawn from the one committed and its rank: no two ranks then draw the same numbers, and none draws old ones again.
"""

import hashlib
import random
import sys
from typing import Any

import torch


def capture(rank: int, world_size: int) -> dict[str, Any]:
    """The generators' states: of torch, CPU and CUDA, of Python, and of numpy if it is in use."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {
        "rank": rank,
        "world": world_size,
        "torch": torch.get_rng_state(),
        "python": [version, torch.tensor(words), gauss],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        kind, keys, position, has_gauss, cached = numpy_random.get_state()
        state["numpy"] = [kind, keys, position, has_gauss, cached]
    return state


def put_back(state: dict[str, Any], rank: int, world_size: int) -> None:
    """Sets the generators to a captured state, or for another rank or another size to one derived from it."""
    if (state["rank"], state["world"]) != (rank, world_size):
        digest = hashlib.sha256(state["torch"].numpy().tobytes() + f"{rank}/{world_size}".encode()).digest()
        seed = int.from_bytes(digest[:8], "little") >> 1
        torch.manual_seed(seed)  # CUDA's too
        random.seed(seed)
        if (numpy_random := sys.modules.get("numpy.random")) is not None:
            numpy_random.seed(seed & 0xFFFF_FFFF)
        return
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state and (numpy_random := sys.modules.get("numpy.random")) is not None:
        kind, keys, *rest = state["numpy"]
        numpy_random.set_state((kind, keys, *rest))
