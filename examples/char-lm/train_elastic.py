"""Trains a small GPT on characters of the licence texts that every Debian system carries.

The same as train.py, with the training library of elastic-pytorch. It commits its steps, so a
worker takes with it only those since the last commit: one step, unless a commit costs more than a
hundredth of it. The group changes within the living processes. Under plain torchrun, the script
runs as well and continues from its last checkpoint.
"""

import argparse
import math
import os
import time
from pathlib import Path

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from data import Samples, load_text
from model import CharLM
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader


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
    add("--checkpoint-dir", default="checkpoints", help="shared folder, or s3://BUCKET/PREFIX")
    add("--checkpoint-every", type=float, default=5.0, help="least seconds between checkpoints")
    add("--log-every", type=int, default=10, help="steps between lines of progress")
    add("--seed", type=int, default=1234, help="of the first weights and the order of samples")
    run_id = os.environ.get("TORCHELASTIC_RUN_ID", "default")
    add("--run-id", default=run_id, help="sub-folder of the checkpoints: a new name, a new run")
    return parser.parse_args()


def learning_rate_factor(step: int, steps: int) -> float:
    """Warm up briefly, then fall along half a cosine to a twentieth."""
    return min(1.0, (step + 1) / 40) * (
        0.05 + 0.95 * (1 + math.cos(math.pi * min(1.0, step / steps))) / 2
    )


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@elastic.in_process
def train(
    state: elastic.State,
    model: CharLM,
    optimizer: AdamW,
    scheduler: LambdaLR,
    sampler: elastic.ElasticSampler,
    samples: Samples,
    options: argparse.Namespace,
) -> None:
    dist.init_process_group("gloo")
    printed_step = started_step = state.restore()
    printed_at = time.perf_counter()
    rank, workers = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print(f"start at step {state.step}/{options.steps}  workers {workers}", flush=True)
    loader = DataLoader(samples, batch_sampler=sampler)
    parallel_model = DistributedDataParallel(model)

    for step in elastic.steps(state, loader, parallel_model, max_steps=options.steps):
        optimizer.zero_grad()
        for inputs, targets in step.parts:
            loss = loss_of(parallel_model, inputs, targets)
            step.backward(loss)
        optimizer.step()
        scheduler.step()
        done = step.number
        if rank == 0 and (
            done in (started_step + 1, options.steps) or done % options.log_every == 0
        ):
            pace = 1000 * (time.perf_counter() - printed_at) / (done - printed_step)
            print(
                f"step {done}/{options.steps}  loss {loss:.3f}  "
                f"workers {workers}  {pace:.0f} ms/step",
                flush=True,
            )
            printed_step, printed_at = done, time.perf_counter()


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
    samples = Samples(text, options.context, stride=options.context // 2)
    model = CharLM(vocabulary, options.context)
    optimizer = AdamW(
        model.parameters(), lr=options.learning_rate, betas=(0.9, 0.99), weight_decay=0.1
    )
    scheduler = LambdaLR(optimizer, lambda step: learning_rate_factor(step, options.steps))
    sampler = elastic.ElasticSampler(samples, options.batch_size, seed=options.seed)
    state = elastic.State(
        f"{options.checkpoint_dir}/{options.run_id}",
        elastic.State.Options(flush_seconds=options.checkpoint_every),
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        sampler=sampler,
    )

    train(state, model, optimizer, scheduler, sampler, samples, options)
    loss = validate(model, Samples(held_out_text, options.context, stride=options.context))
    if dist.get_rank() == 0:
        print(f"done at step {state.step}/{options.steps}  validation loss {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
