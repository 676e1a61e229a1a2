"""What a training script may import, in the pods of an ElasticPyTorchJob or anywhere else: without an agent it does what it can alone.

Importing this package is cheap: it does not import torch, which what is used of it does.
"""

import importlib
from typing import TYPE_CHECKING, Any

from elastic_pytorch.progress import report

if TYPE_CHECKING:
    from elastic_pytorch.learning_rate import scale_learning_rate
    from elastic_pytorch.rejoin import in_process
    from elastic_pytorch.sampler import ElasticSampler, Part
    from elastic_pytorch.sharded_state import ShardedState
    from elastic_pytorch.state import State
    from elastic_pytorch.training_loop import Step, steps

__all__ = [
    "ElasticSampler",
    "Part",
    "ShardedState",
    "State",
    "Step",
    "in_process",
    "report",
    "scale_learning_rate",
    "steps",
]

_MODULES = {
    "ElasticSampler": "elastic_pytorch.sampler",
    "Part": "elastic_pytorch.sampler",
    "ShardedState": "elastic_pytorch.sharded_state",
    "State": "elastic_pytorch.state",
    "Step": "elastic_pytorch.training_loop",
    "in_process": "elastic_pytorch.rejoin",
    "scale_learning_rate": "elastic_pytorch.learning_rate",
    "steps": "elastic_pytorch.training_loop",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
