"""The tests' own backend: what it does under faults is what ProcessGroupNCCL does."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.waiting import until
from tests.worker_image.scripts import nccl_like
from tests.worker_image.torch_group import LIMIT_SECONDS, PROCESSES, run_group

pytestmark = [pytest.mark.process, pytest.mark.torch, pytest.mark.long]


# Until the process ends. torch holds the GIL while it waits for the end of a gloo group's thread,
# and that thread may want the GIL.
kept: list[Any] = []


def train(backend: str) -> list[torch.Tensor]:
    group = dist.new_group(backend=backend)
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)), process_group=group
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
    kept.extend((group, model))
    return [parameter.detach() for parameter in model.parameters()]


def test_trains_as_on_gloo() -> None:
    on_gloo, *others = [*run_group(2, train, "gloo"), *run_group(2, train, "nccl_like")]
    for parameters in others:
        torch.testing.assert_close(parameters, on_gloo)


def collectives() -> dict[str, Any]:
    group = dist.new_group(backend="nccl_like")
    rank = dist.get_rank(group)
    mine = torch.tensor([float(rank), 10.0])
    total = mine.clone()
    works = [dist.all_reduce(total, group=group, async_op=True) for _ in range(3)]
    for work in works:
        work.wait()
    gathered = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(gathered, mine, group=group)
    one = torch.zeros(4)
    dist.all_gather_into_tensor(one, mine, group=group)
    scattered = torch.zeros(1)
    dist.reduce_scatter_tensor(scattered, mine, group=group)
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    told: list[Any] = [rank]
    dist.broadcast_object_list(told, src=1, group=group)
    dist.barrier(group=group)
    return {
        "completed": all(work.is_completed() for work in works),
        "total": total.tolist(),
        "gathered": [tensor.tolist() for tensor in gathered],
        "one": one.tolist(),
        "scattered": scattered.tolist(),
        "objects": objects,
        "told": told,
    }


def test_collectives() -> None:
    for rank, got in enumerate(run_group(2, collectives)):
        assert got == {
            "completed": True,
            "total": [4.0, 80.0],
            "gathered": [[0.0, 10.0], [1.0, 10.0]],
            "one": [0.0, 10.0, 1.0, 10.0],
            "scattered": [[1.0], [20.0]][rank],
            "objects": [{"rank": 0}, {"rank": 1}],
            "told": [1],
        }


def abort_groups() -> None:
    """Aborts the group and forgets it, through torch if that can for other backends."""
    if torch.torch_version.TorchVersion(torch.__version__) >= (2, 8):
        dist.distributed_c10d._abort_process_group()
    else:
        group: Any = dist.group.WORLD
        group.abort()
        dist.destroy_process_group()


class Group:
    """Two processes with the backend as their default group, and what they leave in a folder."""

    def __init__(
        self, folder: Path, function: Callable[[Path], None], environment: dict[str, str]
    ) -> None:
        self.folder = folder
        self.processes = [
            PROCESSES.Process(target=member, args=(folder, rank, function, environment))
            for rank in range(2)
        ]
        for process in self.processes:
            process.start()

    def wait(self, name: str) -> None:
        until((self.folder / name).exists, lambda: f"{name}: {self.stderr(0)}")

    def exit_codes(self) -> list[int | None]:
        for process in self.processes:
            process.join(LIMIT_SECONDS)
        return [process.exitcode for process in self.processes]

    def stderr(self, rank: int) -> str:
        return (self.folder / f"stderr-{rank}").read_text()


def member(
    folder: Path, rank: int, function: Callable[[Path], None], environment: dict[str, str]
) -> None:
    os.environ.update(environment)
    descriptor = os.open(folder / f"stderr-{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 2)
    dist.init_process_group(
        "nccl_like", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    function(folder)


@contextmanager
def a_group(folder: Path, function: Callable[[Path], None], **environment: str) -> Iterator[Group]:
    group = Group(folder, function, environment)
    try:
        yield group
    finally:
        for process in group.processes:
            process.kill()
            process.join()


def lose_a_peer(folder: Path) -> None:
    """Rank 1 dies after a collective; rank 0 asks for the next, with ways to abort it."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        (folder / "handled").touch()

    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 1:
        (folder / "pid-1").touch()
        time.sleep(LIMIT_SECONDS)
    signal.signal(signal.SIGTERM, handle)
    while not (folder / "killed").exists():
        time.sleep(0.01)

    def abort() -> None:
        (folder / "waits").touch()
        while not (folder / "abort").exists():
            time.sleep(0.01)
        abort_groups()

    group = dist.group.WORLD
    assert group is not None
    threading.Thread(target=abort).start()
    dist.all_reduce(torch.ones(1))
    assert (folder / "abort").exists()
    with pytest.raises(dist.DistBackendError, match="NCCL communicator was aborted on rank 0"):
        group.allreduce([torch.ones(1)], dist.AllreduceOptions()).wait()
    (folder / "went on").touch()


def test_a_lost_peer_is_not_noticed_nor_can_a_handler_run_until_the_group_is_aborted(
    tmp_path: Path,
) -> None:
    with a_group(tmp_path, lose_a_peer) as group:
        group.wait("pid-1")
        group.processes[1].kill()
        group.processes[1].join()
        (tmp_path / "killed").touch()
        group.wait("waits")
        time.sleep(0.5)
        group.processes[0].terminate()
        time.sleep(0.5)
        assert group.processes[0].is_alive()
        assert not (tmp_path / "handled").exists()

        (tmp_path / "abort").touch()
        group.wait("handled")
        assert group.exit_codes() == [0, -signal.SIGKILL]
        assert (tmp_path / "went on").exists()


def ask(seconds: float) -> dist.Work:
    """Asks for an all-reduce with a time-out of its own."""
    group = dist.group.WORLD
    assert group is not None
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=seconds)
    return group.allreduce([torch.ones(3)], options)


def rank_1_dies(_folder: Path) -> None:
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    ask(1).wait()


def rank_1_dies_before_long(_folder: Path) -> None:
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))


def test_the_watchdog_aborts_after_the_time_out(tmp_path: Path) -> None:
    with a_group(tmp_path, rank_1_dies) as group:
        assert group.exit_codes() == [-signal.SIGABRT, -signal.SIGKILL]
        said = group.stderr(0)
        assert (
            "[Rank 0] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=3, NumelOut=3, "
            "Timeout(ms)=1000) ran for 1" in said
        )
        assert (
            "terminate called after throwing an instance of 'c10::DistBackendError'\n  what(): "
            " [PG ID 0 PG GUID 0" in said
        )


def test_over_sockets_a_closed_connection_is_noticed(tmp_path: Path) -> None:
    with a_group(tmp_path, rank_1_dies_before_long, NCCL_LIKE_NOTICES="1") as group:
        assert group.exit_codes() == [-signal.SIGABRT, -signal.SIGKILL]
        assert "ncclRemoteError: A call failed possibly due to a network error" in group.stderr(0)


def shut_down_without_a_peer(folder: Path) -> None:
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    ask(1)
    (folder / "leaves").touch()
    group: Any = dist.group.WORLD
    group.shutdown()


def test_leaving_waits_for_what_has_been_asked_for(tmp_path: Path) -> None:
    with a_group(tmp_path, shut_down_without_a_peer) as group:
        group.wait("leaves")
        assert group.exit_codes()[0] == -signal.SIGABRT


def abort_on_one(folder: Path) -> None:
    """Rank 0 aborts while rank 1 waits for it in a collective."""
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 0:
        while not (folder / "waits").exists():
            time.sleep(0.01)
        abort_groups()
        dist.init_process_group("gloo", init_method=f"file://{folder}/again", rank=0, world_size=1)
        (folder / "left").touch()
        return
    work = ask(3)
    (folder / "waits").touch()
    work.wait()
    (folder / "ended").touch()


def test_one_that_aborts_leaves_its_peers_waiting(tmp_path: Path) -> None:
    with a_group(tmp_path, abort_on_one) as group:
        group.wait("left")
        assert group.exit_codes() == [0, -signal.SIGABRT]
        assert not (tmp_path / "ended").exists()


def set_up(folder: Path) -> None:
    with pytest.raises(dist.DistBackendError) as raised:
        dist.all_reduce(torch.ones(1))
    (folder / f"said-{dist.get_rank()}").write_text(str(raised.value))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "invalid-usage",
            "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
            "Duplicate GPU detected",
        ),
        (
            "shared-memory",
            "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n"
            "ncclSystemError",
        ),
        (
            "interface",
            "ncclInternalError: Internal check failed.\nLast error:\nBootstrap : "
            "no socket interface found",
        ),
        (
            "out-of-memory",
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
            "Failed to CUDA calloc",
        ),
    ],
)
def test_set_up_errors_are_raised_on_all_ranks(tmp_path: Path, kind: str, words: str) -> None:
    with a_group(tmp_path, set_up, NCCL_LIKE_ERROR=kind) as group:
        assert group.exit_codes() == [0, 0]
        for rank in range(2):
            assert words in (tmp_path / f"said-{rank}").read_text()


def test_the_time_out_is_nccls_unless_one_is_given() -> None:
    class Options:
        store = dist.HashStore()
        group_rank, group_size, group_id = 0, 1, "group"
        timeout = dist.distributed_c10d.default_pg_timeout

    assert nccl_like._create(Options())._timeout == timedelta(minutes=10)
    Options.timeout = timedelta(seconds=3)
    assert nccl_like._create(Options())._timeout == timedelta(seconds=3)
