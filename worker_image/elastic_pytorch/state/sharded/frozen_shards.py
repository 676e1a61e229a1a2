"""Checksums of frozen weights, however these are sharded."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from elastic_pytorch.group.rank_group import TorchGroup, gather_objects
from elastic_pytorch.state.sharded.regions import Region, local_part, region_of
from elastic_pytorch.state.values.trained import Trained, kind_of

WORD_BYTES = 4  # at most: a larger element is several words
WORDS = {1: torch.uint8, 2: torch.int16, WORD_BYTES: torch.int32}
CHUNK = 1 << 17  # words that are summed up at once, which fit into a processor's cache
BITS = 64


class Seen(NamedTuple):
    kind: str  # type, and shape of the whole tensor
    region: Region
    part_sum: int
    frozen: bool


def compare_frozen(
    objects: Mapping[str, Any], group: dist.ProcessGroup | None, *, all_again: bool = False
) -> bool:
    """Compares the ranks' sharded parameters of each `Trained`, if these may have changed.

    Collective. Returns whether any rank has a `Trained`; if not, it need not be called again.
    """
    models = {name: each for name, each in objects.items() if isinstance(each, Trained)}
    if all_again:
        for each in models.values():
            each.distrust()
    suspects = {
        (name, path): one for name, each in models.items() for path, one in each.suspects().items()
    }
    counts = TorchGroup(group).gather([len(suspects), len(models)])
    if any(suspect for suspect, _ in counts):
        named = gather_objects(sorted(suspects), group)
        shards = {
            (name, path): one
            for name, each in models.items()
            for path, one in each.shards().items()
        }
        own = {
            key: seen(shards[key])
            for key in sorted({key for keys in named for key in keys})
            if key in shards
        }
        found = checksums(gather_objects(own, group))
        for name, each in models.items():
            each.take_checksums({path: found[of, path] for of, path in own if of == name})
    return any(trained for _, trained in counts)


def checksums(ranks: Sequence[Mapping[tuple[str, str], Seen]]) -> dict[tuple[str, str], str]:
    """Returns descriptions of the parameters, such as "float32 [4, 2] #1f0c…"."""
    firsts: dict[tuple[tuple[str, str], Region], tuple[int, Seen]] = {}
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for rank, of_rank in enumerate(ranks):
        for key, each in of_rank.items():
            first, known = firsts.setdefault((key, each.region), (rank, each))
            if known.part_sum != each.part_sum and each.frozen:
                raise RuntimeError(
                    f"the frozen {key[1]} of {key[0]} has other values on rank {rank} than on rank "
                    f"{first}, in the same place: load the same weights on all ranks"
                )
            if first == rank:
                kind, total = found.get(key, (each.kind, 0))
                found[key] = kind, total + each.part_sum
    return {key: f"{kind} #{total % (1 << BITS):016x}" for key, (kind, total) in found.items()}


def seen(tensor: DTensor) -> Seen:
    region = region_of(tensor)
    own_sum = part_sum(local_part(tensor), region.offset)
    return Seen(kind_of(tensor), region, own_sum, not tensor.requires_grad)


@torch.no_grad()
def part_sum(part: torch.Tensor, offset: Sequence[int]) -> int:
    """Returns a part's share of a tensor's checksum, which is the parts' sum modulo 2^64.

    Each element is an integer, times one odd pseudo-random number for its index in each dimension.
    That is multilinear hashing (https://arxiv.org/abs/1202.4961), with a product of numbers as each
    element's key. It finds mistakes, not forgers.
    """
    if not part.numel():
        return 0
    sizes, begins = list(part.shape) or [1], list(offset) or [0]
    words = part.detach().contiguous().view(sizes)
    words = words.view(WORDS[min(part.element_size(), WORD_BYTES)])
    begins[-1] *= words.shape[-1] // sizes[-1]
    keys = [
        _keys(number, *each, part.device)
        for number, each in enumerate(zip(begins, words.shape, strict=True))
    ]
    table, columns = words.flatten(0, -2) if words.dim() > 1 else words[None], keys.pop()
    sums = torch.zeros(len(table), dtype=torch.int64, device=part.device)
    rows = max(1, CHUNK // len(columns))
    for begin in range(0, len(table), rows):
        chunk = table[begin : begin + rows]
        for some, key in zip(chunk.split(CHUNK, 1), columns.split(CHUNK), strict=True):  # type: ignore[no-untyped-call]
            sums[begin : begin + rows] += (some * key).sum(1)
    while keys:
        key = keys.pop()
        sums = (sums.view(-1, len(key)) * key).sum(1)
    return int(sums.sum()) % (1 << BITS)


def _keys(dimension: int, begin: int, size: int, device: torch.device) -> torch.Tensor:
    """Returns the odd numbers of indices in a dimension.

    By SplitMix64 (https://doi.org/10.1145/2714064.2660195).
    """
    numbers = torch.arange(begin + 1, begin + size + 1, device=device) + (dimension << 48)
    mixed = numbers * _signed(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = (mixed ^ (mixed >> shift & (1 << BITS - shift) - 1)) * _signed(factor)
    return mixed | 1


def _signed(number: int) -> int:
    return number - (1 << BITS) if number >> BITS - 1 else number
