"""Which implementation `nccl` means under `in_process`: the one that has been run with it, unless the environment chooses."""

import os
import subprocess
import sys

import pytest
from torch.distributed import distributed_c10d

SCRIPT = """
import os
from elastic_pytorch.group import in_process
from torch.distributed import distributed_c10d
in_process._choose_nccl()
distributed_c10d._register_builtin_nccl_backend()
print(os.environ["TORCH_DIST_USE_NCCL2"], distributed_c10d.Backend._plugins["NCCL"].creator_fn.__name__)
"""
NEW = pytest.mark.skipif(not hasattr(distributed_c10d, "ProcessGroupNCCL2"), reason="this torch has one NCCL backend")


@NEW
@pytest.mark.torch
@pytest.mark.parametrize(
    ("given", "chosen"),
    [(None, "0 _create_nccl_process_group"), ("1", "1 _create_nccl2_process_group"), ("0", "0 _create_nccl_process_group")],
)
def test_nccl_is_the_older_backend_unless_the_environment_chooses(given: str | None, chosen: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_DIST_USE_NCCL2"}
    environment |= {} if given is None else {"TORCH_DIST_USE_NCCL2": given}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == chosen
