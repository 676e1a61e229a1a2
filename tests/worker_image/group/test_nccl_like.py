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

from tests.waiting import until
from tests.worker_image.scripts import nccl_like
from tests.worker_image.torch_group import LIMIT_SECONDS, PROCESSES

pytestmark = [pytest.mark.process, pytest.mark.torch, pytest.mark.long]


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


def test_set_up_error_is_raised_on_all_ranks(tmp_path: Path) -> None:
    with a_group(tmp_path, set_up, NCCL_LIKE_ERROR="invalid-usage") as group:
        assert group.exit_codes() == [0, 0]
    for rank in range(2):
        said = (tmp_path / f"said-{rank}").read_text()
        assert "ncclInvalidUsage: " in said and "Last error:\nDuplicate GPU detected" in said


def test_the_time_out_is_nccls_unless_one_is_given() -> None:
    class Options:
        store = dist.HashStore()
        group_rank, group_size, group_id = 0, 1, "group"
        timeout = dist.distributed_c10d.default_pg_timeout

    assert nccl_like._create(Options())._timeout == timedelta(minutes=10)
    Options.timeout = timedelta(seconds=3)
    assert nccl_like._create(Options())._timeout == timedelta(seconds=3)
