"""Trains a small GPT on characters of the licence texts that every Debian system carries.

Plain torchrun code, written the way PyTorch's documentation teaches it: load the newest checkpoint,
join the group, go on from the saved step. The one line that is not plain is `report(...)`, which
does nothing outside an ElasticPyTorchJob.
"""

import argparse
import math
import os
import pickle
import time
import uuid
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from data import ResumableSampler, Samples, load_text
from model import CharLM
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

try:
    from elastic_pytorch import report
except ImportError:  # a job's pods have the package; anywhere else nothing listens

    def report(**_progress: object) -> None:  # type: ignore[misc]
        """Do nothing."""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=800, help="optimizer steps in all")
    add("--batch-size", type=int, default=48, help="samples per step, shared out among the workers")
    add("--learning-rate", type=float, default=3e-3, help="its peak, after the warm-up")
    add("--context", type=int, default=64, help="characters per sample")
    add("--text", type=Path, default=Path("/usr/share/common-licenses"), help="folder of texts")
    add("--checkpoint-dir", type=Path, default=Path("checkpoints"), help="folder all workers share")
    add("--checkpoint-every", type=int, default=20, help="steps between checkpoints")
    add("--log-every", type=int, default=10, help="steps between lines of progress")
    add("--seed", type=int, default=1234, help="of the first weights and the order of samples")
    run_id = os.environ.get("TORCHELASTIC_RUN_ID", "default")
    add("--run-id", default=run_id, help="sub-folder of the checkpoints: a new name, a new run")
    return parser.parse_args()


# --- checkpoints
# --------------------------------------------------------------------------------------------------


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.pt"


def read_checkpoint(file: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return state


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """Find the newest checkpoint that can be read.

    A torn file costs the steps since the one before, not the training.
    """
    for file in sorted(folder.glob("step-*.pt"), reverse=True):
        try:
            return read_checkpoint(file)
        except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
            print(f"cannot read {file} ({type(error).__name__}), trying the one before", flush=True)
    return None


def agree_on_checkpoint(folder: Path, state: dict[str, Any] | None) -> dict[str, Any] | None:
    """Take what rank 0 has loaded.

    The group before may still have been saving while the ranks of this one were loading.
    """
    step = state["step"] if state else 0
    chosen = torch.tensor(step)
    dist.broadcast(chosen, src=0)
    if chosen == step:
        return state
    return read_checkpoint(checkpoint_path(folder, int(chosen))) if chosen else None


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint whose name appears once all of it is on disk, and keep the one before."""
    # A name of its own: a worker cut off from its group may still be writing the same step.
    partial = folder / f"{uuid.uuid4().hex}.partial"
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(checkpoint_path(folder, state["step"]))
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    # With the old ones goes what a worker left behind that was killed while it wrote.
    for old in [*sorted(folder.glob("step-*.pt"))[:-2], *folder.glob("*.partial")]:
        old.unlink(missing_ok=True)


# --- training
# --------------------------------------------------------------------------------------------------


class Training:
    """What a checkpoint holds: the state of everything that learns or counts."""

    def __init__(self, model: nn.Module, learning_rate: float, steps: int) -> None:
        self.model = model
        self.optimizer = AdamW(
            model.parameters(), lr=learning_rate, betas=(0.9, 0.99), weight_decay=0.1
        )
        self.scheduler = LambdaLR(self.optimizer, lambda step: learning_rate_factor(step, steps))
        self.step = 0
        self.epoch = 0
        self.position = 0  # samples of this epoch that the group has seen

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "step": self.step,
            "epoch": self.epoch,
            "position": self.position,
            "random": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.step, self.epoch, self.position = state["step"], state["epoch"], state["position"]
        torch.set_rng_state(state["random"])


def learning_rate_factor(step: int, steps: int) -> float:
    """Warm up briefly, then fall along half a cosine to a twentieth."""
    return min(1.0, (step + 1) / 40) * (
        0.05 + 0.95 * (1 + math.cos(math.pi * min(1.0, step / steps))) / 2
    )


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def train(training: Training, samples: Samples, folder: Path, options: argparse.Namespace) -> None:
    rank, workers = dist.get_rank(), dist.get_world_size()
    # A step takes as many samples however many workers share them: the size of the group changes
    # how fast the model learns, not what it learns.
    share = max(1, round(options.batch_size / workers))
    sampler = ResumableSampler(samples, seed=options.seed)
    loader = DataLoader(samples, batch_size=share, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(training.model)
    saved_step = training.step if rank == 0 else None  # who saves knows
    printed_step = started_step = training.step
    printed_at = time.perf_counter()

    while training.step < options.steps:
        sampler.set_epoch(training.epoch)
        sampler.position = training.position
        for inputs, targets in loader:
            loss = loss_of(model, inputs, targets)
            training.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            training.optimizer.step()
            training.scheduler.step()
            training.step += 1
            training.position += share * workers

            step, last = training.step, training.step == options.steps
            if rank == 0 and (last or step % options.checkpoint_every == 0):
                save_checkpoint(folder, training.state_dict())
                saved_step = step
            report(step=step, total=options.steps, loss=loss.item(), checkpoint_step=saved_step)
            if rank == 0 and (last or step % options.log_every == 0 or step == started_step + 1):
                pace = 1000 * (time.perf_counter() - printed_at) / (step - printed_step)
                line = (
                    f"step {step}/{options.steps}  loss {loss:.3f}  "
                    f"workers {workers}  {pace:.0f} ms/step"
                )
                print(line, flush=True)
                printed_step, printed_at = step, time.perf_counter()
            if last:
                return
        training.epoch, training.position = training.epoch + 1, 0


@torch.no_grad()
def validate(model: nn.Module, samples: Samples) -> float:
    """Return the mean loss on samples held out from training; each rank computes a share of it."""
    model.eval()
    share = samples.windows[dist.get_rank() :: dist.get_world_size()]
    total = torch.stack(
        [loss_of(model, share[:, :-1], share[:, 1:]) * len(share), torch.tensor(float(len(share)))]
    )
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@record
def main() -> None:
    options = parse_options()
    torch.manual_seed(options.seed)
    text, held_out_text, vocabulary = load_text(options.text)
    model = CharLM(vocabulary, options.context)
    training = Training(model, options.learning_rate, options.steps)

    folder = options.checkpoint_dir / options.run_id
    folder.mkdir(parents=True, exist_ok=True)
    state = load_checkpoint(folder)
    dist.init_process_group("gloo")
    state = agree_on_checkpoint(folder, state)
    if state is not None:
        training.load_state_dict(state)
    if dist.get_rank() == 0:
        print(
            f"start at step {training.step}/{options.steps}  workers {dist.get_world_size()}",
            flush=True,
        )

    train(training, Samples(text, options.context, stride=options.context // 2), folder, options)
    loss = validate(model, Samples(held_out_text, options.context, stride=options.context))
    if dist.get_rank() == 0:
        print(
            f"done at step {training.step}/{options.steps}  validation loss {loss:.3f}", flush=True
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
