"""Lightning as docs/use/training-library.md says: its loop, our sampler and State."""

import os
import sys

sys.path.insert(0, os.environ["SCRIPTS"])

import elastic_pytorch as elastic
import lightning
import torch
from events import event
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(os.environ["STEPS"])

torch.manual_seed(5)
numbers = torch.arange(480, dtype=torch.float32)
data = TensorDataset(
    torch.stack([torch.sin(numbers * k / 7) for k in range(1, 9)], 1), torch.cos(numbers / 3)
)
sampler = elastic.ElasticSampler(data, 12, seed=3)


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        inputs, targets = batch
        with sampler.part() as part:
            return part.weight * nn.functional.mse_loss(self.net(inputs).squeeze(1), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The group is there by now, and the loader is not in use yet."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        self.kept = elastic.State(
            None,
            elastic.State.Options(every=1, total_steps=STEPS),
            model=self.net,
            optimizer=optimizer,
            sampler=sampler,
        )
        event(
            "restored",
            step=self.kept.restore(),
            world=self.trainer.world_size,
            device=str(self.device),
        )
        return optimizer

    def on_train_batch_end(self, *_: object) -> None:
        event("step", step=self.kept.step + 1, world=self.trainer.world_size)
        self.kept.commit()
        self.trainer.should_stop = self.kept.step >= STEPS


trainer = lightning.Trainer(
    accelerator="auto",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
    strategy="ddp",
    use_distributed_sampler=False,
    max_epochs=1000,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Model(), DataLoader(data, batch_sampler=sampler))
event("done")
