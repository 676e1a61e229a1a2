"""The elastic Trainer of Hugging Face transformers, imported on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastic_pytorch.transformers.trainer import ElasticTrainer, ElasticTrainerMixin

__all__ = ["ElasticTrainer", "ElasticTrainerMixin"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("elastic_pytorch.transformers.trainer"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
