"""A small GPT over characters, and how it is trained.

Nothing in it knows about processes or groups.
"""

import math
from typing import Any

import lightning as L  # noqa: N812 - as Lightning's own documentation has it
import torch
from text import CONTEXT
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Batch = tuple[Tensor, Tensor]


class CharLM(L.LightningModule):
    """Gives every character that may come next a score, at every position of a text."""

    def __init__(self, vocabulary: int, steps: int, width: int = 96) -> None:
        super().__init__()
        self.steps = steps
        self.characters = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.05, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.scores = nn.Linear(width, vocabulary)
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False
        )

    def forward(self, text: Tensor) -> Tensor:
        scores: Tensor = self.scores(
            self.layers(self.characters(text) + self.positions, self.mask, is_causal=True)
        )
        return scores

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self._loss(batch)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("validation_loss", self._loss(batch), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 3e-3, total_steps=self.steps, pct_start=0.1
        )
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    def _loss(self, batch: Batch) -> Tensor:
        inputs, targets = batch
        return cross_entropy(self(inputs).flatten(0, 1), targets.flatten())


class PrintSteps(L.Callback):
    """Prints each step, as a line of the log."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._print(
            trainer,
            f"start at step {trainer.global_step}/{trainer.max_steps}  "
            f"workers {trainer.world_size}",
        )

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        step = f"step {trainer.global_step}/{trainer.max_steps}"
        self._print(trainer, f"{step}  loss {outputs['loss']:.3f}  workers {trainer.world_size}")

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        loss = float(trainer.callback_metrics.get("validation_loss", math.nan))
        self._print(
            trainer,
            f"done at step {trainer.global_step}/{trainer.max_steps}  validation loss {loss:.3f}",
        )

    def _print(self, trainer: L.Trainer, line: str) -> None:
        if trainer.is_global_zero:
            print(line, flush=True)
