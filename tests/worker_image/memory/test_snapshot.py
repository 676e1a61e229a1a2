import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from elastic_pytorch.memory import slot_memory, slots
from elastic_pytorch.memory.commit_copies import Tensors, copy_at_once
from elastic_pytorch.memory.slot_memory import SlotMemory, room
from elastic_pytorch.memory.slots import pin_newest, still_holds, unpin
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.state_format.state_encoding import UnsupportedValue
from elastic_pytorch.state_format.state_version import StateVersion

from tests.paths import ROOT
from tests.worker_image.scripts.snapshots import read_newest
from tests.worker_image.warm_python import run_python, script_code

pytestmark = pytest.mark.torch

SCRIPT = ROOT / "tests" / "worker_image" / "scripts" / "snapshot_deaths.py"


def state(step: int, size: int = 100) -> dict[str, Any]:
    return {
        "step": step,
        "w": torch.full((size,), float(step)),
        "turned": torch.full((3, 2), step).t(),
    }


def step_of(snapshot: Snapshot) -> int:
    version, tree = read_newest(snapshot)
    assert tree["step"] == version.step
    assert set(tree["w"].tolist()) | set(tree["turned"].flatten().tolist()) == {version.step}
    return version.step


@pytest.fixture
def snapshot() -> Iterator[Snapshot]:
    made = Snapshot.create("test")
    yield made
    made.close()


def write(snapshot: Snapshot, *steps: int) -> None:
    for step in steps:
        snapshot.write(StateVersion(1, step), state(step))


def test_what_was_written_last_is_read(snapshot: Snapshot) -> None:
    assert snapshot.newest() is None
    with pytest.raises(LookupError):
        read_newest(snapshot)
    for step in range(1, 8):
        snapshot.write(StateVersion(2, step), state(step))
        assert snapshot.newest() == StateVersion(2, step)
        assert step_of(snapshot) == step


def test_a_state_may_change_its_shape(snapshot: Snapshot) -> None:
    for step, size in enumerate((1, 0, 10**6, 10, 10**6, 5)):
        snapshot.write(
            StateVersion(1, step),
            {"step": step, "w": torch.full((size,), step), "turned": torch.tensor(step)},
        )
        version, tree = read_newest(snapshot)
        assert version.step == step
        assert tree["w"].tolist() == [step] * size
    snapshot.write(StateVersion(1, 9), {"text": "x" * 10**6})
    assert read_newest(snapshot)[1] == {"text": "x" * 10**6}
    snapshot.write(StateVersion(1, 10), None)
    assert read_newest(snapshot) == (StateVersion(1, 10), None)


def test_what_is_read_is_private(snapshot: Snapshot) -> None:
    write(snapshot, 1)
    _, tree = read_newest(snapshot)
    write(snapshot, 2, 3, 4, 5)
    assert tree["w"].tolist() == [1.0] * 100
    tree["w"].zero_()
    assert step_of(snapshot) == 5
    assert tree["w"].untyped_storage().nbytes() == 400


def test_another_process_may_go_on_with_it() -> None:
    first = Snapshot.create("test")
    first.write(StateVersion(1, 7), state(7))
    second = Snapshot(os.dup(first.fd))
    first.close()
    assert second.newest() == StateVersion(1, 7)
    second.write(StateVersion(2, 3), state(3))
    third = Snapshot(os.dup(second.fd))
    assert third.newest() == StateVersion(2, 3)
    assert step_of(third) == 3


def test_what_cannot_be_saved_changes_nothing(snapshot: Snapshot) -> None:
    write(snapshot, 1)
    with pytest.raises(UnsupportedValue, match="hook"):
        snapshot.write(StateVersion(1, 2), {**state(2), "hook": print})
    assert step_of(snapshot) == 1


def test_a_pinned_state_stays_while_others_are_written(snapshot: Snapshot) -> None:
    assert pin_newest(snapshot.fd) is None
    write(snapshot, 1)
    slot = pin_newest(snapshot.fd)
    before = os.pread(snapshot.fd, slot.length, slot.offset)
    for step in range(2, 9):
        snapshot.write(StateVersion(1, step), state(step))
        assert step_of(snapshot) == step
    assert still_holds(snapshot.fd, slot)
    assert os.pread(snapshot.fd, slot.length, slot.offset) == before
    unpin(snapshot.fd)
    write(snapshot, 9, 10)
    assert not still_holds(snapshot.fd, slot)


def test_pins_and_writes_at_the_same_time(snapshot: Snapshot) -> None:
    snapshot.write(StateVersion(1, 0), {"w": torch.zeros(1000)})
    ended = threading.Event()
    wrong = []

    def pin() -> None:
        while not ended.is_set():
            slot = pin_newest(snapshot.fd)
            data = os.pread(snapshot.fd, 4000, slot.offset + 64)
            if still_holds(snapshot.fd, slot) and set(memoryview(data).cast("f")) != {
                float(slot.version.step)
            }:
                wrong.append(slot)
            unpin(snapshot.fd)

    thread = threading.Thread(target=pin)
    thread.start()
    for step in range(1, 3000):
        snapshot.write(StateVersion(1, step), {"w": torch.full((1000,), float(step))})
    ended.set()
    thread.join()
    assert wrong == []


def test_a_pin_that_moves_from_slot_to_slot_leaves_one_to_write_to() -> None:
    class Pinned(Snapshot):
        """The pin is on each slot just as the writer looks at it, once."""

        def __init__(self, fd: int, count: int = slots.SLOTS) -> None:
            super().__init__(fd, count)
            self.pins = iter(())

        def _pinned(self) -> int | None:
            return next(self.pins, None)

    snapshot = Pinned.create("test")
    assert isinstance(snapshot, Pinned)
    write(snapshot, 1, 2, 3)
    snapshot.pins = iter(range(slots.SLOTS))
    write(snapshot, 4)
    assert step_of(snapshot) == 4


def test_other_files_are_no_snapshots(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 5000)
    for path in (tmp_path / "file", Path("/dev/null")):
        fd = os.open(path, os.O_RDWR)
        with pytest.raises(ValueError, match="not a snapshot"):
            Snapshot(fd)
        os.close(fd)


def test_a_damaged_entry_is_no_state(snapshot: Snapshot) -> None:
    write(snapshot, 1, 2)
    slot, _ = slots.valid_slots(snapshot.fd)
    for byte in range(36):
        at = slots.entry_offset(slot.number) + byte
        (was,) = os.pread(snapshot.fd, 1, at)
        os.pwrite(snapshot.fd, bytes([was ^ 1]), at)
        assert snapshot.newest() == StateVersion(1, 1)
        os.pwrite(snapshot.fd, bytes([was]), at)
    assert step_of(snapshot) == 2


MEMORY_STATE_BYTES = 4 * 10**6


def states_in_memory(snapshot: Snapshot) -> int:
    """For how many states of so many bytes memory is taken."""
    for thread in threading.enumerate():
        if thread.name == "snapshot memory":
            thread.join(60)
    return os.fstat(snapshot.fd).st_blocks * 512 // MEMORY_STATE_BYTES


def test_memory_is_for_two_states_and_a_third_only_during_a_flush(
    snapshot: Snapshot,
) -> None:
    def write(step: int) -> int:
        snapshot.write(
            StateVersion(1, step), {"w": torch.full((MEMORY_STATE_BYTES // 4,), float(step))}
        )
        assert (read_newest(snapshot)[1]["w"] == step).all()
        return states_in_memory(snapshot)

    assert write(1) == 2, "so that the next commit does not wait for memory"
    assert [write(step) for step in range(2, 6)] == [2] * 4
    for step in range(10, 40, 10):
        assert pin_newest(snapshot.fd) is not None
        assert write(step) == 2
        assert [write(step + more) for more in range(1, 4)] == [3] * 3
        unpin(snapshot.fd)
        assert [write(step + more) for more in range(4, 7)] == [2] * 3


def test_memory_that_a_process_before_has_left_is_given_back() -> None:
    before = Snapshot.create("test")
    tree = {"w": torch.zeros(MEMORY_STATE_BYTES // 4)}
    before.write(StateVersion(1, 1), tree)
    assert pin_newest(before.fd) is not None
    before.write(StateVersion(1, 2), tree)
    before.write(StateVersion(1, 3), tree)
    assert states_in_memory(before) == 3
    unpin(before.fd)
    after = Snapshot(os.dup(before.fd))
    before.close()
    after.write(StateVersion(2, 3), tree)
    assert states_in_memory(after) == 2
    assert after.newest() == StateVersion(2, 3)
    after.close()


class Held:
    """A copy that goes on until it is let go, and may turn out to be of no worth."""

    def __init__(self, targets: Tensors, sources: Tensors, *, whole: bool = True) -> None:
        self.targets, self.sources, self.whole, self.let_go = targets, sources, whole, False

    def done(self) -> bool:
        return self.let_go

    def finish(self) -> bool:
        copy_at_once(self.targets, self.sources)
        return self.whole


def test_a_state_is_the_newest_when_its_copy_is_complete() -> None:
    held: list[Held] = []

    def copy(targets: Tensors, sources: Tensors) -> Held:
        held.append(Held(targets, sources))
        return held[-1]

    snapshot = Snapshot.create("test")
    write(snapshot, 1)
    snapshot.start(StateVersion(1, 2), state(2), copy)
    assert snapshot.copying
    assert not snapshot.settle(wait=False)
    assert step_of(snapshot) == 1
    held[0].let_go = True
    assert snapshot.settle(wait=False)
    assert step_of(snapshot) == 2
    snapshot.start(StateVersion(1, 3), state(3), copy)
    snapshot.start(StateVersion(1, 4), state(4), copy)
    assert step_of(snapshot) == 3, "one ends before the next begins"
    again = Snapshot(os.dup(snapshot.fd))
    snapshot.close()
    assert step_of(again) == 4, "and all before it is closed"


def test_a_copy_that_is_of_no_worth_is_never_read(snapshot: Snapshot) -> None:
    write(snapshot, 1)
    for step in range(2, 5):
        snapshot.start(StateVersion(1, step), state(step), partial(Held, whole=False))
        assert snapshot.settle(wait=True)
        assert step_of(snapshot) == 1
    write(snapshot, 5)
    assert step_of(snapshot) == 5


def test_death_at_any_point_leaves_a_whole_state() -> None:
    done = run_python(script_code(SCRIPT))
    assert done.returncode == 0, done.stderr
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(look["right"] for look in looks), looks
    at_lines = [look for look in looks if look["kind"] == "line"]
    assert len(at_lines) >= 40
    assert {look["moved"] for look in at_lines} == {0, 1}
    kills = [look for look in looks if look["kind"] == "kill"]
    assert len(kills) == 30
    assert any(look["moved"] > 0 for look in kills)


def test_container_without_room_is_told_instead_of_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def left(number: int | None) -> None:
        monkeypatch.setattr(slot_memory, "room", lambda: number)

    snapshot, kinds = Snapshot.create("test"), [(torch.float32, torch.Size([1 << 20]))]
    left(4 << 20)
    with pytest.raises(
        MemoryError, match=r"takes 0.0 GB more of the pod's memory.*raise resources.limits.memory"
    ):
        SlotMemory(snapshot.fd, 0, kinds, 100)
    left(None)
    snapshot.write(StateVersion(1, 1), {"weights": torch.ones(1 << 20)})
    [slot] = snapshot.slots()
    left(0)
    SlotMemory(snapshot.fd, slot.number, kinds, 100)  # which has its memory
    left(9 << 20)
    grown = [(torch.float32, torch.Size([3 << 20]))]  # as with the first step of an optimizer
    SlotMemory(snapshot.fd, slot.number, grown, 100)
    with pytest.raises(MemoryError):
        SlotMemory(snapshot.fd, 2, grown, 100)
    snapshot.close()


STAT = "anon 600\ninactive_file 100\nactive_file 50\n"


@pytest.mark.parametrize(
    ("files", "bytes_left"),
    [
        ({"max": "1000", "current": "900", "stat": STAT}, None),
        ({"max": "1000", "current": "900", "stat": f"{STAT}slab_reclaimable 30\n"}, 280),
        ({"max": "max", "current": "9", "stat": f"{STAT}slab_reclaimable 1\n"}, None),
        ({}, None),
    ],
)
def test_room_of_a_container_is_what_it_has_not_taken_or_can_take_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    bytes_left: int | None,
) -> None:
    for name, content in files.items():
        (tmp_path / f"memory.{name}").write_text(content)
    monkeypatch.setattr(slot_memory, "CGROUP", tmp_path)
    assert room() == bytes_left
