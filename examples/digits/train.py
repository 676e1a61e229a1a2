"""Learns to read digits in mixed precision: bfloat16 on a CPU, float16 with a scaler on a GPU.

Every batch is cut into micro-batches that do not depend on the number of workers, so a group of any
size learns the same.
"""

import argparse
import os
from pathlib import Path

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from data import Digits
from model import DigitReader, moved_a_little
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--epochs", type=int, default=8, help="how often to see each image")
    add("--batch-size", type=int, default=64, help="images per step, of all workers together")
    add("--micro-batch-size", type=int, default=16, help="images that a worker computes at once")
    add("--learning-rate", type=float, default=1e-2, help="its peak")
    add(
        "--checkpoint-dir",
        type=Path,
        help="folder all workers share; without it, peers alone have the state",
    )
    add("--seed", type=int, default=1, help="of the first weights and of the order of the images")
    run_id = os.environ.get("TORCHELASTIC_RUN_ID", "default")
    add("--run-id", default=run_id, help="sub-folder of the checkpoints: a new name, a new run")
    return parser.parse_args()


class Training:
    """What is trained, and the state of it that a new group goes on from."""

    def __init__(self, options: argparse.Namespace) -> None:
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cpu")
        if torch.cuda.is_available():
            self.device = torch.device("cuda", local_rank)
            # NCCL uses the current device, and without this all ranks would share one.
            torch.cuda.set_device(self.device)
        self.precision = torch.float16 if self.device.type == "cuda" else torch.bfloat16
        self.data = Digits(held_out=False)
        self.sampler = elastic.ElasticSampler(
            self.data,
            options.batch_size,
            micro_batch_size=options.micro_batch_size,
            seed=options.seed,
        )
        self.epochs = options.epochs
        steps = options.epochs * self.sampler.batches_per_epoch
        self.model = DigitReader().to(self.device)
        self.optimizer = AdamW(self.model.parameters(), lr=options.learning_rate)
        self.scheduler = OneCycleLR(self.optimizer, options.learning_rate, total_steps=steps)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.device.type == "cuda")
        self.state = elastic.State(
            options.checkpoint_dir and options.checkpoint_dir / options.run_id,
            elastic.State.Options(total_steps=steps),
            model=self.model,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            scaler=self.scaler,
            sampler=self.sampler,
            best_accuracy=0.0,
        )


@elastic.in_process
def train(training: Training) -> float:
    """Train to the end; return the share of the held-out digits that are read right."""
    state, optimizer, scaler = training.state, training.optimizer, training.scaler
    dist.init_process_group("nccl" if training.device.type == "cuda" else "gloo")
    state.restore()
    rank, workers = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print(
            f"start at step {state.step}  epoch {training.sampler.epoch}  workers {workers}",
            flush=True,
        )
    model = DistributedDataParallel(training.model)
    loader = DataLoader(training.data, batch_sampler=training.sampler)

    for epoch in elastic.epochs(state, training.epochs):
        for step in elastic.steps(state, loader, model):
            optimizer.zero_grad()
            for images, labels in step.parts:
                with torch.autocast(training.device.type, training.precision):
                    loss = cross_entropy(
                        model(moved_a_little(images.to(training.device))),
                        labels.to(training.device),
                    )
                step.backward(scaler.scale(loss))
            scaler.step(optimizer)
            scaler.update()
            training.scheduler.step()
        accuracy = accuracy_of(training.model, training.device)
        state.best_accuracy = max(accuracy, state.best_accuracy)
        if rank == 0:
            line = f"epoch {epoch + 1}/{training.epochs}  step {state.step}"
            print(f"{line}  loss {loss:.3f}  accuracy {accuracy:.3f}", flush=True)
    return accuracy_of(training.model, training.device)


@torch.no_grad()
def accuracy_of(model: nn.Module, device: torch.device) -> float:
    digits = Digits(held_out=True)
    model.eval()
    right = model(digits.images.to(device)).argmax(dim=1) == digits.labels.to(device)
    model.train()
    return right.float().mean().item()


@record
def main() -> None:
    options = parse_options()
    torch.manual_seed(options.seed)
    training = Training(options)
    accuracy = train(training)
    if dist.get_rank() == 0:
        best = max(accuracy, training.state.best_accuracy)
        print(
            f"done at step {training.state.step}  accuracy {accuracy:.3f}  best {best:.3f}",
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
