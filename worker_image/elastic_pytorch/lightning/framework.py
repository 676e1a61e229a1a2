"""Lightning, by the name that the script imports; the classes differ."""

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

_HAS_LIGHTNING = "lightning.pytorch" in sys.modules or (
    "pytorch_lightning" not in sys.modules and find_spec("lightning") is not None
)
if TYPE_CHECKING or _HAS_LIGHTNING:
    from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
    from lightning.pytorch.callbacks import GradientAccumulationScheduler
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
elif find_spec("pytorch_lightning") is not None:
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer
    from pytorch_lightning.callbacks import GradientAccumulationScheduler
    from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
else:
    raise ImportError("elastic_pytorch.lightning needs Lightning: pip install lightning")

__all__ = [
    "Callback",
    "DDPStrategy",
    "GradientAccumulationScheduler",
    "LightningDataModule",
    "LightningModule",
    "SingleDeviceStrategy",
    "TorchElasticEnvironment",
    "Trainer",
]
