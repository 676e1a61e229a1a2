import os
import queue
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_writer
from elastic_pytorch.storage.checkpoint_writer import (
    MAX_TROUBLE,
    PLACES,
    CheckpointWriter,
    Flush,
)
from elastic_pytorch.storage.places import Place, place_at

from tests.waiting import WAIT_SECONDS, until
from tests.worker_image.scripts.whole_checkpoints import newest

pytestmark = pytest.mark.torch

Answers = queue.Queue[tuple[str, StateVersion | None]]


class SlowWriter(CheckpointWriter):
    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(clock=lambda: self.now)

    def _write(self, flush: Flush) -> StateVersion:
        version = super()._write(flush)
        self.now += 1e6
        return version


class Snapshots:
    """Two snapshots, and what the writer answers."""

    def __init__(self, folder: Path, writer: CheckpointWriter) -> None:
        self.writer = writer
        self.folder = folder
        self.snapshots = {name: Snapshot.create(name) for name in ("a", "b")}
        self.answers: Answers = queue.Queue()

    def ask(self, name: str, step: int, *, now: bool = False) -> None:
        snapshot = self.snapshots[name]
        snapshot.write(StateVersion(1, step), step)
        folder = str(self.folder / name)
        fd = os.dup(snapshot.fd)
        self.writer.ask(
            Flush(name, fd, folder, 9, lambda version, _: self.answers.put((name, version)), now)
        )

    def answer(self) -> tuple[str, StateVersion | None]:
        return self.answers.get(timeout=WAIT_SECONDS)

    def on_disk(self, name: str) -> list[int]:
        return [checkpoint.version.step for checkpoint in newest(self.folder / name)]


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Snapshots]:
    made = Snapshots(tmp_path, SlowWriter())
    yield made
    for snapshot in made.snapshots.values():
        snapshot.close()


def test_rests_after_a_write_but_not_for_one_that_is_wanted_now(slow: Snapshots) -> None:
    slow.ask("a", 1)
    assert slow.answer() == ("a", StateVersion(1, 1))
    slow.ask("a", 2)
    slow.ask("b", 1, now=True)
    assert slow.answer() == ("b", StateVersion(1, 1))
    slow.ask("a", 3)
    slow.ask("b", 2, now=True)
    assert slow.answer() == ("b", StateVersion(1, 2))
    assert slow.on_disk("a") == [1], "it rests"
    slow.ask("a", 4, now=True)
    assert slow.answer() == ("a", StateVersion(1, 4))
    assert slow.on_disk("a") == [4, 1]


def test_what_is_wanted_now_is_not_delayed_by_a_request_that_replaces_it(slow: Snapshots) -> None:
    slow.ask("a", 1)
    assert slow.answer() == ("a", StateVersion(1, 1))
    slow.ask("a", 2, now=True)
    slow.ask("a", 3)
    assert slow.answer()[1] in (StateVersion(1, 2), StateVersion(1, 3))
    slow.ask("b", 1, now=True)
    until(lambda: slow.answer()[0] == "b")
    assert slow.on_disk("a")[0] in (2, 3)


def test_who_waits_for_the_end_of_all_does_not_wait_for_rest(slow: Snapshots) -> None:
    slow.ask("a", 1)
    assert slow.answer() == ("a", StateVersion(1, 1))
    slow.ask("a", 2)
    assert slow.writer.drain(WAIT_SECONDS)
    assert slow.on_disk("a") == [2, 1]


def test_goes_on_when_it_has_rested(tmp_path: Path) -> None:
    quick = Snapshots(tmp_path, CheckpointWriter())
    for step in range(1, 6):
        quick.ask("a", step)
        assert quick.answer() == ("a", StateVersion(1, step))


class UnevenWriter(CheckpointWriter):
    """Each write takes the next of some times by its clock; one without fails at a minute."""

    def __init__(self, seconds: list[float | None]) -> None:
        self.now, self._takes = 0.0, iter(seconds)
        super().__init__(clock=lambda: self.now)

    def _write(self, flush: Flush) -> StateVersion:
        seconds = next(self._takes)
        self.now += 60.0 if seconds is None else seconds
        if seconds is None:
            raise OSError("the storage does not answer")
        return super()._write(flush)


@pytest.mark.parametrize(
    ("writes", "rest"),
    [
        pytest.param([2.0, 40.0], 18.0, id="the node stood still in a write"),
        pytest.param([2.0, None], 18.0, id="the storage was away"),
    ],
)
def test_rests_as_long_as_its_writes_usually_take(
    tmp_path: Path, writes: list[float | None], rest: float
) -> None:
    writer = UnevenWriter([*writes, 0.0, 0.0])
    made = Snapshots(tmp_path, writer)
    for step in range(len(writes)):
        made.ask("a", step, now=True)
        made.answer()
    written = made.on_disk("a")
    writer.now += rest - 0.1
    made.ask("a", 9)
    made.ask("b", 1, now=True)
    assert made.answer()[0] == "b", "it rests"
    assert made.on_disk("a") == written
    writer.now += 0.2
    made.ask("a", 10)
    assert made.answer() == ("a", StateVersion(1, 10))
    for snapshot in made.snapshots.values():
        snapshot.close()


def test_small_state_does_not_shorten_the_rest_of_a_large_one(tmp_path: Path) -> None:
    writer = UnevenWriter([0.1, 0.1, 10.0, 0.0, 0.0])
    made = Snapshots(tmp_path, writer)
    for name, step in (("a", 1), ("a", 2), ("b", 1)):
        made.ask(name, step, now=True)
        made.answer()
    writer.now += 89.0
    made.ask("b", 2)
    made.ask("a", 3, now=True)
    assert made.answer()[0] == "a"
    assert made.on_disk("b") == [1], "it rests"
    for snapshot in made.snapshots.values():
        snapshot.close()


def test_request_that_writes_nothing_is_no_measure(tmp_path: Path) -> None:
    writer = UnevenWriter([10.0, 0.0, 10.0, 0.0])
    made = Snapshots(tmp_path, writer)
    for step in (1, 1, 2):
        made.ask("a", step, now=True)
        assert made.answer() == ("a", StateVersion(1, step))
    writer.now += 89.0
    made.ask("a", 3)
    made.ask("b", 1, now=True)
    assert made.answer()[0] == "b"
    assert made.on_disk("a") == [2, 1], "it rests"
    for snapshot in made.snapshots.values():
        snapshot.close()


def test_trouble_of_any_length_fits_into_a_message(tmp_path: Path) -> None:
    class Failing(CheckpointWriter):
        def _write(self, flush: Flush) -> StateVersion:
            raise ValueError("x" * 10**6)

    told: queue.Queue[str] = queue.Queue()
    snapshot = Snapshot.create("a")
    Failing().ask(
        Flush("a", os.dup(snapshot.fd), str(tmp_path), 1, lambda _, trouble: told.put(trouble))
    )
    assert len(told.get(timeout=WAIT_SECONDS)) == MAX_TROUBLE
    snapshot.close()


def test_places_that_are_kept_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Place]] = []

    def make(folder: str) -> Place:
        place = place_at(folder)
        made.append(weakref.ref(place))
        return place

    monkeypatch.setattr(checkpoint_writer, "place_at", make)
    snapshots = Snapshots(tmp_path, CheckpointWriter())
    for number in range(PLACES + 5):  # each training has a folder of its own
        snapshots.folder = tmp_path / f"{number}"
        snapshots.ask("a", number, now=True)
        assert snapshots.answer() == ("a", StateVersion(1, number))
    assert len(made) == PLACES + 5
    assert sum(each() is not None for each in made) <= PLACES + 1


def test_training_that_begins_again_in_an_emptied_folder_is_written(tmp_path: Path) -> None:
    """It comes to the same version, in a memory of its own."""
    writer = CheckpointWriter()
    for _ in range(2):
        made = Snapshots(tmp_path, writer)
        made.ask("a", 1, now=True)
        assert made.answer() == ("a", StateVersion(1, 1))
        assert made.on_disk("a") == [1]
        shutil.rmtree(tmp_path / "a")
