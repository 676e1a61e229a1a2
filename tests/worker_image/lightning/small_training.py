"""A Trainer and modules that are quick to make and to fit."""

from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import lightning as L  # noqa: N812 - as Lightning's own documentation has it
import pytest
import torch
from lightning.pytorch import callbacks
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NUMBERS = torch.linspace(-1, 1, 24)
DATA = TensorDataset(NUMBERS.unsqueeze(1), NUMBERS**2)


class Small(L.LightningModule):
    """Fits a parabola, badly.

    Attributes:
        seen: the epoch and the number of each batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1)
        self.seen: list[tuple[int, int]] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.seen.append((self.current_epoch, batch_idx))
        return nn.functional.mse_loss(self.net(batch[0]).squeeze(1), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Lost(Exception): ...


class LostAt(Small):
    def __init__(self, batches: int) -> None:
        super().__init__()
        self.batches = batches

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if len(self.seen) == self.batches:
            raise Lost
        return super().training_step(batch, batch_idx)


class Manual(Small):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Forgets(Manual):
    """Goes backward without Lightning."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        loss.backward()
        return loss


class Skips(Small):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 2 else None


class Logs(Small):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("train", 1.0)
        return loss


class Unplain(Small):
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["more"] = object()


class NeedsMore(Small):
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        del checkpoint["optimizer_states"]


class Counts(L.Callback):
    """Counts batches, and keeps the number by its hooks alone."""

    def __init__(self) -> None:
        self.batches = 0

    def on_train_batch_end(self, *_: Any) -> None:
        self.batches += 1

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["batches"] = self.batches

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        self.batches = checkpoint["batches"]


def averaging() -> L.Callback:
    if not hasattr(callbacks, "EMAWeightAveraging"):
        pytest.skip("this release of Lightning averages no weights")
    made: L.Callback = callbacks.EMAWeightAveraging(decay=0.9)
    return made


def trainer(
    folder: Path | None, *, epochs: int = 2, batch_size: int = 6, **arguments: Any
) -> L.Trainer:
    elastic_arguments = {
        name: arguments.pop(name)
        for name in ("micro_batch_size", "callbacks", "name")
        if name in arguments
    }
    options = elastic.lightning.options(folder, batch_size=batch_size, every=1, **elastic_arguments)
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    defaults = {"max_epochs": epochs, "accelerator": "cpu", "devices": 1}
    return L.Trainer(**(defaults | quiet | options | arguments))


def loader() -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=4, shuffle=True)


def fit(module: Small, folder: Path | None, **arguments: Any) -> Small:
    """Returns the module when a Trainer has fitted it, or was lost meanwhile."""
    torch.manual_seed(3)
    module.net.reset_parameters()
    made = trainer(folder, **arguments)
    try:
        made.fit(module, loader())
    except Lost:
        made.callbacks[0]._state.close()  # a process that ends does so
    return module


def weights(module: Small) -> list[float]:
    return [x for p in module.parameters() for x in p.detach().flatten().tolist()]
