import itertools
import logging
import os
import queue
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from elastic_pytorch.group.rank_group import RankGroup
from elastic_pytorch.log import logger
from elastic_pytorch.memory.mapped_state import MappedState
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.state.restore import Search, when_readable
from elastic_pytorch.state_format.payload import payload_chunks
from elastic_pytorch.state_format.state_encoding import UnsupportedValue
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder
from elastic_pytorch.storage.checkpoint_file import load_newest
from elastic_pytorch.storage.checkpoint_writer import CheckpointWriter, Flush

pytestmark = pytest.mark.torch

NOTHING = StateVersion(0, 0)


class Ranks:
    """Ranks in threads of one process."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=20)
        self.board: dict[int, Any] = {}
        self.boxes: defaultdict[tuple[int, int], queue.SimpleQueue[Any]] = defaultdict(
            queue.SimpleQueue
        )

    def exchange(self, rank: int, value: Any) -> dict[int, Any]:
        self.barrier.wait()
        self.board[rank] = value
        self.barrier.wait()
        return dict(self.board)


class Rank(RankGroup):
    def __init__(self, ranks: Ranks, rank: int) -> None:
        self.ranks, self.rank = ranks, rank
        self.received = 0
        self.exchanges = 0

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        self.exchanges += 1
        found = self.ranks.exchange(self.rank, list(numbers))
        return [found[rank] for rank in range(self.ranks.size)]

    def first(self, number: int) -> int:
        return int(self.ranks.exchange(self.rank, number)[0])

    def send(self, content: bytes, length: int, root: int) -> bytes:
        self.exchanges += 1
        sent: bytes = self.ranks.exchange(self.rank, content)[root]
        assert len(sent) == length
        return sent

    def broadcast(self, tree: Any, root: int) -> Any:
        return self.ranks.exchange(self.rank, tree)[root]

    def pass_on(self, tensors: Sequence[torch.Tensor], ranks: Sequence[int]) -> None:
        for before, behind in itertools.pairwise(ranks):
            if self.rank == before:
                self.ranks.boxes[before, behind].put(tensors)
            elif self.rank == behind:
                self.received += 1
                for mine, its in zip(
                    tensors, self.ranks.boxes[before, behind].get(timeout=20), strict=True
                ):
                    mine.copy_(its)


class Memory:
    """A pod's memory, as one of its ranks sees it."""

    def __init__(self, snapshot: Snapshot, *, pod: int, keeps: bool = True) -> None:
        self.snapshot, self.pod, self.keeps = snapshot, pod, keeps

    def newest(self) -> MappedState | None:
        return MappedState(self.snapshot.fd) if self.keeps and self.snapshot.newest() else None

    def write(self, version: StateVersion, tree: Any) -> None:
        self.snapshot.write(version, tree)

    def of_keeper(self) -> MappedState:
        return MappedState(self.snapshot.fd)


def tree(step: int, writer: int = 0, best: float = 0.0) -> dict[str, Any]:
    return {
        "step": step,
        "best": best,
        "weights": torch.full((3,), float(step)),
        "random": {"rank": writer, "torch": torch.full((2,), float(writer))},
    }


def memory(version: StateVersion | None) -> Snapshot:
    snapshot = Snapshot.create("test")
    if version is not None:
        snapshot.write(version, tree(version.step))
    return snapshot


def write_checkpoint(folder: Path, version: StateVersion) -> Path:
    snapshot = memory(version)
    flushed = threading.Event()
    writer = CheckpointWriter()
    writer.ask(Flush("test", os.dup(snapshot.fd), str(folder), 9, lambda *_: flushed.set()))
    assert flushed.wait(20)
    return next(path for path in folder.iterdir() if f"s{version.step:09}" in path.name)


def find_newest(
    group: RankGroup, memory: Memory | None, folder: str, begin: Callable[[], Any]
) -> Any:
    search = Search(group, memory, folder)
    return search.find(group.gather(search.numbers), begin)


def on_all(size: int, function: Callable[[Rank], Any]) -> tuple[list[Any], list[Rank]]:
    """What a function returns for each rank of a group, and the ranks."""
    ranks = Ranks(size)
    groups = [Rank(ranks, rank) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(function, groups)), groups


def find(
    versions: Sequence[StateVersion | None], folder: Path | str
) -> tuple[list[Any], list[Rank]]:
    def find_on(rank: Rank) -> Any:
        mine = Memory(memory(versions[rank.rank]), pod=rank.rank)
        return find_newest(rank, mine, str(folder), lambda: tree(0, rank.rank))

    return on_all(len(versions), find_on)


def test_memory_of_a_survivor_goes_to_who_lacks_it(tmp_path: Path) -> None:
    found, _ = find([None, StateVersion(3, 41), StateVersion(3, 42)], tmp_path)
    assert [each.version for each in found] == [StateVersion(3, 42)] * 3
    assert all(each.tree["weights"].tolist() == [42.0] * 3 for each in found)
    assert {each.generation for each in found} == {4}
    assert found[0].where == "the memory of rank 2"


def test_only_who_lacks_it_gets_it() -> None:
    _, groups = find([None, StateVersion(3, 42), StateVersion(3, 42), StateVersion(3, 41)], "")
    assert [group.received for group in groups] == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("versions", "on_disk", "exchanges"),
    [
        ([StateVersion(1, 5), StateVersion(1, 5), None], None, 2),
        ([None, StateVersion(1, 5), StateVersion(1, 5)], None, 3),
        ([None, None, None], StateVersion(1, 7), 3),
        ([None, None, None], None, 3),
    ],
)
def test_ranks_wait_for_each_other_two_or_three_times(
    versions: list[StateVersion | None],
    on_disk: StateVersion | None,
    exchanges: int,
    tmp_path: Path,
) -> None:
    if on_disk is not None:
        write_checkpoint(tmp_path, on_disk)
    _, groups = find(versions, tmp_path)
    assert {group.exchanges for group in groups} == {exchanges}


def test_without_a_folder_rank_0_has_nothing_to_say() -> None:
    _, groups = find([None, StateVersion(1, 5)], "")
    assert [group.exchanges for group in groups] == [2, 2]


def test_state_that_is_loaded_and_dropped_leaves_its_memory() -> None:
    found, _ = find([StateVersion(1, 5)] * 2, "")
    for each in found:
        weights = weakref.ref(each.tree["weights"])
        assert each.mapped.holds(weights())
        each.tree = None
        each.mapped.release()
        assert weights() is None


def test_what_is_no_tensor_is_that_of_one_rank_and_random_numbers_are_each_ones_own() -> None:
    memories = [Memory(memory(None), pod=pod) for pod in range(2)]
    # The pod of rank 0 is gone, or has another rank now.
    memories[0].write(StateVersion(1, 5), tree(5, writer=1, best=0.0))
    memories[1].write(StateVersion(1, 5), tree(5, writer=0, best=0.9))
    found, _ = on_all(2, lambda rank: find_newest(rank, memories[rank.rank], "", lambda: tree(0)))
    assert [each.tree["best"] for each in found] == [0.9, 0.9]
    assert [each.tree["random"]["rank"] for each in found] == [1, 0]
    assert [each.tree["random"]["torch"].tolist() for each in found] == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("where", ["memory", "disk", "the beginning"])
def test_processes_of_a_pod_read_one_memory_and_get_nothing_sent(
    where: str, tmp_path: Path
) -> None:
    if where == "disk":
        write_checkpoint(tmp_path, StateVersion(1, 7))
    pods = [memory(StateVersion(1, 7) if where == "memory" else None), memory(None)]

    def restore(group: Rank) -> Any:
        pod, local_rank = divmod(group.rank, 2)
        mine = Memory(pods[pod], pod=pod, keeps=local_rank == 0)
        return find_newest(group, mine, str(tmp_path), lambda: tree(0 if group.rank else 3))

    found, groups = on_all(4, restore)
    expected = 3 if where == "the beginning" else 7
    assert [each.tree["step"] for each in found] == [expected] * 4
    assert [each.tree["weights"].tolist() for each in found] == [[float(expected)] * 3] * 4
    assert [group.received for group in groups] == [0, 0, 1, 0]
    assert all(each.shared for each in found)
    assert [each.mapped is not None for each in found] == [where == "memory", True, False, True]
    assert found[3].mapped.holds(found[3].tree["weights"])


def test_disk_is_for_groups_without_memory(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, StateVersion(1, 7))
    found, _ = find([None, None], tmp_path)
    assert [(each.version, each.tree["step"]) for each in found] == [(StateVersion(1, 7), 7)] * 2
    found, _ = find([None, StateVersion(1, 8)], tmp_path)
    assert found[0].version == StateVersion(1, 8)


def test_newer_checkpoint_goes_before_the_memory_of_a_pod_that_was_away(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, StateVersion(2, 90))
    found, _ = find([None, StateVersion(1, 100)], tmp_path)
    assert {each.version for each in found} == {StateVersion(2, 90)}
    assert {each.generation for each in found} == {3}


def test_torn_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, StateVersion(1, 6))
    torn = write_checkpoint(tmp_path, StateVersion(1, 7))
    torn.write_bytes(torn.read_bytes()[:-100])
    found, _ = find([None, None], tmp_path)
    assert {each.version for each in found} == {StateVersion(1, 6)}
    found, _ = find([StateVersion(1, 6), None], tmp_path)
    assert found[0].where == "the memory of rank 0", (
        "the torn one is named after a newer step, and is none"
    )


def test_training_without_a_folder_reads_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, StateVersion(1, 7))
    monkeypatch.chdir(tmp_path)
    found, _ = find([None, None], "")
    assert [each.where for each in found] == ["the beginning"] * 2


def test_beginning_that_cannot_be_kept_fails_on_all_ranks() -> None:
    def begin_with_a_function(rank: Rank) -> str:
        with pytest.raises((UnsupportedValue, RuntimeError)) as error:
            find_newest(rank, None, "", lambda: {"hook": print})
        return f"{error.type.__name__}: {error.value}"

    (first, second), _ = on_all(2, begin_with_a_function)
    assert first.startswith("UnsupportedValue: hook: ")
    assert second == first.replace("UnsupportedValue", "RuntimeError: rank 0")


def test_generation_is_beyond_what_the_folder_is_claimed_for(tmp_path: Path) -> None:
    checkpoint_folder.claim(tmp_path, 7)
    assert find_newest(RankGroup(), None, str(tmp_path), lambda: tree(0)).generation == 8


def test_folder_that_cannot_be_read_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(OSError, match=r"a-file|Not a directory"):
        find([None, None], tmp_path / "a-file")


class Returns(logging.Handler):
    """Storage that answers again once a group has begun to wait for it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def emit(self, record: logging.LogRecord) -> None:
        if "cannot read" in record.getMessage():
            self.folder.unlink()
            write_checkpoint(self.folder, StateVersion(1, 4))


def test_a_group_with_a_state_in_memory_waits_for_a_folder_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "away").touch()
    returns = Returns(tmp_path / "away")
    logger.addHandler(returns)
    try:
        found, _ = find([StateVersion(1, 5), None], tmp_path / "away")
    finally:
        logger.removeHandler(returns)
    assert [each.version for each in found] == [StateVersion(1, 5)] * 2


def test_waiting_for_a_folder_ends() -> None:
    def read() -> list[int]:
        raise OSError(5, "Input/output error", "away")

    with pytest.raises(OSError, match="away"):
        when_readable(RankGroup(), read, "away", seconds=0.0)


def test_checkpoint_that_cannot_be_read_is_no_reason_to_go_on_from_an_older_one(
    tmp_path: Path,
) -> None:
    write_checkpoint(tmp_path, StateVersion(1, 900))
    unreadable = write_checkpoint(tmp_path, StateVersion(1, 1000))
    unreadable.unlink()
    unreadable.symlink_to(unreadable)  # opening it fails, as where a network's disk is in trouble
    with pytest.raises(OSError, match=r"Too many levels of symbolic links|rank 0 cannot read"):
        find([None, None], tmp_path)
    assert checkpoint_folder.claimed(tmp_path) == 2, (
        "the folder is claimed before anything in it is read"
    )


class Replaces(logging.Handler):
    """An older group, which replaces its only checkpoint just when that is to be read."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def emit(self, record: logging.LogRecord) -> None:
        if "is skipped" in record.getMessage():
            checkpoint_folder.write(
                self.folder, StateVersion(1, 9), payload_chunks(tree(9)), keep=1
            )


def test_checkpoint_that_an_older_group_replaces_meanwhile_is_not_missed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, StateVersion(1, 7))
    write_checkpoint(tmp_path, StateVersion(1, 8)).write_bytes(b"torn")
    handler = Replaces(tmp_path)
    logger.addHandler(handler)
    try:
        loaded = load_newest(tmp_path, NOTHING)
    finally:
        logger.removeHandler(handler)
    assert loaded is not None and loaded.version == StateVersion(1, 9)


def test_checkpoint_that_is_listed_and_not_there_is_skipped(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, StateVersion(1, 7))
    (tmp_path / "checkpoint-g000001-s000000008.elastic").symlink_to(tmp_path / "nothing")
    loaded = load_newest(tmp_path, NOTHING)
    assert loaded is not None and loaded.version == StateVersion(1, 7)
