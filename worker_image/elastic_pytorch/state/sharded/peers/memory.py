"""The parts of a sharded state in the pods' memory."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.optim import Optimizer

from elastic_pytorch.group.rank_group import TorchGroup, digest_number, gather_objects
from elastic_pytorch.log import logger
from elastic_pytorch.memory.pod_memory import Client, pod_number, workers_of_pod
from elastic_pytorch.memory.slot_memory import room
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.pod.group_variables import unit_number
from elastic_pytorch.state.sharded.optimizer_states import make_state
from elastic_pytorch.state.sharded.peers.buddies import RankLocation, buddies, receivers_of_leaving
from elastic_pytorch.state.sharded.peers.copies import PeerCopies, send_part, tag_of
from elastic_pytorch.state.sharded.peers.held_parts import Chosen, Held, choose
from elastic_pytorch.state.sharded.regions import local_part
from elastic_pytorch.state.sharded.shard_memory import ShardMemory, payload, read_state
from elastic_pytorch.state.sharded.stages import shards_number
from elastic_pytorch.state.sharded.trees import Tree, taken_apart
from elastic_pytorch.state.source import NONE
from elastic_pytorch.state.values.trained import Trained
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.sharded_folder import new_token

NODE = "ELASTIC_PYTORCH_NODE"


class PeerMemory:
    """The memory of one rank, and its part in the group's agreement.

    A version is copied to the peers if all ranks were ready for it when they committed it, which
    they learn at the same step. Until all have its copies, no other step is committed: there is
    memory for two versions, and the one before may still be needed.
    """

    def __init__(self, name: str, client: Client) -> None:
        self._memory = ShardMemory(name, client)
        self._copies: PeerCopies | None = None
        self._group: dist.ProcessGroup | None = None
        self._stages: Sequence[int] = ()
        self._places: list[RankLocation] = []
        self._to: list[int | None] = []  # each rank's receiver of a copy
        self._source: int | None = None  # the rank whose copy comes here
        self._tag = 0  # of this state's messages
        self._chosen: Chosen | None = None
        self._number = 0  # `Held.group`
        self._planned: StateVersion | None = None  # to be copied once the commit is complete
        self._on_its_way: StateVersion | None = None
        self._begun = 0
        # Whether the next commit is copied; the same on all ranks.
        self.may_copy = self.copying = False
        self.newest = NONE  # of which any rank holds a part

    @property
    def snapshot(self) -> Snapshot:
        return self._memory.own

    def form(
        self, objects: Mapping[str, Any], stages: Sequence[int], group: dist.ProcessGroup | None
    ) -> StateVersion:
        """Forms the group; returns the newest whole version, or NONE. Collective."""
        self._group, self._stages = group, stages
        ranks = TorchGroup(group)
        shards = shards_number(objects, stages[ranks.rank])
        own = (
            RankLocation(unit_number(), pod_number(), digest_number(_node()), shards),
            new_token(),
            self._memory.held(ranks.rank),
        )
        ranks_own = gather_objects(own, group)
        self._places = [place for place, _, _ in ranks_own]
        self._number = ranks_own[0][1]
        self._tag = tag_of(self._number)
        self._to = buddies(self._places)
        self._source = self._to.index(ranks.rank) if ranks.rank in self._to else None
        everything: list[Held] = [each for _, _, held in ranks_own for each in held]
        self.newest = max((each.version for each in everything), default=NONE)
        self._chosen = choose(everything)
        version = self._chosen.version if self._chosen is not None else None
        self._memory.keep(version)
        self._copies, self._planned = None, None
        self.may_copy = self.copying = False
        return version or NONE

    def read(self, objects: Mapping[str, Any], group: dist.ProcessGroup | None) -> Tree:
        """Returns the version that `form` has found, in the objects' tensors. Collective."""
        assert self._chosen is not None
        for each in objects.values():
            if isinstance(each, Optimizer):  # before its first step, it has no state to be filled
                make_state(each, objects)
        states = {
            name: each.template() if isinstance(each, Trained) else each.state_dict()
            for name, each in objects.items()
        }
        return read_state(self._chosen, self._memory, {"objects": states}, self._stages, group)

    def payload(self, tree: Tree) -> Tree:
        rank = dist.get_rank(self._group)
        return payload(
            tree, self._number, rank, [place.shards for place in self._places], self._stages[rank]
        )

    def check_room(self, tree: Tree) -> None:
        """Raises a RuntimeError, on all ranks, if a container lacks the memory. Collective."""
        own, left = shard_bytes(tree), room()
        ranks = TorchGroup(self._group)
        # Parts of another group.
        kept = max((slot.length for slot in self._memory.own.slots()), default=0)
        held = _taken(self._memory.own) + _taken(self._memory.copies)
        rooms = ranks.gather([own, max(own, kept), held, -1 if left is None else max(0, left)])
        needed = bytes_needed([Room(*each) for each in rooms], self._to, workers_of_pod())
        if ranks.rank == 0:
            logger.info(
                "each rank keeps up to %.3f GB of the state in its pod's memory", needed[0] / 1e9
            )

    def begin_copies(self, version: StateVersion) -> None:
        if self._has_buddies():
            self.plan_copies(version)
            self.start_copies()
        else:
            self._memory.keep(None)

    def copy_restored(self) -> bool:
        """Starts to copy the restored version itself; False: it must be committed again first.

        It may have no copies yet. A commit of it, in the parts of this group, would overwrite the
        version before, which has copies: until the new ones are whole, the loss of one pod would be
        the loss of both versions.
        """
        chosen = self._chosen
        if chosen is None or not chosen.all_own or not self._has_buddies():
            return False
        holders = {each.holder for each in chosen.parts.values()}
        if any(self._to[holder] is None for holder in holders):
            return False
        assert self._copies is not None
        self.plan_copies(chosen.version)
        self._copies.begin(chosen.version, holders)
        self._on_its_way, self._planned = chosen.version, None
        return True

    def _has_buddies(self) -> bool:
        self._begun, self._copies = 0, None
        if any(each is not None for each in self._to):
            to = self._to[dist.get_rank(self._group)]
            self._copies = PeerCopies(
                self._memory.own, self._memory.copies, to, self._source, self._group, self._tag
            )
        return self._copies is not None

    def plan_copies(self, version: StateVersion) -> None:
        """Plans the copies of a version that all ranks commit at this step."""
        self._planned, self.copying, self.may_copy = version, True, False
        self._begun += 1

    def start_copies(self) -> None:
        if self._planned is not None and self._copies is not None:
            self._copies.begin(self._planned)
            self._on_its_way, self._planned = self._planned, None

    @property
    def copied(self) -> int:
        """The number of versions that this rank has copied in this group; raises if that failed."""
        if self._copies is not None:
            self._copies.check()
        whole = self._planned is None and (self._copies is None or self._copies.whole)
        return self._begun if whole else self._begun - 1

    @property
    def rested(self) -> bool:
        return self._copies is None or self._copies.rested

    def agree(self, copied: int, *, rested: bool) -> None:
        """Learns the least copied versions of any rank, and whether all may copy."""
        if copied < self._begun or self._copies is None:
            return
        if self.copying:
            self._seal()
        self.may_copy = rested

    def agree_now(self) -> None:
        ranks = TorchGroup(self._group).gather([self.copied, int(self.rested)])
        self.agree(min(copied for copied, _ in ranks), rested=all(rested for _, rested in ranks))

    def finish_copies(self) -> None:
        """Waits until all ranks have the planned copies. Collective."""
        if self.copying and self._copies is not None:
            self.start_copies()
            self._copies.wait()
            TorchGroup(self._group).gather([0])
            self._seal()

    def leave(self, version: StateVersion, *, leaves: bool) -> bool:
        """Has the ranks that stay keep the shards of leaving pods; returns whether they have all.

        All ranks have committed the version last. Collective.
        """
        ranks = TorchGroup(self._group)
        leaving = [bool(each[0]) for each in ranks.gather([leaves])]
        if all(leaving):
            return False
        copied = any(leaving) and self._copies is not None
        if copied and self._memory.own.kept != version:
            self.plan_copies(version)
            self.finish_copies()
        if (to := receivers_of_leaving(leaving, self._places, self._to if copied else ())) is None:
            return False
        source = next((sender for sender, receiver in to.items() if receiver == ranks.rank), None)
        send_part(
            version,
            self._memory.own,
            self._memory.copies,
            to.get(ranks.rank),
            source,
            self._group,
            self._tag,
        )
        ranks.gather([0])
        return True

    def close(self) -> None:
        if self._copies is not None:
            self._copies.end()
        self._memory.close()

    def drop(self) -> None:
        """Releases the memory, once copies on their way are complete. Collective."""
        self.finish_copies()
        self._memory.drop()
        self.close()

    def _seal(self) -> None:
        self.copying = False
        self._memory.keep(self._on_its_way)


class Room(NamedTuple):
    """A rank's memory, in bytes."""

    own: int  # of its shards
    kept: int  # of the largest state that its memory holds or will hold
    held: int  # that its pod's memory takes already
    left: int  # that the container may still take; -1: no limit is known


def bytes_needed(rooms: Sequence[Room], to: Sequence[int | None], workers: int) -> list[int]:
    """Returns the bytes of two versions of each rank's shards, and of another rank's."""
    copies = {receiver: each.own + each.kept for each, receiver in zip(rooms, to, strict=True)}
    needed = [2 * each.own + copies.get(rank, 0) for rank, each in enumerate(rooms)]
    for rank, (needs, its) in enumerate(zip(needed, rooms, strict=True)):
        if 0 <= its.left < (needs - its.held) * workers:
            raise RuntimeError(
                f"rank {rank} would keep {needs / 1e9:.1f} GB of the state in its pod's memory, "
                f"of which the container has {its.left / 1e9:.1f} GB left: "
                "raise resources.limits.memory, or use State.Options(memory=False, every=…)"
            )
    return needed


def _node() -> str:
    return os.environ.get(NODE) or Path("/proc/sys/kernel/random/boot_id").read_text()


def shard_bytes(tree: Tree) -> int:
    return sum(local_part(tensor).nbytes for tensor in taken_apart(tree)[0].values())


def _taken(snapshot: Snapshot) -> int:
    return os.fstat(snapshot.fd).st_blocks * 512
