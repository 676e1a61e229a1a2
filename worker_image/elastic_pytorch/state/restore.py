"""Finds the state from which a new group continues: the newest that any of its ranks holds in memory, else the newest on disk.

All ranks receive the same information about each other, and so decide the same. One rank sends all values that are not tensors. Tensors
come from the memory of a rank's own pod if it has the same state. A pod that lacks it receives it once, and all of its processes read it
there.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist

from elastic_pytorch.group.broadcast import broadcast_tree, pass_on
from elastic_pytorch.log import logger
from elastic_pytorch.memory.mapped_state import MappedState
from elastic_pytorch.state_format.state_encoding import flatten, tensor_kinds, unflatten
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder
from elastic_pytorch.storage.checkpoint_file import Loaded, load_newest
from elastic_pytorch.storage.checkpoint_format import CannotClaim

NONE = StateVersion(0, 0)  # of a rank that has nothing: generations begin with 1
OWN = "random"  # the part of a state that differs from rank to rank: the random number generators
NO_POD = -1


class Told(NamedTuple):
    """What each rank sends to all others.

    Attributes:
        version: of the state in the memory that this rank keeps; (0, 0): there is none, or another process of the pod keeps it.
        layout: a digest of the types and shapes of that state's tensors.
        writer: the rank in the previous group that has written it.
        pod: the number of the pod whose memory it uses; -1: none.
        keeps: whether it is the one process that writes that memory.
    """

    version: StateVersion
    layout: int
    writer: int
    pod: int
    keeps: bool

    @property
    def shares(self) -> bool:
        """Whether it reads the memory that another process of its pod keeps."""
        return self.pod != NO_POD and not self.keeps


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a state.

    Attributes:
        version: of the state.
        root: the rank that has it.
        lacking: the ranks that do not have it, and whose pod's memory does not have it, either.
    """

    version: StateVersion
    root: int
    lacking: tuple[int, ...]


@dataclass(slots=True)
class Found:
    """A state from which to continue.

    Attributes:
        version: of the state; (0, 0): there was none, and this is rank 0's initial state.
        tree: the state.
        generation: of the group that continues from it.
        where: the place where it was found, for messages.
        shared: whether any rank reads it in the memory of another one, which must not be written to meanwhile.
        mapped: the memory of its tensors; None: they have memory of their own.
    """

    version: StateVersion
    tree: Any
    generation: int
    where: str
    shared: bool = False
    mapped: MappedState | None = field(default=None, repr=False)


class Memory(Protocol):
    """The memory of the state in a pod, as a rank sees it; see `PodMemory`."""

    pod: int | None
    keeps: bool

    def newest(self) -> MappedState | None:
        """Returns the newest state that this rank keeps."""

    def write(self, version: StateVersion, tree: Any) -> None:
        """Writes a state to it."""

    def of_keeper(self) -> MappedState:
        """Returns the newest state that another process of the pod keeps."""


class RankGroup(Protocol):
    """A group of ranks, as far as this needs it."""

    rank: int

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Returns the numbers of all ranks, in their order."""

    def first(self, number: int) -> int:
        """Returns rank 0's number."""

    def broadcast(self, tree: Any, root: int) -> Any:
        """Returns the root's tree; for small trees."""

    def pass_on(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
        """Fills the tensors of all given ranks with those of the first one. Only these ranks call it."""


def cpu_group() -> Any:
    """Returns the default group (None) if it can send CPU tensors, else a new one that can. Collective."""
    if not dist.is_initialized() or "gloo" in str(dist.get_backend()):
        return None
    return dist.new_group(backend="gloo")


class TorchGroup:
    """A group of torch.distributed.

    Args:
        group: of a backend that sends CPU tensors; None: the default group.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        self.rank = dist.get_rank(group)

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Returns the numbers of all ranks, in their order. Collective."""
        own = torch.tensor(numbers, dtype=torch.int64)
        all_ = [torch.zeros_like(own) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(all_, own, group=self._group)
        return [each.tolist() for each in all_]

    def first(self, number: int) -> int:
        """Returns rank 0's number. Collective."""
        told = torch.tensor([number])
        dist.broadcast(told, 0 if self._group is None else dist.get_global_rank(self._group, 0), group=self._group)
        return int(told)

    def broadcast(self, tree: Any, root: int) -> Any:
        """Returns the root's tree. Collective."""
        return broadcast_tree(tree, root, self._group)

    def pass_on(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
        """Sends tensors from the first of the given ranks to the others."""
        pass_on(tensors, ranks, self._group)


class Alone:
    """The group of a process that runs alone."""

    rank = 0

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        """Returns these numbers."""
        return [list(numbers)]

    def first(self, number: int) -> int:
        """Returns this number."""
        return number

    def broadcast(self, tree: Any, root: int) -> Any:
        """Returns this tree."""
        del root
        return tree

    def pass_on(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
        """Does nothing: there is no other rank."""


def choose_memory(told: Sequence[Told]) -> Source | None:
    """Returns the newest state in memory; None: no rank has any.

    If several ranks hold it, the root is the one with the lowest rank in the previous group: most scripts set plain values on rank 0, and
    other ranks receive them a little later.
    """
    newest = max(each.version for each in told)
    if newest == NONE:
        return None
    _, root = min((each.writer, rank) for rank, each in enumerate(told) if each.version == newest)
    has = {rank for rank, each in enumerate(told) if each.version == newest and each.layout == told[root].layout}
    return Source(newest, root, _lacking(told, has))


def load_initial(load: Callable[[], object]) -> None:
    """Has the script load the weights that a training begins with.

    Raises:
        RuntimeError: that failed; or the weights are returned, and not loaded.
    """
    try:
        returned = load()
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        raise RuntimeError(f"initial, which loads the first weights, failed: {type(error).__name__}: {error}") from error
    if isinstance(returned, Mapping):
        raise RuntimeError(
            f"initial returned a {type(returned).__name__}, and what it returns is not used: it must load the weights itself, as in "
            "lambda: model.load_state_dict(pretrained())"
        )


def claim(folder: str, generation: int) -> int:
    """Claims the checkpoint folder, so that older groups neither write nor delete there; returns the generation that is claimed."""
    try:
        return checkpoint_folder.claim(folder, generation)
    except OSError as error:
        logger.warning("cannot write to %s: %s; training goes on without checkpoints", folder, error)
        return generation


def _lacking(told: Sequence[Told], has: set[int]) -> tuple[int, ...]:
    return tuple(rank for rank, each in enumerate(told) if rank not in has and not each.shares)


def find_newest(group: RankGroup, memory: Memory | None, folder: str, begin: Callable[[], Any]) -> Found:
    """Finds the state from which the group continues, and sends it to all ranks. Collective. Rank 0 claims the folder for the group.

    Args:
        group: all ranks.
        memory: of this rank's pod; None: it has none.
        folder: of checkpoints; empty: there is none. Only rank 0 reads it, so it need not be shared.
        begin: returns this rank's initial state. Only rank 0 calls it, and only if there is no other state.

    Raises:
        OSError: the folder, or a checkpoint in it, cannot be read; training must not begin from the start because of that.
        MemoryError: there is no room for a checkpoint.
        RuntimeError: the storage of the folder cannot keep older groups out.
        Exception: what `begin` raises on rank 0; a RuntimeError with its words on the others.
    """
    held = memory.newest() if memory else None
    on_disk, claimed = NONE, 0
    problem: OSError | None = None
    if group.rank == 0 and folder:
        try:
            newest, claimed = checkpoint_folder.newest_and_claimed(folder)
            on_disk = newest or NONE
        except OSError as error:
            problem = error
    numbers = group.gather([*_tell(held, memory), *on_disk, claimed, problem is not None])
    on_disk, (claimed, failed) = StateVersion(*numbers[0][6:8]), numbers[0][8:]
    if failed:
        raise problem or OSError(f"rank 0 cannot read the checkpoints in {folder}")
    told = [Told(StateVersion(*each[:2]), each[2], each[3], each[4], bool(each[5])) for each in numbers]
    generation = 1 + max(claimed, on_disk.generation, *(each.version.generation for each in told))
    if folder:
        generation = _claim_for_all(group, folder, generation)
    source = choose_memory(told)
    loaded, version = None, NONE
    if source is None or source.version < on_disk:
        loaded, version = _from_disk(group, folder, source.version if source else NONE)
    if version != NONE:
        tree, where = (loaded.tree if loaded else None), "rank 0's checkpoint"
        where = f"checkpoint {loaded.path.name}" if loaded else where
    elif source is not None:
        version, tree, where = source.version, (held.tree if held else None), f"the memory of rank {source.root}"
        where = where if source.lacking else "memory"
    else:
        tree, where = _beginning(group, begin), "the beginning"
    if source is None or version != source.version:
        source, held = Source(version, 0, _lacking(told, {0})), None
    found = Found(version, tree, generation, where, shared=any(each.shares for each in told), mapped=held)
    _spread(found, group, memory, told, source)
    return found


def _claim_for_all(group: RankGroup, folder: str, generation: int) -> int:
    """Claims the folder before anything in it is read: an older group that is still alive deletes nothing from then on.

    Returns:
        The group's generation on all ranks, as rank 0 has claimed it.

    Raises:
        RuntimeError: on all ranks: the storage cannot keep older groups out.
    """
    problem: CannotClaim | None = None
    try:
        generation = claim(folder, generation) if group.rank == 0 else 0
    except CannotClaim as error:
        problem, generation = error, 0
    generation = group.first(generation)
    if not generation:
        raise RuntimeError(str(problem or f"rank 0 cannot claim {folder}: its log says why"))
    return generation


def _spread(found: Found, group: RankGroup, memory: Memory | None, told: Sequence[Told], source: Source) -> None:
    """Sends the root's state to all ranks."""
    mine = told[group.rank]
    is_root, lacks = group.rank == source.root, group.rank in source.lacking
    skeleton, tensors, own = _parts(found.tree) if is_root else (b"", [], None)
    words = {"skeleton": torch.frombuffer(bytearray(skeleton), dtype=torch.uint8) if is_root else None, "own": own}
    words = group.broadcast(words, source.root)
    skeleton = words["skeleton"].numpy().tobytes()
    if lacks:
        found.mapped = None
        tensors, own = [torch.empty(shape, dtype=dtype) for dtype, shape in tensor_kinds(skeleton)], words["own"]
    if source.lacking and (is_root or lacks):
        group.pass_on(tensors, [source.root, *source.lacking])
    if lacks:
        found.tree = _whole(skeleton, tensors, own)
    if found.shared:
        in_memory = found.mapped is not None
        if memory and mine.keeps and not in_memory and any(each.shares and each.pod == mine.pod for each in told):
            memory.write(found.version, found.tree)
        group.gather([0])  # each rank that keeps a memory has the state in it now
        if memory and mine.shares:
            found.mapped = memory.of_keeper()
    if found.mapped is not None and not is_root:
        _, tensors, own = _parts(found.mapped.tree)
        found.tree = _whole(skeleton, tensors, own)


def _beginning(group: RankGroup, begin: Callable[[], Any]) -> Any:
    """Returns rank 0's initial state on rank 0, and None on the others, once it is there."""
    tree, problem = None, None
    if group.rank == 0:
        try:
            tree = begin()
        except Exception as error:
            problem = error
    words = group.broadcast({"problem": "" if problem is None else str(problem) or type(problem).__name__}, 0)["problem"]
    if words:
        raise problem or RuntimeError(f"rank 0: {words}")
    return tree


def _tell(held: MappedState | None, memory: Memory | None) -> list[int]:
    pod = NO_POD if memory is None or memory.pod is None else memory.pod
    keeps = memory is not None and memory.keeps
    if held is None or held.version == NONE:
        return [*NONE, 0, 0, pod, keeps]
    skeleton, _, own = _parts(held.tree)
    digest = hashlib.sha256(repr(tensor_kinds(skeleton)).encode()).digest()
    writer = own["rank"] if own else 0
    return [*held.version, int.from_bytes(digest[:8], "little") >> 1, writer, pod, keeps]


def _parts(tree: Any) -> tuple[bytes, list[torch.Tensor], Any]:
    """Returns what is the same on all ranks, as a skeleton and tensors, and the rank's own part."""
    return *flatten({name: each for name, each in tree.items() if name != OWN}), tree.get(OWN)


def _whole(skeleton: bytes, tensors: Sequence[torch.Tensor], own: Any) -> Any:
    tree = unflatten(skeleton, tensors)
    return tree if own is None else {**tree, OWN: own}


def _from_disk(group: RankGroup, folder: str, beyond: StateVersion) -> tuple[Loaded | None, StateVersion]:
    """Returns the newest whole checkpoint if it is newer than the memory: its content on rank 0, and its version on all ranks."""
    loaded: Loaded | None = None
    problem: Exception | None = None
    if group.rank == 0:
        try:
            loaded = load_newest(folder, beyond)
        except (OSError, MemoryError) as error:
            problem = error
    told = group.gather([*(loaded.version if loaded else NONE), problem is not None])[0]
    if told[2]:
        raise problem or OSError(f"rank 0 cannot read a checkpoint in {folder}")
    return loaded, StateVersion(*told[:2])
