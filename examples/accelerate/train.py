"""Train a small network with Accelerate, in a group whose size may change.

Accelerate chooses the device and wraps the model. The training library deals out the data and keeps
the steps.
"""

import argparse
import os
from pathlib import Path

import elastic_pytorch as elastic
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset


def waves(samples: int) -> TensorDataset:
    """Sums of two waves, and what follows each of them."""
    generator = torch.Generator().manual_seed(1)
    frequencies, phases = torch.rand(2, samples, 2, 1, generator=generator)
    times = torch.arange(33) / 4
    series = torch.sin(times * (0.5 + frequencies) + 6 * phases).sum(1)
    return TensorDataset(series[:, :-1], series[:, -1])


def main() -> None:
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--output-dir", type=Path, default=Path("output"))
    add("--samples", type=int, default=6000)
    add("--batch-size", type=int, default=60, help="samples of a step, of all workers together")
    add("--epochs", type=int, default=5)
    options = parser.parse_args()

    set_seed(1)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision="bf16")
    data = waves(options.samples)
    net = nn.Sequential(
        nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(0)
    )
    net = net.to(accelerator.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    sampler = elastic.ElasticSampler(data, options.batch_size, micro_batch_size=10)
    total_steps = options.epochs * sampler.batches_per_epoch
    scheduler = CosineAnnealingLR(optimizer, total_steps)
    folder = options.output_dir / os.environ.get("TORCHELASTIC_RUN_ID", "none")
    state = elastic.State(
        folder,
        elastic.State.Options(total_steps=total_steps),
        model=net,
        optimizer=optimizer,
        scheduler=scheduler,
        sampler=sampler,
    )
    step_done = state.restore()
    accelerator.print(
        f"start at step {step_done}/{total_steps}  workers {accelerator.num_processes}"
    )

    model = accelerator.prepare(net)
    # Not prepared: the sampler gives each rank its share already.
    loader = DataLoader(data, batch_sampler=sampler)
    for _ in elastic.epochs(state, options.epochs):
        for step in elastic.steps(state, loader, model):
            optimizer.zero_grad()
            for inputs, targets in step.parts:
                loss = mse_loss(
                    model(inputs.to(accelerator.device)), targets.to(accelerator.device)
                )
                step.backward(loss)
            optimizer.step()
            scheduler.step()
        accelerator.print(
            f"step {state.step}/{total_steps}  loss {loss:.3f}  workers {accelerator.num_processes}"
        )
    accelerator.end_training()


if __name__ == "__main__":
    main()
