import pytest
from elastic_pytorch.progress.receiver import ProgressReceiver
from elastic_pytorch.progress.report import REPORT_SOCKET

from tests.waiting import until
from tests.worker_image.warm_python import run_python

pytestmark = [pytest.mark.torch, pytest.mark.process]

SCRIPT = """
from elastic_pytorch.processes import warm_start
warm_start.report_formed_groups()
import torch.distributed as dist
from torch.distributed import device_mesh, distributed_c10d
assert dist.init_process_group is distributed_c10d.init_process_group
assert dist.init_process_group is device_mesh.init_process_group
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
assert dist.get_world_size() == 1
dist.destroy_process_group()
"""


def test_group_that_has_formed_is_reported() -> None:
    receiver = ProgressReceiver()
    try:
        receiver.start_round()
        done = run_python(SCRIPT, **{REPORT_SOCKET: receiver.path})
        assert done.returncode == 0, done.stderr
        until(lambda: receiver.current().formed_at is not None)
    finally:
        receiver.close()
