"""Finds the state from which a new group continues: the newest in memory, or else on disk.

All ranks gather the same reports, and so decide alike. Tensors come from the memory of a rank's own
pod if it has the state. A pod that lacks it receives it once, and all of its processes read it
there.
"""

import itertools
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from elastic_pytorch.group.rank_group import RankGroup, digest_number
from elastic_pytorch.log import logger
from elastic_pytorch.memory.mapped_state import MappedState
from elastic_pytorch.memory.pod_memory import PodMemory
from elastic_pytorch.progress.report import report_failed_saves
from elastic_pytorch.state.source import NO_POD, NONE, MemoryReport, Source, choose_memory, lacking
from elastic_pytorch.state_format.payload import decoded, encoded
from elastic_pytorch.state_format.state_encoding import flatten, tensor_kinds, unflatten
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder
from elastic_pytorch.storage.checkpoint_file import Loaded, load_newest
from elastic_pytorch.storage.checkpoint_format import CannotClaim

READ_SECONDS = 600.0  # for which a group with a state in memory waits for storage that is away
READ_AGAIN_SECONDS = 2.0
READ, AGAIN = -1, -2  # outcomes of an attempt, beside CANNOT_READ
OWN = "random"  # the random number generators, which differ from rank to rank


@dataclass(slots=True)
class Found:
    version: StateVersion  # NONE: this is rank 0's initial state
    tree: Any
    generation: int  # of the group that continues from it
    where: str  # for messages
    shared: bool = False  # a rank reads it in another one's memory, which must not change meanwhile
    # Of its tensors; None: they have memory of their own.
    mapped: MappedState | None = field(default=None, repr=False)


def load_initial(load: Callable[[], object]) -> None:
    try:
        returned = load()
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:
        raise RuntimeError(
            f"initial, which loads the first weights, failed: {type(error).__name__}: {error}"
        ) from error
    if isinstance(returned, Mapping):
        raise RuntimeError(
            f"initial returned a {type(returned).__name__}, and what it returns is not used: "
            "it must load the weights itself, as in lambda: model.load_state_dict(pretrained())"
        )


def claim(folder: str, generation: int) -> int:
    try:
        return checkpoint_folder.claim(folder, generation)
    except OSError as error:
        logger.warning(
            "cannot write to %s: %s; training goes on without checkpoints", folder, error
        )
        return generation


def cannot_read(folder: str) -> str:
    return f"rank 0 cannot read the checkpoints in {folder}"


def when_readable(
    group: RankGroup, read: Callable[[], Sequence[int]], folder: str, *, seconds: float
) -> list[int]:
    """Returns the three numbers that rank 0 reads in a checkpoint folder. Collective.

    A group whose memory holds a state waits for storage that is away: the folder may hold a newer
    state. The ranks exchange the outcome of each attempt, so that they notice a lost peer, and no
    collective reaches its time-out. After `seconds`, all ranks raise an OSError.
    """
    words, deadline, problem = struct.Struct("<4q"), time.monotonic() + seconds, None
    for attempt in itertools.count(1):
        outcome: tuple[int, ...] = (AGAIN, 0, 0, 0)
        if group.rank == 0:
            try:
                outcome = (READ, *read())
            except (OSError, CannotClaim) as error:
                if isinstance(error, CannotClaim) or time.monotonic() >= deadline:
                    problem, outcome = error, (CANNOT_READ, 0, 0, 0)
                elif attempt == 1:
                    logger.warning(
                        "cannot read %s: %s; training waits for it, "
                        "as it may hold a newer state than memory",
                        folder,
                        error,
                    )
                report_failed_saves(attempt, str(error))
        ended, *numbers = words.unpack(group.send(words.pack(*outcome), words.size, 0))
        if ended == READ:
            break
        if ended == CANNOT_READ:
            raise problem or OSError(cannot_read(folder))
        time.sleep(READ_AGAIN_SECONDS)
    return numbers


class Parts(NamedTuple):
    skeleton: bytes
    tensors: list[torch.Tensor]
    own: Any

    @classmethod
    def of(cls, tree: Any) -> "Parts":
        return cls(
            *flatten({name: each for name, each in tree.items() if name != OWN}), tree.get(OWN)
        )

    def words(self) -> bytes:
        """Returns all but the tensors, as bytes."""
        return encoded(
            {
                "skeleton": torch.frombuffer(bytearray(self.skeleton), dtype=torch.uint8),
                "own": self.own,
            }
        )

    def whole(self) -> Any:
        tree = unflatten(self.skeleton, self.tensors)
        return tree if self.own is None else {**tree, OWN: self.own}


NOTHING = Parts(b"", [], None)


class Answer(NamedTuple):
    """What rank 0 sends the others, as only it reads the folder and begins."""

    generation: int
    # Of a checkpoint that goes before all memories; 0: there is none.
    loaded_generation: int = 0
    loaded_step: int = 0
    problem: int = 0  # why the group cannot go on; 0: it can
    message_bytes: int = 0  # of the loaded or initial state, or of the problem, which follow


NO_ANSWER = Answer(0)
ANSWER = struct.Struct("<5q")
CANNOT_CLAIM, CANNOT_READ, CANNOT_BEGIN = 1, 2, 3


class Search:
    """The ranks gather its `numbers`, and then call `find`. Only rank 0 reads the folder."""

    def __init__(self, group: RankGroup, memory: PodMemory | None, folder: str) -> None:
        self._group, self._memory, self._folder = group, memory, folder
        self._held = memory.newest() if memory else None
        self._tree = self._held.tree if self._held else None
        self._parts = Parts.of(self._tree) if self._held else NOTHING
        self._words = self._parts.words() if self._held else b""
        self._problem: Exception | None = None
        self._checkpoint = "rank 0's checkpoint"  # for messages
        in_folder, failed = [*NONE, 0], False
        if group.rank == 0 and folder:
            try:
                in_folder = self._read_folder()
            except OSError as error:
                failed, self._problem = True, error
        self.numbers = [*self._report(), *in_folder, failed]

    def _read_folder(self) -> list[int]:
        newest, claimed = checkpoint_folder.newest_and_claimed(self._folder)
        return [*(newest or NONE), claimed]

    def _report(self) -> MemoryReport:
        memory = self._memory
        pod = NO_POD if memory is None or memory.pod is None else memory.pod
        keeps = memory is not None and memory.keeps
        if self._held is None:
            return MemoryReport(*NONE, 0, 0, pod, keeps)
        layout = digest_number(repr(tensor_kinds(self._parts.skeleton)))
        writer = self._parts.own["rank"] if self._parts.own else 0
        return MemoryReport(*self._held.version, layout, writer, pod, keeps, len(self._words))

    def find(self, numbers: Sequence[Sequence[int]], begin: Callable[[], Any]) -> Found:
        """Sends the state to all ranks, and claims the folder for the group. Collective.

        `numbers` are those of all ranks. Only rank 0 calls `begin`, for its initial state, and only
        if there is no other one; its error becomes a RuntimeError on the others. A folder or
        checkpoint that cannot be read is an OSError: training must not begin from the start because
        of that.
        """
        reports = [MemoryReport._make(each[:-4]) for each in numbers]
        source = choose_memory(reports)
        *in_folder, failed = numbers[0][-4:]
        if failed and source is None:
            raise self._problem or OSError(cannot_read(self._folder))
        if failed:
            in_folder = when_readable(
                self._group, self._read_folder, self._folder, seconds=READ_SECONDS
            )
        *on_disk, claimed = in_folder
        generation = 1 + max(claimed, on_disk[0], *(each.generation for each in reports))
        answer, words = self._ask_first(
            generation, source, StateVersion(*on_disk), reports[0].words, begin
        )
        loaded, where = StateVersion(answer.loaded_generation, answer.loaded_step), "memory"
        if source is None or loaded != NONE:
            where = "the beginning" if loaded == NONE else self._checkpoint
            source, self._held = Source(loaded, 0, lacking(reports, {0})), None
        elif source.lacking:
            where = f"the memory of rank {source.root}"
        words = words or self._group.send(
            self._words, answer.message_bytes or reports[source.root].words, source.root
        )
        shared = any(each.shares for each in reports)
        found = Found(source.version, None, answer.generation, where, shared)
        self._spread(found, reports, source, words)
        return found

    def _ask_first(
        self,
        generation: int,
        source: Source | None,
        on_disk: StateVersion,
        words: int,
        begin: Callable[[], Any],
    ) -> tuple[Answer, bytes]:
        """Returns rank 0's answer, and the words of its memory if all go on from there."""
        in_memory = source is not None and source.version >= on_disk
        sent = words if in_memory and source is not None and source.root == 0 else 0
        if in_memory and not sent and not self._folder:
            return Answer(generation), b""
        answer = (
            self._act(generation, source, begin, reads=not in_memory)
            if self._group.rank == 0
            else NO_ANSWER
        )
        message = self._group.send(ANSWER.pack(*answer) + self._words[:sent], ANSWER.size + sent, 0)
        answer = Answer(*ANSWER.unpack_from(message))
        if answer.problem == CANNOT_CLAIM:
            raise self._problem or RuntimeError(
                f"rank 0 cannot claim {self._folder}: its log says why"
            )
        if answer.problem == CANNOT_READ:
            raise self._problem or OSError(cannot_read(self._folder))
        if answer.problem == CANNOT_BEGIN:
            text = self._group.send(self._words, answer.message_bytes, 0).decode()
            raise self._problem or RuntimeError(f"rank 0: {text}")
        return answer, message[ANSWER.size :]

    def _act(
        self, generation: int, source: Source | None, begin: Callable[[], Any], *, reads: bool
    ) -> Answer:
        """Rank 0 claims before it reads, so that an older group deletes nothing meanwhile."""
        loaded: Loaded | None = None
        try:
            generation = claim(self._folder, generation) if self._folder else generation
            if reads and self._folder:
                loaded = load_newest(self._folder, source.version if source else NONE)
        except CannotClaim as error:
            self._problem = RuntimeError(str(error))
            return Answer(0, problem=CANNOT_CLAIM)
        except (OSError, MemoryError) as error:
            self._problem = error
            return Answer(0, problem=CANNOT_READ)
        if loaded is None and (not reads or source is not None):
            return Answer(generation)
        try:
            self._tree = begin() if loaded is None else loaded.tree
            self._parts = Parts.of(self._tree)
            self._words = self._parts.words()
        except Exception as error:
            self._problem, self._words = error, (str(error) or type(error).__name__).encode()
            return Answer(0, problem=CANNOT_BEGIN, message_bytes=len(self._words))
        if loaded is None:
            return Answer(generation, message_bytes=len(self._words))
        self._checkpoint = f"checkpoint {loaded.path.name}"
        return Answer(generation, *loaded.version, message_bytes=len(self._words))

    def _spread(
        self, found: Found, reports: Sequence[MemoryReport], source: Source, words: bytes
    ) -> None:
        """Sends the root's tensors to the ranks that lack them, and keeps none, to free memory."""
        held, tree, parts = self._held, self._tree, self._parts
        self._held, self._tree, self._parts = None, None, NOTHING
        group, memory, mine = self._group, self._memory, reports[self._group.rank]
        is_root, lacks = group.rank == source.root, group.rank in source.lacking
        found.mapped = None if lacks else held
        sent = decoded(words)
        skeleton = sent["skeleton"].numpy().tobytes()
        if lacks:
            parts = Parts(
                skeleton,
                [torch.empty(shape, dtype=dtype) for dtype, shape in tensor_kinds(skeleton)],
                sent["own"],
            )
        if source.lacking and (is_root or lacks):
            group.pass_on(parts.tensors, [source.root, *source.lacking])
        if is_root:
            found.tree = tree
        elif lacks:
            found.tree = parts.whole()
        if found.shared:
            in_memory = found.mapped is not None
            if (
                memory
                and mine.keeps
                and not in_memory
                and any(each.shares and each.pod == mine.pod for each in reports)
            ):
                memory.write(found.version, found.tree)
            group.gather([0])  # each rank that keeps a memory has the state in it now
            if memory and mine.shares:
                found.mapped = memory.of_keeper()
                parts = Parts.of(found.mapped.tree)
        if found.mapped is not None and not is_root:
            found.tree = Parts(skeleton, parts.tensors, parts.own).whole()
