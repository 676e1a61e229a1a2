"""What a training script may import, with an agent or without one.

Importing this package is cheap: its parts import torch when a script uses them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from elastic_pytorch.progress.report import report

if TYPE_CHECKING:
    from elastic_pytorch import lightning as lightning
    from elastic_pytorch.group.in_process import in_process
    from elastic_pytorch.state.read_checkpoint import load
    from elastic_pytorch.state.state import State
    from elastic_pytorch.state.values.per_rank import PerRank
    from elastic_pytorch.state.values.trained import Trained
    from elastic_pytorch.training.learning_rate import scale_learning_rate
    from elastic_pytorch.training.sampler import ElasticSampler
    from elastic_pytorch.training.streams.stream import ElasticStream
    from elastic_pytorch.training.training_loop import epochs, steps
    from elastic_pytorch.training.unit_mesh import unit_mesh

__all__ = [
    "ElasticSampler",
    "ElasticStream",
    "PerRank",
    "State",
    "Trained",
    "epochs",
    "in_process",
    "load",
    "report",
    "scale_learning_rate",
    "steps",
    "unit_mesh",
]

_MODULES = {
    "ElasticSampler": "training.sampler",
    "ElasticStream": "training.streams.stream",
    "PerRank": "state.values.per_rank",
    "State": "state.state",
    "Trained": "state.values.trained",
    "in_process": "group.in_process",
    "load": "state.read_checkpoint",
    "scale_learning_rate": "training.learning_rate",
    "epochs": "training.training_loop",
    "steps": "training.training_loop",
    "unit_mesh": "training.unit_mesh",
}


def __getattr__(name: str) -> Any:
    if name == "lightning":  # which this package does not depend on
        return importlib.import_module(f"{__name__}.{name}")
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
