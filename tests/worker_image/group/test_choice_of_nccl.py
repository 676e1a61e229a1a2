"""Which implementation `nccl` means under `in_process`: the one that has been run with it, unless the environment chooses.

Without a GPU each says in its own words that it needs one.
"""

import os
import subprocess
import sys

import pytest
from torch.distributed import distributed_c10d

SCRIPT = """
import torch.distributed as dist
from elastic_pytorch.group import in_process
in_process._choose_nccl()
try:
    dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore())
except Exception as error:
    print(error)
"""
OLDER, NEWER = "ProcessGroupNCCL is only supported with GPUs", "nccl2 requires at least one CUDA device"
NEW = pytest.mark.skipif(not hasattr(distributed_c10d, "ProcessGroupNCCL2"), reason="this torch has one NCCL backend")


@NEW
@pytest.mark.torch
@pytest.mark.parametrize(
    ("given", "chosen"),
    [(None, OLDER), ("1", NEWER), ("0", OLDER)],
)
def test_nccl_is_the_older_backend_unless_the_environment_chooses(given: str | None, chosen: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_DIST_USE_NCCL2"}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    environment |= {} if given is None else {"TORCH_DIST_USE_NCCL2": given}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert chosen in done.stdout
