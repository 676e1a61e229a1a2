import datetime
import os
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.torch_fixes import lost_operations
from elastic_pytorch.torch_fixes.destroy_deadlock import wait_for_rest
from elastic_pytorch.torch_fixes.gloo_sockets import cut

from tests.torch_features import LEAVES_LOST_OPERATIONS
from tests.waiting import until
from tests.worker_image.torch_group import LIMIT_SECONDS, PROCESSES

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not LEAVES_LOST_OPERATIONS,
        reason="groups are destroyed with the interpreter's lock before torch 2.8",
    ),
]
LONG = torch.zeros(2**26)  # 256 MB: more than the kernel keeps of a connection


def form_group(folder: Path, rank: int) -> None:
    store = f"file://{folder}/store"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=2, timeout=datetime.timedelta(minutes=10)
    )
    dist.all_reduce(torch.ones(1))


def stop_in_a_broadcast(folder: Path) -> None:
    form_group(folder, 1)
    work = dist.broadcast(LONG, 0, async_op=True)
    assert work is not None
    assert wait_for_rest(LIMIT_SECONDS)  # the other process has been asked
    os.kill(os.getpid(), signal.SIGSTOP)


def leave_a_broken_broadcast(folder: Path, peer: int) -> None:
    form_group(folder, 0)
    until(
        lambda: " (stopped)" in Path(f"/proc/{peer}/status").read_text(),
        "the peer stops",
        LIMIT_SECONDS,
    )
    work = dist.broadcast(LONG, 0, async_op=True)
    assert work is not None
    assert wait_for_rest(LIMIT_SECONDS)  # the connection takes no more
    os.kill(peer, signal.SIGKILL)
    cut()
    assert wait_for_rest(LIMIT_SECONDS)
    assert not work.is_completed()  # gloo ends every operation but this one
    del work
    backends = lost_operations.gloo_backends()
    dist.destroy_process_group()
    ended = lost_operations.end(backends)
    (folder / "outcome").write_text(f"{len(backends)} {ended} {dist.is_initialized()}")
    os._exit(0)


def test_operation_that_gloo_has_lost_keeps_no_process_in_its_group(tmp_path: Path) -> None:
    peer = PROCESSES.Process(target=stop_in_a_broadcast, args=(tmp_path,))
    peer.start()
    process = PROCESSES.Process(target=leave_a_broken_broadcast, args=(tmp_path, peer.pid))
    process.start()
    process.join(LIMIT_SECONDS)
    peer.kill()
    process.kill()
    assert (tmp_path / "outcome").read_text() == "0 False False"


def test_group_whose_operations_have_ended_is_gone_at_once(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    dist.all_reduce(torch.ones(1))
    backends = lost_operations.gloo_backends()
    assert len(backends) == 1
    dist.destroy_process_group()
    assert lost_operations.end(backends)
    threads = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in threads if name.startswith("pt_gloo")]
