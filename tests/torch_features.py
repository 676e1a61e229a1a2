"""What this release of torch can do: tests of the rest are left out, with the reason."""

import pytest
import torch
from torch.distributed.run import get_args_parser

RELEASE = torch.torch_version.TorchVersion(torch.__version__)

FSDP2 = RELEASE >= "2.7"  # before, fully_shard wants a GPU
FSDP2_REASON = "FSDP2 on CPUs needs torch 2.7"
needs_fsdp2 = pytest.mark.skipif(not FSDP2, reason=FSDP2_REASON)
# Over gloo; 2.8 sums gradients: https://github.com/pytorch/pytorch/issues/162338.
FSDP2_AVERAGES = RELEASE >= "2.10"
needs_averages = pytest.mark.skipif(
    not FSDP2_AVERAGES, reason="FSDP2 averages gradients over gloo from torch 2.10 on"
)
# before, a process that is broken off in a collective may be started again
LEAVES_LOST_OPERATIONS = RELEASE >= "2.8"
needs_sharded_tensors = pytest.mark.skipif(RELEASE < "2.5", reason="sharded states need torch 2.5")
needs_torchrun_handlers = pytest.mark.skipif(
    RELEASE < "2.6", reason="rendezvous of other packages in torchrun need torch 2.6"
)


def torchrun_has(option: str) -> bool:
    """Whether torchrun knows an option, such as `--virtual-local-rank`."""
    return option in get_args_parser().format_help()
