"""A rank's shards in its pod's memory, and their restoration."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from elastic_pytorch.group.broadcast import broadcast_tree
from elastic_pytorch.group.exchange import exchange
from elastic_pytorch.group.rank_group import gather_objects
from elastic_pytorch.memory.mapped_state import MappedState
from elastic_pytorch.memory.pod_memory import Client, PodMemory, number_in_pod, pod_number
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.state.sharded.peers.held_parts import Chosen, Held
from elastic_pytorch.state.sharded.regions import Piece, Region, local_part, pieces, region_of
from elastic_pytorch.state.sharded.trees import Keys, Tree, insert, look_up, name_of, taken_apart

LAYOUT = 2
SLOTS = 2  # for the version with a copy, and the newest one
TAG = 4712


class ShardMemory:
    """A rank's own shards and the copy of another rank's, in the pod's agent."""

    def __init__(self, name: str, client: Client) -> None:
        local = number_in_pod()
        self._names = (f"{name}-shards-{local}", f"{name}-copies-{local}")
        self._client = client
        self.own, self.copies = (self._open(each) for each in self._names)

    def _open(self, name: str) -> Snapshot:
        memory = PodMemory(name, self._client, SLOTS)
        memory.pod, memory.keeps = pod_number(), True
        memory.open()
        assert memory.snapshot is not None
        return memory.snapshot

    def held(self, rank: int) -> list[Held]:
        found = []
        for own, snapshot in ((True, self.own), (False, self.copies)):
            for slot in snapshot.slots():
                mapped = MappedState(snapshot.fd, slot)
                if mapped.tree.get("layout") == LAYOUT:
                    shards = tuple(mapped.tree["shards_of"])
                    part, group = mapped.tree["part"], mapped.tree["group"]
                    found.append(Held(slot.version, group, part, shards, rank, own, slot.number))
                mapped.release()
        return found

    def mapped(self, held: Held) -> MappedState:
        """Returns a part, valid until its slot is written to."""
        snapshot = self.own if held.own else self.copies
        return MappedState(
            snapshot.fd, next(slot for slot in snapshot.slots() if slot.number == held.slot)
        )

    def keep(self, version: Any) -> None:
        """Protects a version, instead of any before, from being overwritten."""
        self.own.kept = self.copies.kept = version

    def close(self) -> None:
        self.own.close()
        self.copies.close()

    def drop(self) -> None:
        for name in self._names:
            self._client.drop(name)


def payload(tree: Tree, group: int, part: int, shards_of: Sequence[int], stage: int) -> Tree:
    shards, rest = taken_apart(tree)
    return {
        "layout": LAYOUT,
        "group": group,
        "part": part,
        "stage": stage,
        "shards_of": list(shards_of),
        "shards": [
            [keys, list(each.shape), list(region_of(each).offset), local_part(each).contiguous()]
            for keys, each in shards.items()
        ],
        "rest": rest,
    }


def read_state(
    chosen: Chosen,
    memory: ShardMemory,
    template: Tree,
    stages: Sequence[int],
    group: dist.ProcessGroup | None,
) -> Tree:
    """Returns a state from the parts that the ranks hold, in the template's tensors. Collective."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    of_part = {**chosen.others, **chosen.parts}
    mapped = {part: memory.mapped(held) for part, held in of_part.items() if held.holder == rank}
    mine = {
        part: (mapped[part].tree["stage"], _description(mapped[part].tree))
        for part in mapped
        if part in chosen.parts
    }
    random = {part: mapped[part].tree["rest"]["random"] for part in mapped}
    described: dict[int, dict[Keys, tuple[tuple[int, ...], str, Region]]] = {}
    firsts: dict[int, int] = {}  # the first part of each stage
    randoms: dict[int, Any] = {}
    for parts, generators in gather_objects((mine, random), group):
        for part, (stage, description) in parts.items():
            firsts[stage] = min(part, firsts.get(stage, part))
            if stage == stages[rank]:
                described[part] = description
        randoms.update(generators)
    if firsts.keys() != set(stages):
        raise RuntimeError(
            f"the state in memory does not fit this script: it is cut into {len(firsts)} stages of "
            "other parameters"
        )
    targets = _targets(described, template)
    wanted = {keys: region_of(tensor) for keys, tensor in targets.items()}
    held = {
        part: {keys: region for keys, (_, _, region) in regions.items()}
        for part, regions in described.items()
    }
    plan = pieces(wanted, held)
    sources = {
        part: {tuple(keys): local for keys, _, _, local in each.tree["shards"]}
        for part, each in mapped.items()
    }
    _fill(plan, {part: each.holder for part, each in chosen.parts.items()}, sources, targets, group)
    rests: dict[int, Tree] = {
        stage: broadcast_tree(
            mapped[part].tree["rest"] if part in mapped else None, chosen.parts[part].holder, group
        )
        for stage, part in sorted(firsts.items())
    }
    rest, first = rests[stages[rank]], firsts[stages[rank]]
    rest["random"] = (
        randoms.get(rank, randoms[first]) if chosen.world_size == size else randoms[first]
    )
    for keys, tensor in targets.items():
        insert(rest, keys, tensor)
    for each in mapped.values():
        each.release()
    return rest


def _description(tree: Tree) -> dict[Keys, tuple[tuple[int, ...], str, Region]]:
    return {
        tuple(keys): (tuple(shape), str(local.dtype), Region(tuple(offset), tuple(local.shape)))
        for keys, shape, offset, local in tree["shards"]
    }


def _targets(
    described: Mapping[int, Mapping[Keys, tuple[tuple[int, ...], str, Region]]], template: Tree
) -> dict[Keys, DTensor]:
    targets = {}
    for parts in described.values():
        for keys, (shape, dtype, _) in parts.items():
            if keys in targets:
                continue
            tensor = look_up(template, keys)
            was, now = f"{dtype} {list(shape)}", "nothing sharded"
            if isinstance(tensor, DTensor):
                now = f"{tensor.dtype} {list(tensor.shape)}"
            if now != was:
                raise RuntimeError(
                    "the state in memory does not fit this script: "
                    f"{name_of(keys)} was {was}, and is {now}"
                )
            targets[keys] = tensor
    return targets


def _fill(
    plan: Sequence[Piece],
    holders: Mapping[int, int],
    sources: Mapping[int, Mapping[Keys, torch.Tensor]],
    targets: Mapping[Keys, DTensor],
    group: dist.ProcessGroup | None,
) -> None:
    rank = dist.get_rank(group)
    wanted: dict[int, list[Piece]] = {}
    for piece in plan:
        wanted.setdefault(holders[piece.part], []).append(piece)
    own = wanted.pop(rank, [])
    requested = gather_objects(wanted, group)
    sends = {
        other: [
            _box(sources[piece.part][piece.keys], piece.source).contiguous()
            for piece in requests[rank]
        ]
        for other, requests in enumerate(requested)
        if rank in requests
    }
    locals_ = {keys: local_part(tensor) for keys, tensor in targets.items()}
    with torch.no_grad():
        for piece in own:
            _box(locals_[piece.keys], piece.target).copy_(
                _box(sources[piece.part][piece.keys], piece.source)
            )
        receives: dict[int, list[torch.Tensor]] = {}
        late: list[tuple[torch.Tensor, torch.Tensor]] = []
        for holder, each in wanted.items():
            for piece in each:
                box = _box(locals_[piece.keys], piece.target)
                direct = box.device.type == "cpu" and box.is_contiguous()
                buffer = box if direct else torch.empty(box.shape, dtype=box.dtype)
                if not direct:
                    late.append((box, buffer))
                receives.setdefault(holder, []).append(buffer)
        exchange(sends, receives, group, TAG)
        for box, buffer in late:
            box.copy_(buffer)


def _box(tensor: torch.Tensor, region: Region) -> torch.Tensor:
    for dimension, (offset, size) in enumerate(zip(region.offset, region.size, strict=True)):
        tensor = tensor.narrow(dimension, offset, size)
    return tensor
