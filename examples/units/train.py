"""Trains a model that is split by tensors over the pods of a unit, on texts of any Debian system.

Each unit is a replica of the model, and computes a share of every batch. Each rank keeps its part
of the model in its pod's memory, from which a group of any number of units continues. The script
uses NCCL on GPUs and gloo on CPUs.
"""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.optim import AdamW
from torch.utils.data import DataLoader, Dataset

CONTEXT = 16  # characters from which the next one is guessed
# The first layer of each pair is cut by its outputs, the second one by its inputs: a unit adds up
# once for each pair.
PLAN = {
    "0": ColwiseParallel(),
    "2": RowwiseParallel(),
    "4": ColwiseParallel(),
    "6": RowwiseParallel(),
}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=1000, help="optimizer steps in all")
    add("--batch-size", type=int, default=96, help="samples per step, shared out among the units")
    add("--learning-rate", type=float, default=2e-3)
    add(
        "--width",
        type=int,
        default=256,
        help="of the layers that are cut; a multiple of a unit's processes",
    )
    add("--unit", type=int, default=2, help="processes of a unit; in a job, spec.unitReplicas")
    add("--text", type=Path, default=Path("/usr/share/common-licenses"), help="folder of texts")
    add("--checkpoint-dir", type=Path, default=Path("checkpoints"), help="folder all workers share")
    add("--checkpoint-every", type=float, default=60.0, help="seconds between checkpoints on disk")
    add("--log-every", type=int, default=10, help="steps between lines of progress")
    add("--seed", type=int, default=1234, help="of the first weights and the order of samples")
    run_id = os.environ.get("TORCHELASTIC_RUN_ID", "default")
    add("--run-id", default=run_id, help="sub-folder of the checkpoints: a new name, a new run")
    return parser.parse_args()


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Windows of a text, each with the character that comes next."""

    def __init__(self, folder: Path) -> None:
        files = sorted(
            file for file in folder.iterdir() if file.is_file() and not file.is_symlink()
        )
        text = torch.frombuffer(
            bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8
        )
        characters, numbers = torch.unique(text, return_inverse=True)
        self.vocabulary = len(characters)
        self.windows = numbers.unfold(0, CONTEXT + 1, 1)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        window = self.windows[index]
        return functional.one_hot(window[:-1], self.vocabulary).flatten().float(), window[-1]


def new_model(vocabulary: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        *(
            nn.Linear(CONTEXT * vocabulary, width),
            nn.GELU(),
            nn.Linear(width, width // 2),
            nn.GELU(),
        ),
        *(nn.Linear(width // 2, width), nn.GELU(), nn.Linear(width, vocabulary)),
    )


@torch.no_grad()
def average_gradients(parameters: Iterable[nn.Parameter], replicas: dist.ProcessGroup) -> None:
    """Average this rank's part of the gradients over the same parts of the other units."""
    for parameter in parameters:
        assert isinstance(parameter.grad, DTensor)
        average(parameter.grad.to_local(), replicas)


def average(tensor: Tensor, replicas: dist.ProcessGroup) -> Tensor:
    dist.all_reduce(tensor, group=replicas)
    return tensor.div_(dist.get_world_size(replicas))


@record
def main() -> None:
    options = parse_options()
    torch.manual_seed(options.seed)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
    mesh = elastic.unit_mesh(("tp",), (options.unit,))
    replicas = mesh.get_group("replicate")

    samples = Samples(options.text)
    model = parallelize_module(
        new_model(samples.vocabulary, options.width).to(device), mesh["tp"], PLAN
    )
    optimizer = AdamW(model.parameters(), lr=options.learning_rate)
    sampler = elastic.ElasticSampler(
        samples, options.batch_size, seed=options.seed, mesh=mesh["replicate"]
    )
    folder = options.checkpoint_dir / options.run_id
    kept = {"model": model, "optimizer": optimizer, "sampler": sampler}
    state = elastic.State(
        folder,
        elastic.State.Options(flush_seconds=options.checkpoint_every, total_steps=options.steps),
        **kept,
    )
    started_step = state.restore()
    groups = f"units {mesh['replicate'].size()} of {mesh['tp'].size()}"
    if dist.get_rank() == 0:
        print(f"start at step {state.step}/{options.steps}  {groups}", flush=True)

    loader = DataLoader(samples, batch_sampler=sampler)
    while state.step < options.steps:
        for inputs, targets in loader:
            with sampler.part() as part:
                loss = part.weight * functional.cross_entropy(
                    model(inputs.to(device)), targets.to(device)
                )
                loss.backward()
            average_gradients(model.parameters(), replicas)
            optimizer.step()
            optimizer.zero_grad()
            mean = average(loss.detach(), replicas)  # over the whole batch
            done = state.step + 1
            if dist.get_rank() == 0 and (
                done in (started_step + 1, options.steps) or done % options.log_every == 0
            ):
                print(f"step {done}/{options.steps}  loss {mean:.3f}  {groups}", flush=True)
            state.commit(loss=mean)
            if state.step == options.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
