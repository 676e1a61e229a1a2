import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
import torch
from elastic_pytorch.object_url import ObjectUrl
from elastic_pytorch.state_format.payload import payload_chunks
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_file, checkpoint_folder
from elastic_pytorch.storage.checkpoint_file import load, load_newest
from elastic_pytorch.storage.checkpoint_folder import (
    Superseded,
    by_name,
    claim,
    claimed,
    write,
)
from elastic_pytorch.storage.object_store import RETRIES, ObjectStore
from elastic_pytorch.storage.object_streams import PART_BYTES
from elastic_pytorch.storage.places import place_at

from tests.paths import ROOT
from tests.waiting import WAIT_SECONDS
from tests.worker_image.object_storage import (
    Answer,
    Bucket,
    CutAnswer,
    CutRequest,
    Fault,
    Request,
    s3_error,
)
from tests.worker_image.scripts.whole_checkpoints import newest
from tests.worker_image.warm_python import run_python

pytestmark = [pytest.mark.torch, pytest.mark.process]

NOTHING = StateVersion(0, 0)
FEW = {"max_retries": 1, "backoff": {}}
SLOW_DOWN = s3_error(503, "SlowDown")
long = partial(pytest.param, marks=pytest.mark.long)


def large(step: int = 1, tensors: int = 36) -> dict[str, Any]:
    """A state of three parts, or of two with 20 tensors, many of which span parts."""
    generator = torch.Generator().manual_seed(step)
    made = [
        torch.randint(0, 256, (1_000_003,), dtype=torch.uint8, generator=generator)
        for _ in range(tensors)
    ]
    return {"w": made, "step": step}


def same(one: Any, other: Any) -> bool:
    return one["step"] == other["step"] and all(
        torch.equal(a, b) for a, b in zip(one["w"], other["w"], strict=True)
    )


def steps(url: str) -> list[tuple[int, int]]:
    return [tuple(checkpoint.version) for checkpoint in newest(url)]


def in_a_thread(action: Callable[..., Any], *arguments: Any) -> Any:
    """As another process would: the uploading thread drives the library all by itself."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(action, *arguments).result()


def name_of(fault: Answer | CutAnswer | CutRequest) -> str:
    return (
        str(fault.status) if isinstance(fault, Answer) else f"{type(fault).__name__} {fault.after}"
    )


def once(kind: str, fault: Fault) -> Callable[[Request], Fault]:
    """The first request of a kind meets a fault."""
    left = iter([fault])
    return lambda request: next(left, None) if request.kind == kind else None


def test_the_newest_comes_first_and_the_oldest_go(bucket: Bucket) -> None:
    assert list(newest(bucket.url)) == []
    for generation, step in ((1, 5), (1, 10), (2, 7), (2, 12), (10, 1)):
        path = write(
            bucket.url, StateVersion(generation, step), payload_chunks({"step": step}), keep=3
        )
        assert load(path) == (StateVersion(generation, step), {"step": step})
    assert steps(bucket.url) == [(10, 1), (2, 12), (2, 7)]
    write(bucket.url, StateVersion(2, 8), payload_chunks({}), keep=1)
    assert steps(bucket.url) == [(10, 1), (2, 12), (2, 8)], "an older one never deletes a newer one"
    bucket.server.put(f"/{bucket.name}/run/notes.txt", b"mine")
    write(bucket.url, StateVersion(11, 1), [], keep=1)
    assert bucket.names() == ["checkpoint-g000011-s000000001.elastic", "notes.txt"]


def test_requests_and_bytes_of_a_checkpoint(bucket: Bucket) -> None:
    claim(bucket.url, 1)
    write(bucket.url, StateVersion(1, 1), payload_chunks(large()), keep=1)
    size = 36 * 1_000_064
    bucket.proxy.forget()
    write(bucket.url, StateVersion(1, 2), payload_chunks(large(2)), keep=1)
    kinds = bucket.proxy.kinds()
    assert sorted(kinds) == sorted(
        ["list", "begin", *["part"] * (size // PART_BYTES + 1), "list", "end", "list", "delete"]
    )
    assert bucket.proxy.bytes_in < size * 1.01
    bucket.proxy.forget()
    assert load_newest(bucket.url, NOTHING) is not None
    kinds = bucket.proxy.kinds()
    assert sorted(kinds) == sorted(["list", "head", *["get"] * (size // PART_BYTES + 1)])
    assert bucket.proxy.bytes_out < size * 1.01
    bucket.proxy.forget()
    write(bucket.url, StateVersion(1, 3), payload_chunks({"step": 3}), keep=1)
    assert bucket.proxy.kinds() == ["list", "list", "put", "list", "delete"], (
        "a small one is no upload in parts"
    )


def test_a_claim_keeps_older_groups_out(bucket: Bucket) -> None:
    assert claimed(bucket.url) == 0
    assert claim(bucket.url, 3) == 3
    write(bucket.url, StateVersion(3, 1), [b"x"], keep=1)
    assert claim(bucket.url, 4) == 4
    before = bucket.names()
    assert claimed(bucket.url) == 4
    with pytest.raises(
        Superseded, match=f"{bucket.url} is claimed by generation 4, and this is generation 3"
    ):
        write(bucket.url, StateVersion(3, 2), [b"x"], keep=1)
    assert bucket.names() == before
    assert before[0] == ".claim-g000004"


@pytest.mark.parametrize("size", [10, PART_BYTES, 2 * PART_BYTES + 10])
def test_a_claim_comes_while_a_checkpoint_is_written(bucket: Bucket, size: int) -> None:
    write(bucket.url, StateVersion(1, 1), [b"x"], keep=1)

    def chunks() -> Iterator[bytes]:
        yield bytes(size)
        in_a_thread(claim, bucket.url, 2)
        yield b"b"

    with pytest.raises(Superseded):
        write(bucket.url, StateVersion(1, 2), chunks(), keep=1)
    assert bucket.names() == [".claim-g000002", "checkpoint-g000001-s000000001.elastic"]
    assert bucket.server.unfinished_uploads(bucket.name) == 0


def test_only_one_of_two_groups_gets_a_generation(bucket: Bucket) -> None:
    together = threading.Barrier(2)

    def group() -> int:
        together.wait(WAIT_SECONDS)
        return claim(bucket.url, 5)

    with ThreadPoolExecutor(2) as pool:
        got = sorted(future.result() for future in [pool.submit(group) for _ in range(2)])
    assert got == [5, 6]
    assert claimed(bucket.url) == 6


@pytest.mark.parametrize("size", [10, 2 * PART_BYTES])
def test_chunks_that_end_in_an_error_leave_nothing(bucket: Bucket, size: int) -> None:
    def chunks() -> Iterator[bytes]:
        yield bytes(size)
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write(bucket.url, StateVersion(1, 2), chunks(), keep=1)
    assert bucket.names() == []
    assert bucket.server.unfinished_uploads(bucket.name) == 0


def test_a_buffer_may_be_used_again_for_the_next_chunk(bucket: Bucket) -> None:
    buffer = bytearray(PART_BYTES)

    def chunks() -> Iterator[memoryview]:
        for number in range(5):
            buffer[:] = bytes([number]) * len(buffer)
            yield memoryview(buffer)

    path = write(bucket.url, StateVersion(1, 1), chunks(), keep=1)
    stored = bucket.server.get(f"/{bucket.name}/run/{path.name}")[64:]
    assert all(
        stored[number * PART_BYTES : (number + 1) * PART_BYTES].count(number) == PART_BYTES
        for number in range(5)
    )


def test_objects_shorter_than_a_checkpoint_are_skipped(
    bucket: Bucket, log: pytest.LogCaptureFixture
) -> None:
    good = write(bucket.url, StateVersion(3, 7), payload_chunks({"step": 7}), keep=1)
    for generation, data in ((4, b"hello"), (5, b"")):
        bucket.server.put(
            f"/{bucket.name}/run/checkpoint-g{generation:06}-s000000001.elastic", data
        )
    loaded = load_newest(bucket.url, NOTHING)
    assert (loaded.path, loaded.version, loaded.tree["step"]) == (good, StateVersion(3, 7), 7)
    assert [text.split("is skipped: ")[1] for text in log.messages if "is skipped: " in text] == [
        "torn: it has 0 bytes",
        "foreign: it does not begin as a checkpoint does",
    ]


def test_a_flipped_bit_anywhere_is_found(bucket: Bucket) -> None:
    path = write(bucket.url, StateVersion(3, 7), payload_chunks(large(tensors=20)), keep=1)
    whole = bucket.server.get(f"/{bucket.name}/run/{path.name}")
    bucket.server.put(f"/{bucket.name}/run/{path.name}", whole)
    assert same(load(path)[1], large(tensors=20))
    for at in (0, 63, 64, PART_BYTES, 20_000_000, -21, -20, -1):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        bucket.server.put(f"/{bucket.name}/run/{path.name}", bytes(flipped))
        with pytest.raises(ValueError, match=r"torn|corrupt|foreign|no state"):
            load(path)
    assert steps(bucket.url) == []


def test_one_that_has_gone_meanwhile_is_looked_for_again(bucket: Bucket) -> None:
    old = write(bucket.url, StateVersion(1, 1), payload_chunks({"step": 1}), keep=1)
    looks = count()

    def replace_it(request: Request) -> None:
        if request.kind == "head" and next(looks) == 0:
            write(bucket.url, StateVersion(1, 2), payload_chunks({"step": 2}), keep=1)

    bucket.proxy.fault = replace_it
    loaded = load_newest(bucket.url, NOTHING)
    assert loaded.version.step == 2
    assert old.name not in bucket.names()


@pytest.mark.parametrize(
    "fault", [SLOW_DOWN, long(s3_error(500, "InternalError")), long(CutRequest(0))], ids=name_of
)
def test_a_write_goes_on_after_a_fault_of_each_of_its_requests(
    bucket: Bucket, fault: Fault
) -> None:
    unmet = dict.fromkeys(("list", "begin", "part", "end"), fault)
    bucket.proxy.fault = lambda request: unmet.pop(request.kind, None)
    path = write(bucket.url, StateVersion(1, 1), payload_chunks(large()), keep=1)
    bucket.proxy.fault = lambda _: None
    assert not unmet
    assert same(load(path)[1], large())
    assert bucket.server.unfinished_uploads(bucket.name) == 0


def test_the_time_and_not_a_number_of_requests_ends_an_outage(bucket: Bucket) -> None:
    quick = RETRIES | {
        "backoff": {
            "init_backoff": timedelta(milliseconds=1),
            "max_backoff": timedelta(milliseconds=2),
            "base": 2,
        }
    }
    refusals = iter([s3_error(503, "SlowDown")] * 50)
    bucket.proxy.fault = lambda _: next(refusals, None)
    assert claimed(ObjectStore(ObjectUrl("s3", bucket.name, "run"), quick)) == 0
    assert len(bucket.proxy.requests) == 51


def test_an_upload_that_is_cut_in_the_middle_goes_on(bucket: Bucket) -> None:
    bucket.proxy.fault = once("part", CutRequest(1_000_000))
    path = write(bucket.url, StateVersion(1, 1), payload_chunks(large()), keep=1)
    assert same(load(path)[1], large())
    assert bucket.proxy.bytes_in < 2 * 36_000_000, "only the part is sent again"


@pytest.mark.parametrize(
    "fault", [SLOW_DOWN, CutAnswer(1_000_000), long(CutAnswer(0))], ids=name_of
)
def test_a_read_goes_on_after_a_fault(bucket: Bucket, fault: Fault) -> None:
    path = write(bucket.url, StateVersion(1, 1), payload_chunks(large()), keep=1)
    bucket.proxy.fault = once("get", fault)
    assert same(load(path)[1], large())


def test_a_read_that_is_always_cut_is_an_error_and_no_other_state(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(ObjectUrl("s3", bucket.name, "run"), FEW)
    write(store, StateVersion(1, 1), payload_chunks({"step": 1}), keep=2)
    write(store, StateVersion(1, 2), payload_chunks(large(2)), keep=2)
    monkeypatch.setattr(checkpoint_file, "place_at", lambda _: store)
    bucket.proxy.fault = lambda request: CutAnswer(1000) if request.kind == "get" else None
    with pytest.raises(OSError, match=f"bucket {bucket.name}: "):
        load_newest(bucket.url, NOTHING)


def test_what_cannot_be_deleted_stays(bucket: Bucket, log: pytest.LogCaptureFixture) -> None:
    write(bucket.url, StateVersion(1, 1), [b"x"], keep=1)
    bucket.proxy.fault = lambda request: (
        s3_error(403, "AccessDenied") if request.kind == "delete" else None
    )
    write(bucket.url, StateVersion(1, 2), [b"x"], keep=1)
    assert "cannot delete checkpoint-g000001-s000000001.elastic" in log.text
    assert [version.step for version, _ in by_name(bucket.url)] == [2, 1]


def test_folders_below_a_prefix_are_not_its_checkpoints(bucket: Bucket) -> None:
    write(f"{bucket.url}/big", StateVersion(1, 1), [b"x"], keep=1)
    write(f"{bucket.url}-other", StateVersion(1, 1), [b"x"], keep=1)
    assert by_name(bucket.url) == []
    assert place_at(bucket.url).folders() == ["big"]


def test_without_the_library_the_command_is_named() -> None:
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "import elastic_pytorch as elastic\n"
        "try: elastic.State('s3://bucket/run')\n"
        "except ImportError as error: print(error)\n"
    )
    assert "pip install obstore" in run_python(code).stdout


def test_a_write_and_a_read_take_a_bounded_memory(bucket: Bucket) -> None:
    """Neither the writer nor the checker ever holds a state of 250 MB as a whole."""
    code = f"""
import pathlib, re
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_folder import claimed, write
from tests.worker_image.scripts.whole_checkpoints import newest
claimed({bucket.url!r})
def peak():
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status)[1])
before = peak()
write({bucket.url!r}, StateVersion(1, 1), (bytes(4 << 20) for _ in range(60)), 1)
written = peak()
assert len(list(newest({bucket.url!r}))) == 1
print(written - before, peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written, read = map(int, done.stdout.split())
    assert max(written, read) < 200_000_000


def test_all_names_of_a_prefix_are_found(bucket: Bucket) -> None:
    for number in range(3):
        bucket.server.put(f"/{bucket.name}/run/checkpoint-g000001-s{number:09}.elastic", b"")
    assert checkpoint_folder.newest_and_claimed(bucket.url)[0] == StateVersion(1, 2)
