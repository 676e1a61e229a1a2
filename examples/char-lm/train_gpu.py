"""Trains the small GPT on GPUs: NCCL, bfloat16, and batches that are copied while it computes.

It has been run with two workers that share one GPU. It also runs on the CPU with gloo, and under
plain torchrun.
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
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=2000, help="optimizer steps in all")
    add("--batch-size", type=int, default=256, help="samples per step, of all GPUs together")
    add("--micro-batch-size", type=int, default=32, help="samples that a GPU computes at once")
    add("--learning-rate", type=float, default=1e-3, help="its peak, after the warm-up")
    add("--context", type=int, default=256, help="characters per sample")
    add("--width", type=int, default=768, help="of the model")
    add("--layers", type=int, default=12, help="of the model")
    add("--loader-workers", type=int, default=2, help="processes that read samples, for each GPU")
    add("--text", type=Path, default=Path("/usr/share/common-licenses"), help="folder of texts")
    add("--checkpoint-dir", default="checkpoints", help="shared folder, or s3://BUCKET/PREFIX")
    add("--log-every", type=int, default=10, help="steps between lines of progress")
    add("--seed", type=int, default=1234, help="of the first weights and the order of samples")
    run_id = os.environ.get("TORCHELASTIC_RUN_ID", "default")
    add("--run-id", default=run_id, help="sub-folder of the checkpoints: a new name, a new run")
    return parser.parse_args()


def learning_rate_factor(step: int, steps: int) -> float:
    """Warm up, then fall along half a cosine to a tenth."""
    return min(1.0, (step + 1) / 100) * (
        0.1 + 0.9 * (1 + math.cos(math.pi * min(1.0, step / steps))) / 2
    )


def join_group() -> torch.device:
    """Form the group, and return the device of this process."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    # Before anything else uses CUDA: NCCL takes the current device, and so would each process the
    # first.
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    return device


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor, device: torch.device) -> Tensor:
    inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
    with torch.autocast(device.type, torch.bfloat16):
        return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


@torch.no_grad()
def validate(model: nn.Module, samples: Samples, device: torch.device) -> float:
    """Return the mean loss on samples held out from training; each rank computes a share of it."""
    model.eval()
    share = samples.windows[dist.get_rank() :: dist.get_world_size()]
    total = torch.zeros(2, device=device)
    for windows in share.split(64):
        loss = loss_of(model, windows[:, :-1], windows[:, 1:], device)
        total += torch.stack(
            [loss * len(windows), torch.tensor(float(len(windows)), device=device)]
        )
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@record
def main() -> None:
    options = parse_options()
    device = join_group()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    text, held_out_text, vocabulary = load_text(options.text)
    samples = Samples(text, options.context, stride=options.context // 2)
    model = CharLM(vocabulary, options.context, width=options.width, layers=options.layers).to(
        device
    )
    optimizer = AdamW(
        model.parameters(), lr=options.learning_rate, betas=(0.9, 0.95), weight_decay=0.1
    )
    scheduler = LambdaLR(optimizer, lambda step: learning_rate_factor(step, options.steps))
    sampler = elastic.ElasticSampler(
        samples, options.batch_size, micro_batch_size=options.micro_batch_size, seed=options.seed
    )
    state = elastic.State(
        f"{options.checkpoint_dir}/{options.run_id}",
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        sampler=sampler,
    )
    printed_step = state.restore()
    printed_at = time.perf_counter()
    rank, workers = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print(f"start at step {state.step}/{options.steps}  workers {workers}", flush=True)
    workers_of_loader = {
        "num_workers": options.loader_workers,
        "persistent_workers": options.loader_workers > 0,
    }
    loader = DataLoader(
        samples, batch_sampler=sampler, pin_memory=device.type == "cuda", **workers_of_loader
    )
    parallel_model = DistributedDataParallel(
        model, device_ids=[device] if device.type == "cuda" else None
    )

    for step in elastic.steps(state, loader, parallel_model, max_steps=options.steps):
        optimizer.zero_grad()
        for inputs, targets in step.parts:
            loss = loss_of(parallel_model, inputs, targets, device)
            step.backward(loss)
        clip_grad_norm_(parallel_model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if rank == 0 and (step.number == options.steps or step.number % options.log_every == 0):
            pace = 1000 * (time.perf_counter() - printed_at) / (step.number - printed_step)
            print(
                f"step {step.number}/{options.steps}  loss {loss:.3f}  "
                f"workers {workers}  {pace:.0f} ms/step",
                flush=True,
            )
            printed_step, printed_at = step.number, time.perf_counter()

    validation_loss = validate(
        model, Samples(held_out_text, options.context, stride=options.context), device
    )
    if rank == 0:
        print(
            f"done at step {state.step}/{options.steps}  validation loss {validation_loss:.3f}",
            flush=True,
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
