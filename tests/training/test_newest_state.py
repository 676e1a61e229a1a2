import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from elastic_pytorch import checkpoint_folder
from elastic_pytorch.flusher import Flush, Flusher
from elastic_pytorch.newest_state import Alone, Source, choose_memory, find_newest
from elastic_pytorch.snapshot import Snapshot
from elastic_pytorch.stamp import Stamp

NOTHING = Stamp(0, 0)


@pytest.mark.parametrize(
    ("stamps", "source"),
    [
        ([NOTHING], None),
        ([Stamp(1, 5)], Source(Stamp(1, 5), 0, everybody=True)),
        ([Stamp(1, 5), Stamp(1, 5)], Source(Stamp(1, 5), 0, everybody=True)),
        ([Stamp(1, 5), NOTHING], Source(Stamp(1, 5), 0, everybody=False)),
        ([Stamp(1, 4), Stamp(1, 5), Stamp(1, 5)], Source(Stamp(1, 5), 1, everybody=False)),
        ([Stamp(1, 99), Stamp(2, 90)], Source(Stamp(2, 90), 1, everybody=False)),
    ],
)
def test_newest_memory(stamps: list[Stamp], source: Source | None) -> None:
    assert choose_memory(stamps) == source


class Ranks:
    """Ranks in threads of one process."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=20)
        self.board: dict[int, Any] = {}

    def exchange(self, rank: int, value: Any) -> dict[int, Any]:
        self.barrier.wait()
        self.board[rank] = value
        self.barrier.wait()
        return dict(self.board)


class Rank:
    """One of them, as a group that a state can be looked for in."""

    def __init__(self, ranks: Ranks, rank: int) -> None:
        self.ranks, self.rank = ranks, rank
        self.broadcasts = 0

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        found = self.ranks.exchange(self.rank, list(numbers))
        return [found[rank] for rank in range(self.ranks.size)]

    def broadcast(self, tree: Any, root: int) -> Any:
        self.broadcasts += 1
        return self.ranks.exchange(self.rank, tree)[root]


def tree(step: int) -> dict[str, Any]:
    return {"step": step, "weights": torch.full((3,), float(step))}


def memory(stamp: Stamp | None) -> Snapshot:
    snapshot = Snapshot.create("test")
    if stamp is not None:
        snapshot.write(stamp, tree(stamp.step))
    return snapshot


def write_checkpoint(folder: Path, stamp: Stamp) -> Path:
    snapshot = memory(stamp)
    flushed = threading.Event()
    flusher = Flusher()
    flusher.ask(Flush("test", os.dup(snapshot.fd), str(folder), 9, lambda *_: flushed.set()))
    assert flushed.wait(20)
    return next(path for path in folder.iterdir() if f"s{stamp.step:09}" in path.name)


def find(stamps: Sequence[Stamp | None], folder: Path | str) -> tuple[list[Any], list[Rank]]:
    ranks = Ranks(len(stamps))
    groups = [Rank(ranks, rank) for rank in range(len(stamps))]
    with ThreadPoolExecutor(len(stamps)) as pool:
        found = pool.map(lambda g: find_newest(g, memory(stamps[g.rank]), str(folder), tree(0)), groups)
        return list(found), groups


def test_memory_of_a_survivor_goes_to_who_lacks_it(tmp_path: Path) -> None:
    found, _ = find([None, Stamp(3, 41), Stamp(3, 42)], tmp_path)
    assert [each.stamp for each in found] == [Stamp(3, 42)] * 3
    assert all(each.tree["weights"].tolist() == [42.0] * 3 for each in found)
    assert {each.generation for each in found} == {4}
    assert found[0].where == "the memory of rank 2"


def test_nothing_is_sent_if_all_have_it(tmp_path: Path) -> None:
    found, groups = find([Stamp(1, 5), Stamp(1, 5)], tmp_path)
    assert [each.tree["step"] for each in found] == [5, 5]
    assert [group.broadcasts for group in groups] == [0, 0]


def test_disk_is_for_groups_without_memory(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, Stamp(1, 7))
    found, _ = find([None, None], tmp_path)
    assert [(each.stamp, each.tree["step"]) for each in found] == [(Stamp(1, 7), 7)] * 2
    found, _ = find([None, Stamp(1, 8)], tmp_path)
    assert found[0].stamp == Stamp(1, 8)


def test_newer_checkpoint_goes_before_the_memory_of_a_pod_that_was_away(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, Stamp(2, 90))
    found, _ = find([None, Stamp(1, 100)], tmp_path)
    assert {each.stamp for each in found} == {Stamp(2, 90)}
    assert {each.generation for each in found} == {3}


def test_torn_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, Stamp(1, 6))
    torn = write_checkpoint(tmp_path, Stamp(1, 7))
    torn.write_bytes(torn.read_bytes()[:-100])
    found, _ = find([None, None], tmp_path)
    assert {each.stamp for each in found} == {Stamp(1, 6)}
    found, _ = find([Stamp(1, 6), None], tmp_path)
    assert found[0].where == "the memory of rank 0", "the torn one is named after a newer step, and is none"


def test_beginning_is_that_of_rank_0(tmp_path: Path) -> None:
    found, _ = find([None, None], tmp_path / "not there yet")
    assert [each.stamp for each in found] == [NOTHING, NOTHING]
    assert {each.generation for each in found} == {1}


def test_generation_is_beyond_what_the_folder_is_claimed_for(tmp_path: Path) -> None:
    checkpoint_folder.claim(tmp_path, 7)
    assert find_newest(Alone(), None, str(tmp_path), tree(0)).generation == 8


def test_folder_that_cannot_be_read_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(OSError, match=r"a-file|Not a directory"):
        find([None, None], tmp_path / "a-file")


def test_checkpoint_that_cannot_be_read_is_no_reason_to_go_on_from_an_older_one(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, Stamp(1, 900))
    unreadable = write_checkpoint(tmp_path, Stamp(1, 1000))
    unreadable.unlink()
    unreadable.symlink_to(unreadable)  # opening it fails, as where a network's disk is in trouble
    with pytest.raises(OSError, match=r"Too many levels of symbolic links|rank 0 cannot read"):
        find([None, None], tmp_path)
