import json
import os
import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.torch_fixes import gloo_sockets

from tests.worker_image.torch_group import LIMIT_SECONDS, PROCESSES
from tests.worker_image.warm_python import run_python

pytestmark = pytest.mark.torch


def cut_on_rank_0(folder: Path, rank: int, lazy: bool) -> None:
    """Writes whether a cut group's collective has ended, and another connection works."""
    torch.set_num_threads(1)
    os.environ["TORCH_GLOO_LAZY_INIT"] = str(int(lazy))
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1))  # a lazy group is connected here
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far, _ = server.accept()
    if rank == 0:
        gloo_sockets.cut()
    try:
        dist.all_reduce(torch.ones(1))
        ended = False
    except RuntimeError:
        ended = True
    near.sendall(b"still there")
    (folder / f"rank-{rank}").write_text(json.dumps([ended, far.recv(100) == b"still there"]))
    os._exit(0)


@pytest.mark.parametrize("lazy", [False, True])
def test_only_connections_of_gloo_are_cut(tmp_path: Path, lazy: bool) -> None:
    processes = [
        PROCESSES.Process(target=cut_on_rank_0, args=(tmp_path, rank, lazy)) for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LIMIT_SECONDS)
        process.kill()
    assert [json.loads((tmp_path / f"rank-{rank}").read_text()) for rank in range(2)] == [
        [True, True],
        [True, True],
    ]


def test_torch_without_gloo_can_run_the_agent() -> None:
    code = (
        "import torch.distributed as d; del d.ProcessGroupGloo, "
        "d.distributed_c10d.ProcessGroupGloo; import elastic_pytorch.agent.launch"
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr
