"""Sharded checkpoints as objects: read by a group of another size, and cut short anywhere."""

from tests.worker_image.cpu_fsdp2 import fully_shard

# isort: split

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
from elastic_pytorch.group.rank_group import cpu_group
from elastic_pytorch.memory import slot_memory
from elastic_pytorch.object_url import location_of
from elastic_pytorch.state.sharded import sharded_checkpoint
from elastic_pytorch.state.sharded.shard_files import checked_by
from elastic_pytorch.state.sharded.sharded_checkpoint import load_sharded
from elastic_pytorch.state.sharded.sharded_state import ShardedState
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage import checkpoint_folder
from elastic_pytorch.storage.checkpoint_folder import by_name
from elastic_pytorch.storage.checkpoint_format import SHARDED, CannotClaim
from elastic_pytorch.storage.sharded_folder import ShardFile

from tests.worker_image.object_storage import Bucket, Proxy, Request, S3Server, s3_error
from tests.worker_image.state.sharded.test_sharded_checkpoint import (
    build,
    load_and_go_on,
    save_steps,
    train,
)
from tests.worker_image.torch_group import run_group

assert fully_shard

pytestmark = [pytest.mark.process, pytest.mark.torch]


def in_bucket(
    environment: dict[str, str], function: Callable[..., Any], url: str, *arguments: Any
) -> Any:
    """What a function returns that has the credentials; or its error."""
    os.environ.update(environment)
    try:
        return function(location_of(url), *arguments)
    except (OSError, checkpoint_folder.Superseded, CannotClaim) as error:
        return f"{type(error).__name__}: {error}"


def run(bucket: Bucket, size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    return run_group(size, in_bucket, bucket.environment(), function, bucket.url, *arguments)


def checkpoints(bucket: Bucket) -> list[StateVersion]:
    return [version for version, _ in by_name(bucket.url, SHARDED)]


def test_what_one_group_saves_a_group_of_another_size_goes_on_with(bucket: Bucket) -> None:
    saved, *same = run(bucket, 3, save_steps, [1, 2, 4], 1)
    for other in same:
        torch.testing.assert_close(other, saved, rtol=0, atol=0)
    assert checkpoints(bucket) == [(1, 4), (1, 2)], "the one before the last two is gone"
    assert [name for name in bucket.names() if "s000000004" in name.split("/")[0]] == [
        "checkpoint-g000001-s000000004.sharded/.metadata",
        *(f"checkpoint-g000001-s000000004.sharded/__{rank}_0.distcp" for rank in range(3)),
        "checkpoint-g000001-s000000004.sharded/checkpoint-g000001-s000000004.elastic",
    ]
    requests = list[int]()
    for size in (2, 4):
        bucket.proxy.forget()
        for version, best, restored, _ in run(bucket, size, load_and_go_on, 3):
            assert (version, best) == ((1, 4), (1.5, "x"))
            torch.testing.assert_close(restored, saved, rtol=0, atol=0)
        requests.append(len(bucket.proxy.requests))
    assert requests[1] < 3 * requests[0], "they grow with the ranks, not with their square"


@pytest.fixture(scope="module")
def two_checkpoints(s3_server: S3Server) -> dict[str, bytes]:
    """The objects of two checkpoints that two ranks have saved, by name."""
    bucket = Bucket("two-checkpoints", s3_server, Proxy(s3_server.port))
    s3_server.make_bucket(bucket.name)
    run(bucket, 2, save_steps, [2, 3], 1)
    bucket.proxy.stop()
    return {name: s3_server.get(f"/{bucket.name}/{name}") for name in s3_server.names(bucket.name)}


@pytest.fixture
def filled(bucket: Bucket, two_checkpoints: dict[str, bytes]) -> Bucket:
    for name, content in two_checkpoints.items():
        bucket.server.put(f"/{bucket.name}/{name}", content)
    return bucket


def test_what_is_not_whole_is_skipped_and_then_deleted(filled: Bucket) -> None:
    own = "checkpoint-g000001-s000000003.sharded/checkpoint-g000001-s000000003.elastic"
    filled.server.delete(f"/{filled.name}/run/{own}")
    filled.server.put(
        f"/{filled.name}/run/checkpoint-g000001-s000000009.sharded/__0_0.distcp", b"cut short"
    )
    for outcome in run(filled, 2, load_and_go_on, 0):
        assert outcome[0] == (1, 2)
    run(filled, 2, save_steps, [5], 2)
    assert checkpoints(filled) == [(2, 5), (1, 2)], (
        "what was cut short does not count as one of the two"
    )


def test_damaged_shard_is_skipped(filled: Bucket) -> None:
    shard = f"/{filled.name}/run/checkpoint-g000001-s000000003.sharded/__1_0.distcp"
    content = bytearray(filled.server.get(shard))
    content[len(content) // 2] ^= 1
    filled.server.put(shard, bytes(content))
    for outcome in run(filled, 2, load_and_go_on, 0):
        assert outcome[0] == (1, 2)


def claimed_late(request: Request, bucket: Bucket) -> None:
    """Another group claims the folder when the shards are there, before the checkpoint appears."""
    if request.kind == "put" and request.path.endswith("__1_0.distcp"):
        bucket.server.put(f"/{bucket.name}/run/.claim-g000002", b"")


def test_group_that_is_cut_off_within_a_save_leaves_no_checkpoint(filled: Bucket) -> None:
    filled.proxy.fault = lambda request: claimed_late(request, filled)
    assert all(each.startswith("Superseded") for each in run(filled, 2, save_steps, [9], 1))
    assert checkpoints(filled) == [(1, 3), (1, 2)], "and nothing of it is left"


@pytest.mark.parametrize(
    "refused",
    [
        "__1_0.distcp",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in (".metadata", "s000000009.elastic")
        ),
    ],
)
def test_refused_write_is_told_to_all_and_deletes_nothing(filled: Bucket, refused: str) -> None:
    before = filled.names()
    filled.proxy.fault = lambda request: (
        s3_error(403, "AccessDenied")
        if request.kind == "put" and request.path.endswith(refused)
        else None
    )
    told = run(filled, 2, save_steps, [9], 1)
    assert all(each.startswith(("OSError", "PermissionError")) for each in told)
    assert any(f"bucket {filled.name} refuses these credentials" in each for each in told), told
    assert filled.names() == before


def test_checkpoint_stays_if_older_ones_cannot_be_deleted(filled: Bucket) -> None:
    appeared: list[str] = []

    def refuse_lists_of_checkpoints(request: Request) -> Any:
        if request.kind == "put" and request.path.endswith("s000000009.elastic"):
            appeared.append(request.path)
        return (
            s3_error(403, "AccessDenied")
            if appeared and request.kind == "list" and "s000000002" in request.path
            else None
        )

    filled.proxy.fault = refuse_lists_of_checkpoints
    told = run(filled, 2, save_steps, [9], 1)
    assert not any(isinstance(each, str) for each in told), told
    assert checkpoints(filled)[0] == (1, 9)


def lose_the_group_when_it_has_appeared(folder: Any) -> None:
    """As if a peer were lost while rank 0 tells the others of a whole checkpoint."""
    first_does = sharded_checkpoint.first_does

    def lose(action: Callable[[], int], group: Any) -> int:
        outcome = first_does(action, group)
        newest = by_name(folder, SHARDED)[0]
        if newest.version == (1, 9) and by_name(newest.path):
            raise RuntimeError("Connection closed by peer")
        return outcome

    sharded_checkpoint.first_does = lose
    with contextlib.suppress(RuntimeError):
        save_steps(folder, [9], 1)
        raise AssertionError("it is saved")


def test_checkpoint_that_has_appeared_stays_if_a_peer_is_lost_then(filled: Bucket) -> None:
    run(filled, 1, lose_the_group_when_it_has_appeared)
    assert checkpoints(filled) == [(1, 9), (1, 3)]
    assert run(filled, 2, load_and_go_on, 0)[0][0] == (1, 9)


def save_state(folder: Any, until: int) -> tuple[int, bool]:
    registered = build()
    state = ShardedState(str(folder), ShardedState.Options(every=2, memory=False), **registered)
    began = state.restore()
    while state.step < until:
        train(registered, 1)
        state.commit()
    return began, state.flush()


def test_training_goes_on_from_the_last_checkpoint_and_any_process_reads_it(bucket: Bucket) -> None:
    assert run(bucket, 2, save_state, 5) == [(0, True)] * 2
    assert run(bucket, 3, save_state, 7) == [(5, True)] * 3
    assert checkpoint_folder.claimed(bucket.url) == 2
    loaded = elastic.load(bucket.url)
    assert loaded["step"] == 7
    assert loaded["model"]["0.weight"].shape == (7, 5)
    [newest, *_] = by_name(bucket.url, SHARDED)
    one = elastic.load(str(newest[1]))
    torch.testing.assert_close(one["model"], loaded["model"], rtol=0, atol=0)


def test_a_checkpoint_takes_few_requests(filled: Bucket) -> None:
    run(filled, 2, save_steps, [4], 1)
    kinds = filled.proxy.kinds()
    assert kinds.count("put") == 4, (
        "two ranks' shards, torch's metadata, and the file that lists them"
    )
    assert len(kinds) <= 25, kinds
    filled.proxy.forget()
    run(filled, 2, load_and_go_on, 0)
    kinds = filled.proxy.kinds()
    assert len(kinds) <= 30, [f"{request.kind} {request.path}" for request in filled.proxy.requests]
    for name in ("__0_0.distcp", "__1_0.distcp", ".metadata"):
        gets = [
            request.path
            for request in filled.proxy.requests
            if request.kind == "get" and request.path.endswith(name)
        ]
        assert len(gets) <= 1 + (name == ".metadata"), (
            "what a rank has checked it does not read again"
        )


def load_with_room(folder: Any, room_bytes: int) -> Any:
    """As in a container that has only so much memory left."""
    slot_memory.CGROUP = Path(tempfile.mkdtemp())
    (slot_memory.CGROUP / "memory.max").write_text(str(room_bytes))
    (slot_memory.CGROUP / "memory.current").write_text("0")
    (slot_memory.CGROUP / "memory.stat").write_text(
        "".join(f"{name} 0\n" for name in slot_memory.RECLAIMABLE)
    )
    return load_and_go_on(folder, 0)


def test_checked_bytes_are_not_held_without_room(bucket: Bucket) -> None:
    saved, _ = run(bucket, 2, save_steps, [2], 1)
    bucket.proxy.forget()
    for version, _, restored, _ in run(bucket, 2, load_with_room, 100):
        assert version == (1, 2)
        torch.testing.assert_close(restored, saved, rtol=0, atol=0)
    gets = [
        request.path
        for request in bucket.proxy.requests
        if request.kind == "get" and request.path.endswith("__1_0.distcp")
    ]
    assert len(gets) > 1, "once to check it, and again to use it"


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_each_file_is_checked_by_one_rank_and_own_shards_by_their_writer(world_size: int) -> None:
    names = [
        "__2_0.distcp",
        ".metadata",
        "__0_0.distcp",
        "stage-1/checkpoint-g000001-s000000009.elastic",
        "__1_0.distcp",
        "__1_1.distcp",
    ]
    files = [ShardFile(name, 1, 0) for name in names]
    shares = [checked_by(files, rank, world_size) for rank in range(world_size)]
    assert sorted(file for share in shares for file in share) == sorted(files)
    if world_size >= 3:
        assert all(
            f"__{rank}_0.distcp" in [file.name for file in shares[rank]] for rank in range(3)
        )


def read_nothing(folder: Any) -> Any:
    return load_sharded(folder, lambda _: {}, group=cpu_group())


def test_a_bucket_that_cannot_be_read_is_no_beginning(bucket: Bucket) -> None:
    assert run(bucket, 2, read_nothing) == [None, None]
    bucket.proxy.fault = lambda _: s3_error(403, "AccessDenied")
    assert all("Error" in each for each in run(bucket, 2, read_nothing))


def go_on(folder: Any) -> str:
    shards = ShardedState.Options(every=9, memory=False)
    ShardedState(str(folder), shards, model=fully_shard(torch.nn.Linear(5, 3))).restore()
    return "restored"


def test_storage_that_knows_no_conditions_is_refused_on_all_ranks(bucket: Bucket) -> None:
    refusal = s3_error(501, "NotImplemented", "A header implies what is not implemented")
    bucket.proxy.fault = lambda request: refusal if "if-none-match" in request.headers else None
    on_first, on_other = run(bucket, 2, go_on)
    assert "does not write on the condition that an object is absent" in on_first
    assert on_other.startswith("OSError: rank 0 cannot")
