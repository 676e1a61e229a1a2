"""FSDP2 with gloo.

A module of tests that imports this first is left out where torch does not have it.
"""

from functools import partial

import pytest

from tests.torch_features import FSDP2, FSDP2_REASON

if not FSDP2:
    pytest.skip(FSDP2_REASON, allow_module_level=True)

from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import AdamW

# Its step is one operation: each process works out again how the outcome of each operation is
# sharded, which takes milliseconds of its CPU time.
FusedAdamW = partial(AdamW, fused=True)

__all__ = ["DTensor", "FusedAdamW", "fully_shard"]
