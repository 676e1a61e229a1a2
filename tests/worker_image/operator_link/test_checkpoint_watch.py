import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elastic_pytorch.operator_link.checkpoint_watch import (
    CheckpointCount,
    CheckpointWatch,
    find_files,
)

from tests.situations import situations
from tests.waiting import until

Write = Callable[[Path], Any]


def write(name: str, content: str = "weights") -> Write:
    def write_it(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    return write_it


def append(name: str) -> Write:
    def append_it(folder: Path) -> None:
        with (folder / name).open("a") as file:
            file.write("more")

    return append_it


def replace(name: str, temporary: str) -> Write:
    """Writes beside a file and renames, as a careful script does: same size, same time even."""

    def replace_it(folder: Path) -> None:
        path, beside = folder / name, folder / temporary
        before = path.stat()
        beside.write_bytes(b"x" * before.st_size)
        os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
        beside.replace(path)

    return replace_it


def nothing(_: Path) -> None: ...


def rename(old: str, new: str) -> Write:
    return lambda folder: (folder / old).rename(folder / new)


def remove(name: str) -> Write:
    return lambda folder: (folder / name).unlink()


def link(name: str, target: str) -> Write:
    return lambda folder: (folder / name).symlink_to(folder / target)


UNFINISHED = [".b.pt", *(f"b{end}" for end in (".pt.tmp", ".pt.partial", ".new", "~", ".lock"))]
UNFINISHED += ["train.log", "loss.jsonl", ".git/b.pt"]
CHANGES: dict[str, tuple[list[Write], list[int]]] = {
    "what was there before is none": ([nothing, nothing], [0, 0]),
    "a new file, once it is left alone": ([write("b.pt"), nothing, nothing], [0, 1, 1]),
    "a file written anew": ([write("a.pt", "other weights"), nothing, nothing], [0, 1, 1]),
    "a file renamed into its place": ([replace("a.pt", "a.pt.tmp"), nothing], [0, 1]),
    "a file that grows": ([write("b.pt"), *[append("b.pt")] * 2, nothing], [0, 0, 0, 1]),
    "two files that are one": ([write("b/0.pt"), write("b/1.pt"), *[nothing] * 2], [0, 0, 1, 1]),
    "two in a row": ([write("b.pt"), nothing, write("c.pt"), nothing], [0, 1, 1, 2]),
    "a folder that is renamed when it is full": (
        [write("b.tmp/0.pt"), nothing, rename("b.tmp", "b"), nothing],
        [0, 0, 0, 1],
    ),
    "two folders below": ([write("run/step-5/0.pt"), nothing], [0, 1]),
    "three folders below": ([write("run/step-5/shards/0.pt"), nothing], [0, 0]),
    "an old one is removed": ([remove("a.pt"), nothing], [0, 0]),
    "one is finished while an old one is removed": ([write("b.pt"), remove("a.pt")], [0, 1]),
    "a link to the newest": ([link("latest", "a.pt"), nothing], [0, 0]),
    "a folder in a circle": ([link("again", "."), nothing], [0, 0]),
    "one that is empty yet": ([write("b.pt", ""), nothing, write("b.pt"), nothing], [0, 0, 0, 1]),
    **{f"an unfinished or another file: {n}": ([write(n), nothing], [0, 0]) for n in UNFINISHED},
    "events of TensorBoard": ([write("events.out.tfevents.17"), nothing], [0, 0]),
    "a log that is written all the time": ([write("b.pt"), *[append("train.log")] * 2], [0, 1, 1]),
}


@situations("changes,counts", CHANGES)
def test_checkpoints_are_counted(tmp_path: Path, changes: list[Write], counts: list[int]) -> None:
    write("a.pt")(tmp_path)
    write("train.log")(tmp_path)
    checkpoints = CheckpointCount()
    checkpoints.begin(find_files(str(tmp_path)))
    told = []
    for change in changes:
        change(tmp_path)
        checkpoints.add_scan(find_files(str(tmp_path)))
        told.append(checkpoints.count)
    assert told == counts


def test_what_was_written_between_two_rounds_is_no_checkpoint_of_the_second(tmp_path: Path) -> None:
    checkpoints = CheckpointCount()
    checkpoints.begin(find_files(str(tmp_path)))
    write("a.pt")(tmp_path)
    assert not checkpoints.add_scan(find_files(str(tmp_path)))
    checkpoints.begin(find_files(str(tmp_path)))
    assert not checkpoints.add_scan(find_files(str(tmp_path)))


def test_folder_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert find_files(str(tmp_path / "later")) == {}


def test_folder_that_is_none_is_an_error(tmp_path: Path) -> None:
    write("file")(tmp_path)
    with pytest.raises(OSError, match="file"):
        find_files(str(tmp_path / "file"))


def test_huge_folder_is_looked_at_in_part_and_its_newest_folders_first(tmp_path: Path) -> None:
    for number in range(10):
        write(f"step-{number}/0.pt")(tmp_path)
        write(f"step-{number}/1.pt")(tmp_path)
        os.utime(tmp_path / f"step-{number}", (number, number))
    found = {str(Path(path).relative_to(tmp_path)) for path in find_files(str(tmp_path), most=20)}
    assert found == {f"step-{number}/{shard}.pt" for number in range(5, 10) for shard in (0, 1)}
    assert len(find_files(str(tmp_path))) == 20


def test_file_that_was_out_of_sight_for_a_while_is_not_new() -> None:
    checkpoints = CheckpointCount()
    one, other = {"a.pt": (1, 7, 100)}, {"b.pt": (2, 7, 100)}
    checkpoints.begin(one | other)
    for files in (one, other, one, other):
        assert not checkpoints.add_scan(files)


class Running:
    """The number of the round whose workers run.

    The watch asks for it before each look at the folder.
    """

    def __init__(self, number: int) -> None:
        self._number, self._asked = number, 0

    def __call__(self) -> int:
        self._asked += 1
        return self._number

    def begin(self, number: int) -> None:
        """Has workers run, and waits for the first look, which takes what is there for known."""
        self._number = number
        asked = self._asked
        until(lambda: self._asked >= asked + 2)


@pytest.mark.process
def test_watch_tells_of_checkpoints_while_workers_run(tmp_path: Path) -> None:
    told: list[int | None] = []
    running = Running(0)
    folder = tmp_path / "checkpoints"
    CheckpointWatch(str(folder), running, told.append).start()
    assert told == [0], "it watches: that is worth telling"
    write("a.pt")(folder)
    running.begin(1)
    for count, name in enumerate(("b.pt", "c.pt"), 1):
        write(name)(folder)
        until(lambda count=count: told == list(range(count + 1)))


def test_watch_of_what_cannot_be_read_says_so_until_it_can(tmp_path: Path) -> None:
    told: list[int | None] = []
    folder = tmp_path / "checkpoints"
    folder.write_text("in the way")
    CheckpointWatch(str(folder), Running(1), told.append).start()
    until(lambda: told == [0, None])
    folder.unlink()
    until(lambda: told == [0, None, 0])
    write("a.pt")(folder)
    until(lambda: told == [0, None, 0, 1])
