import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from elastic_pytorch.memory import slots
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.state_format.payload import PREFIX
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder
from elastic_pytorch.storage.checkpoint_file import load, load_newest
from elastic_pytorch.storage.checkpoint_folder import Superseded, claim, claimed, write
from elastic_pytorch.storage.checkpoint_format import CannotClaim
from elastic_pytorch.storage.local_folder import (
    CANNOT_RENAME,
    LocalFolder,
    sync_folder,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.worker_image.scripts.whole_checkpoints import newest, payload_of

pytestmark = pytest.mark.torch


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def steps(folder: Path) -> list[tuple[int, int]]:
    return [tuple(checkpoint.version) for checkpoint in newest(folder)]


def test_the_newest_comes_first_and_the_oldest_go(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "by" / "write"
    assert list(newest(folder)) == []
    for generation, step in ((1, 5), (1, 10), (2, 7), (2, 12), (10, 1)):
        path = write(
            folder,
            StateVersion(generation, step),
            [b"state ", bytearray(b"of "), memoryview(b"%d" % step)],
            keep=3,
        )
        assert payload_of(path) == b"state of %d" % step
    assert steps(folder) == [(10, 1), (2, 12), (2, 7)]
    write(folder, StateVersion(11, 1), [], keep=1)
    assert steps(folder) == [(11, 1)]


def test_an_older_one_never_deletes_a_newer_one(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        write(tmp_path, StateVersion(2, step), [b"x"], keep=9)
    write(tmp_path, StateVersion(2, 15), [b"x"], keep=1)
    assert steps(tmp_path) == [(2, 30), (2, 20), (2, 15)]
    write(tmp_path, StateVersion(1, 99), [b"x"], keep=1)
    assert steps(tmp_path) == [(2, 30), (2, 20), (2, 15), (1, 99)]


def test_the_same_stamp_twice_is_one_file(tmp_path: Path) -> None:
    write(tmp_path, StateVersion(1, 1), [b"first"], keep=2)
    path = write(tmp_path, StateVersion(1, 1), [b"second"], keep=2)
    assert [checkpoint.path for checkpoint in newest(tmp_path)] == [path]
    assert payload_of(path) == b"second"


def test_what_is_not_ours_is_let_be(tmp_path: Path) -> None:
    others = [
        "notes.txt",
        "checkpoint-g1-s1.pt",
        ".partial-something",
        "checkpoint-g000001-s000000001.elastic.bak",
        # More than a checkpoint's header holds.
        "checkpoint-g9999999999999999999-s000000001.elastic",
        ".claim-g9999999999999999999",
    ]
    for name in others:
        (tmp_path / name).write_text("mine")
    for step in range(5):
        write(tmp_path, StateVersion(9, step), [b"x"], keep=1)
    assert steps(tmp_path) == [(9, 4)]
    assert all((tmp_path / name).read_text() == "mine" for name in others)


def test_remains_go_when_they_are_old_or_of_an_older_group(tmp_path: Path) -> None:
    now = time.time()
    ages = {
        "g000002-s000000001-" + "a" * 16: 7200,
        "g000002-s000000001-" + "b" * 16: 60,
        "g000001-s000000009-" + "c" * 16: 60,
    }
    for name, age in ages.items():
        (tmp_path / f".partial-{name}").touch()
        os.utime(tmp_path / f".partial-{name}", (now - age, now - age))
    write(tmp_path, StateVersion(2, 5), [b"x"], keep=1)
    assert [path.name for path in tmp_path.glob(".partial*")] == [
        ".partial-g000002-s000000001-" + "b" * 16
    ]


def test_a_claim_keeps_older_groups_out(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert claimed(folder) == 0
    claim(folder, 3)
    write(folder, StateVersion(3, 1), [b"x"], keep=1)
    claim(folder, 4)
    claim(folder, 2)  # late, and of no effect
    assert claimed(folder) == 4
    before = names(folder)
    with pytest.raises(Superseded, match="is claimed by generation 4, and this is generation 3"):
        write(folder, StateVersion(3, 2), [b"x"], keep=1)
    assert names(folder) == before
    write(folder, StateVersion(4, 1), [b"x"], keep=1)
    assert steps(folder) == [(4, 1)]
    claim(folder, 5)
    assert [name for name in names(folder) if "claim" in name] == [".claim-g000005"]


def test_a_claim_comes_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    write(tmp_path, StateVersion(1, 1), [b"x"], keep=1)

    def chunks() -> Iterator[bytes]:
        yield b"a"
        claim(tmp_path, 2)
        yield b"b"

    with pytest.raises(Superseded):
        write(tmp_path, StateVersion(1, 2), chunks(), keep=1)
    assert steps(tmp_path) == [(1, 1)]
    assert list(tmp_path.glob(".partial*")) == []


def test_chunks_that_end_in_an_error_leave_nothing(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"a"
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write(tmp_path, StateVersion(1, 2), chunks(), keep=1)
    assert names(tmp_path) == []


def test_nothing_is_deleted_before_the_new_one_is_safe(tmp_path: Path) -> None:
    write(tmp_path, StateVersion(1, 1), [b"x"], keep=1)
    watched = {os.write, os.fsync, os.rename, os.unlink}
    calls: list[str] = []

    def profile(_frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and called in watched:
            calls.append(called.__name__)

    sys.setprofile(profile)
    try:
        write(tmp_path, StateVersion(1, 2), [b"x", b"y"], keep=1)
    finally:
        sys.setprofile(None)
    assert calls == ["write"] * 4 + ["fsync", "rename", "fsync", "unlink"]


@pytest.mark.parametrize("folder", ["/proc/nothing/here", "/dev/null/under", "/etc/hostname"])
def test_a_folder_that_cannot_be_written_is_an_os_error(folder: str) -> None:
    with pytest.raises(OSError):
        write(folder, StateVersion(1, 1), [b"x"], keep=1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("whole")
    tree = {"w": torch.arange(50.0), "b": torch.zeros(0), "step": 7, "rate": float("inf")}
    snapshot = Snapshot.create("test")
    snapshot.write(StateVersion(3, 7), tree)
    (slot,) = slots.valid_slots(snapshot.fd)
    path = write(
        folder, StateVersion(3, 7), [os.pread(snapshot.fd, slot.length, slot.offset)], keep=1
    )
    snapshot.close()
    version, back = load(path)
    assert version == StateVersion(3, 7)
    assert torch.equal(back["w"], tree["w"])  # type: ignore[arg-type]
    assert (back["step"], back["rate"]) == (7, float("inf"))
    return path.read_bytes()


def assert_found(folder: Path, data: bytes) -> None:
    path = folder / "checkpoint-g000003-s000000007.elastic"
    path.write_bytes(data)
    assert list(newest(folder)) == []
    assert load_newest(folder, StateVersion(0, 0)) is None
    with pytest.raises(ValueError, match=r"torn|corrupt|foreign"):
        load(path)


@given(data=st.data())
def test_any_flipped_bit_is_found(
    data: st.DataObject, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    assert_found(tmp_path_factory.getbasetemp(), bytes(flipped))


@given(data=st.data())
def test_any_truncation_is_found(
    data: st.DataObject, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    end = data.draw(st.integers(0, len(whole) - 1))
    assert_found(tmp_path_factory.getbasetemp(), whole[:end])


@given(tail=st.binary(min_size=1, max_size=200))
def test_anything_behind_it_is_found(
    tail: bytes, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert_found(tmp_path_factory.getbasetemp(), whole + tail)


def test_what_is_skipped_is_logged_with_the_reason(
    tmp_path: Path, whole: bytes, log: pytest.LogCaptureFixture
) -> None:
    good = tmp_path / "checkpoint-g000003-s000000007.elastic"
    good.write_bytes(whole)
    newer_release = whole[:8] + b"\x09" + whole[9:]
    broken = {
        4: b"hello",
        5: b"",
        6: whole[:-1],
        7: whole[:200] + bytes([whole[200] ^ 1]) + whole[201:],
        8: newer_release,
        9: whole,
    }
    for generation, data in broken.items():
        (tmp_path / f"checkpoint-g{generation:06}-s000000001.elastic").write_bytes(data)
    (tmp_path / "checkpoint-g000010-s000000001.elastic").mkdir()
    expected = [
        f"[Errno 21] Is a directory: '{tmp_path}/checkpoint-g000010-s000000001.elastic'",
        "foreign: it is named after (9, 1), and holds (3, 7)",
        "foreign: it is of version 9, and this release reads version 1",
        "corrupt: the checksum is wrong",
        "torn: it does not end as a checkpoint does",
        "torn: it has 0 bytes",
        "foreign: it does not begin as a checkpoint does",
    ]

    def reasons() -> list[str]:
        found = [text.split("is skipped: ")[1] for text in log.messages if "is skipped: " in text]
        log.clear()
        return found

    assert [checkpoint.path for checkpoint in newest(tmp_path)] == [good]
    loaded = load_newest(tmp_path, StateVersion(0, 0))
    assert loaded is not None
    assert (loaded.path, loaded.version, loaded.tree["step"]) == (good, StateVersion(3, 7), 7)
    assert reasons() == expected
    assert load_newest(tmp_path, StateVersion(3, 7)) is None
    assert reasons() == expected
    assert load_newest(tmp_path, StateVersion(8, 1)) is None
    assert reasons() == expected[:2]


def skeleton(tree: str) -> bytes:
    text = b'{"version":1,"tree":%s}' % tree.encode()
    return PREFIX.pack(0, len(text)) + text


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"x" * 63,
        b"x" * 64,
        b"\0" * 64,
        PREFIX.pack(0, 5) + b"[[[[[",
        skeleton('["T","float32",4611686018427387904,4]'),
        skeleton('["T","float32",' + "9" * 30 + "]"),
        skeleton('["T","float32",-1]'),
        skeleton('["T","float32",5]'),
    ],
)
def test_a_whole_file_of_another_payload_is_no_state(payload: bytes, tmp_path: Path) -> None:
    path = checkpoint_folder.write(tmp_path, StateVersion(1, 1), [payload], keep=1)
    with pytest.raises(ValueError, match="no state"):
        load(path)
    assert load_newest(tmp_path, StateVersion(0, 0)) is None


def test_folders_of_proc_cannot_be_synced(tmp_path: Path) -> None:
    sync_folder(Path("/proc/self"))
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "missing")


class WithoutRenames(LocalFolder):
    """A folder of a file system that refuses to rename, as mounted buckets do."""

    def __init__(self, path: Path, error: int) -> None:
        super().__init__(path)
        self._error = error

    def rename(self, partial: Path, name: str) -> None:
        raise OSError(self._error, os.strerror(self._error), str(partial), None, name)


@pytest.mark.parametrize("error", sorted(CANNOT_RENAME))
def test_folder_that_cannot_rename_is_refused_before_the_first_step(
    tmp_path: Path, error: int
) -> None:
    with pytest.raises(
        CannotClaim, match=r"cannot be renamed, as in a mounted bucket.*s3://BUCKET/PREFIX"
    ):
        claim(WithoutRenames(tmp_path, error), 1)
    assert names(tmp_path) == []


def test_folder_whose_disk_is_full_is_not_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        claim(WithoutRenames(tmp_path, errno.ENOSPC), 1)
