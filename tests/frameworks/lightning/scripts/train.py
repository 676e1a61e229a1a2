"""Trains on numbers with Lightning, elastic or not, and tells which samples each step took."""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, os.environ["SCRIPTS"])

import elastic_pytorch as elastic
import lightning as L  # noqa: N812 - as Lightning's own documentation has it
import torch
from events import event
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--stock", action="store_true", help="without the library: ModelCheckpoint, and ckpt_path")
add("--num-nodes", type=int, help="written into the script; without it, from the environment")
add("--batch-size", type=int, default=10)
add("--micro-batch-size", type=int)
add("--accumulate", type=int, default=1)
add("--precision", default="32-true")
add("--manual", action="store_true", help="two optimizers that take turns")
add("--sampler", action="store_true", help="the script makes the ElasticSampler")
add("--step-seconds", type=float, default=0.05)
add("--folder", type=Path, required=True)
options = parser.parse_args()

L.seed_everything(5)
numbers = torch.arange(400, dtype=torch.float32)
data = TensorDataset(
    torch.stack([torch.sin(numbers * k / 7) for k in range(1, 9)], 1),
    torch.cos(numbers / 3),
    numbers,
)


class Model(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        dropout = nn.Dropout(0.1 if options.micro_batch_size else 0.0)
        self.first = nn.Sequential(nn.Linear(8, 32), dropout, nn.Tanh())
        self.last = nn.Linear(32, 1)
        self.automatic_optimization = not options.manual
        self.taken: list[int] = []
        self.shares: list[tuple[int, float]] = []

    def on_train_start(self) -> None:
        self.generation = self.trainer.strategy.broadcast(time.time())
        event("restored", step=self.done)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        inputs, targets, which = batch
        loss = nn.functional.mse_loss(self.last(self.first(inputs)).squeeze(1), targets)
        self.log("train_loss", loss)
        elastic_callback = self.trainer.callbacks[0]
        part = getattr(elastic_callback, "_part", None)
        samples = len(which) if part is None else part.samples
        self.taken += which.int().tolist()[:samples]
        self.shares.append((samples, loss.item()))
        if options.stock or self._completes_step(batch_idx):
            # Before the gradients are exchanged: a rank that is killed after that has done its
            # share.
            event(
                "step",
                step=self.done + 1,
                epoch=self.current_epoch,
                batch=batch_idx,
                samples=self.taken,
                loss=sum(n * value for n, value in self.shares),
                rate=self.trainer.optimizers[0].param_groups[0]["lr"],
                generation=self.generation
                if options.stock
                else elastic_callback._state._version.generation,
            )
            self.taken, self.shares = [], []
        if options.manual:
            optimizer = self.optimizers()[batch_idx % 2]
            self.manual_backward(loss)
            optimizer.step()
            for each in self.optimizers():
                each.zero_grad()
            for scheduler in self.lr_schedulers():
                scheduler.step()
        return loss

    @property
    def done(self) -> int:
        return self.trainer.global_step

    def _completes_step(self, batch_idx: int) -> bool:
        each = self.trainer.accumulate_grad_batches
        return (batch_idx + 1) % each == 0 or batch_idx + 1 == self.trainer.num_training_batches

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        inputs, targets, _ = batch
        self.log(
            "val_loss",
            nn.functional.mse_loss(self.last(self.first(inputs)).squeeze(1), targets),
            sync_dist=True,
        )

    def on_validation_epoch_end(self) -> None:
        event(
            "validated",
            epoch=self.current_epoch,
            step=self.done,
            sanity=self.trainer.sanity_checking,
        )

    def on_train_batch_end(self, *_: Any) -> None:
        time.sleep(options.step_seconds)

    def configure_optimizers(self) -> Any:
        if options.manual:
            optimizers = [
                torch.optim.SGD(part.parameters(), lr=0.05, momentum=0.9)
                for part in (self.first, self.last)
            ]
            return optimizers, [
                torch.optim.lr_scheduler.ExponentialLR(each, 0.995) for each in optimizers
            ]
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        each_step = {
            "scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995),
            "interval": "step",
        }
        each_epoch = {
            "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
            "interval": "epoch",
        }
        return [optimizer], [each_step, each_epoch]


class Steps(ModelCheckpoint):
    """A ModelCheckpoint that tells what it has seen."""

    def on_train_end(self, *arguments: Any) -> None:
        event(
            "best",
            path=self.best_model_path and Path(self.best_model_path).name,
            score=float(self.best_model_score or 0),
        )
        super().on_train_end(*arguments)


common: dict[str, Any] = {
    "max_epochs": 2,
    "accelerator": "cpu",
    "precision": options.precision,
    "accumulate_grad_batches": options.accumulate,
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
checkpoints = Steps(
    options.folder / "lightning", monitor="val_loss", save_top_k=2, filename="{epoch}-{step}"
)
if options.stock:
    checkpoints = ModelCheckpoint(
        options.folder / "lightning", every_n_train_steps=5, save_last=True
    )
    nodes = options.num_nodes or int(os.environ["GROUP_WORLD_SIZE"])
    world = int(os.environ["WORLD_SIZE"])
    trainer = L.Trainer(
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=nodes,
        callbacks=[checkpoints],
        **common,
    )
    loader = DataLoader(
        data, batch_size=round(options.batch_size / world), shuffle=True, drop_last=True
    )
else:
    own = elastic.ElasticSampler(data, options.batch_size, seed=5) if options.sampler else None
    if options.batch_size and own is None:
        batch = {"batch_size": options.batch_size, "micro_batch_size": options.micro_batch_size}
        loader = DataLoader(data, batch_size=16, shuffle=True)
    else:
        batch, loader = {}, DataLoader(data, batch_sampler=own)
    trainer = L.Trainer(
        **elastic.lightning.options(
            options.folder / "elastic", **batch, every=1, callbacks=checkpoints
        ),
        **common,
    )
event("starts", world=trainer.world_size)
model = Model()
validation = DataLoader(TensorDataset(*data[:36]), batch_size=6)  # even shares, for any size
trainer.fit(model, loader, validation, ckpt_path="last" if options.stock else None)
event(
    "done",
    parameters=[x for p in model.parameters() for x in p.flatten().tolist()],
    step=trainer.global_step,
)
