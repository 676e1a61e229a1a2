"""What `nccl` means under `in_process`: what was tested with it, or what the environment says.

Without a GPU each says in its own words that it needs one.
"""

import pytest
from torch.distributed import distributed_c10d

from tests.worker_image.warm_python import run_python

SCRIPT = """
import torch.distributed as dist
from elastic_pytorch.group import in_process
in_process._choose_nccl()
try:
    dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore())
except Exception as error:
    print(error)
"""
OLDER, NEWER = (
    "ProcessGroupNCCL is only supported with GPUs",
    "nccl2 requires at least one CUDA device",
)
NEW = pytest.mark.skipif(
    not hasattr(distributed_c10d, "ProcessGroupNCCL2"), reason="this torch has one NCCL backend"
)


@NEW
@pytest.mark.torch
@pytest.mark.process
@pytest.mark.parametrize(
    ("given", "chosen"),
    [({}, OLDER), ({"TORCH_DIST_USE_NCCL2": "1"}, NEWER), ({"TORCH_DIST_USE_NCCL2": "0"}, OLDER)],
)
def test_nccl_is_the_older_backend_unless_the_environment_chooses(
    given: dict[str, str], chosen: str
) -> None:
    done = run_python(SCRIPT, CUDA_VISIBLE_DEVICES="", **given)
    assert done.returncode == 0, done.stderr
    assert chosen in done.stdout
