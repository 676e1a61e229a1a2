"""FSDP2 with gloo. A module of tests that imports this first is left out where torch does not have it."""

import pytest

from tests.torch_features import FSDP2, FSDP2_REASON

if not FSDP2:
    pytest.skip(FSDP2_REASON, allow_module_level=True)

from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

__all__ = ["DTensor", "fully_shard"]
