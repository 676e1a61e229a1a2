"""Trains a small model with the training library, and tells which samples each step took."""

import argparse
import hashlib
import os
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import elastic_pytorch as elastic
import torch
import torch.distributed as dist
from elastic_pytorch.pod import preparation
from events import event
from own_orders import OWN
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--epochs", type=int, default=2)
add("--samples", type=int, default=500)
add("--batch-size", type=int, default=12)
add("--micro-batch-size", type=int, default=4, help="dropout needs it; 0: none")
add("--learning-rate", type=float, default=1e-2)
add("--dropout", type=float, default=0.1)
add("--double", action="store_true", help="64 bits: the order of sums changes little")
add("--loader-workers", type=int, default=0)
add("--step-seconds", type=float, default=0.02)
add("--slow", help="the steps take that time only while this file is there")
add("--folder", default=None)
add("--flush-seconds", type=float, default=0.3)
add("--open-ended", action="store_true", help="the library is not told which step is the last one")
add("--every", type=int, default=1, help="steps; 0: as the library chooses")
add("--ballast-bytes", type=int, default=0, help="what each commit copies besides")
add("--in-process", action="store_true")
add("--backend", default="gloo")
add("--fail-at", type=int, default=0, help="the last rank raises in this step, once")
add("--set-up-seconds", type=float, default=0, help="of what a process does once")
add("--set-up-fails", type=float, default=0, help="the chance to end there, later")
add("--hang-in-leaving", action="store_true", help="in a group of two")
add("--sharded", action="store_true", help="by FSDP2")
add("--sharded-weights", action="store_true", help="without FSDP2, on CPUs")
add("--own", choices=OWN, help="the order of the samples is one of the script's own")
add("--early-group", action="store_true", help="there is a group before the function is called")
options = parser.parse_args()
if options.hang_in_leaving and os.environ["WORLD_SIZE"] == "2":
    dist.destroy_process_group = lambda: time.sleep(3600)
if options.backend == "nccl_like":
    import nccl_like  # noqa: F401 - registers it

device = "cuda" if options.backend == "nccl" else "cpu"
if device == "cuda":  # processes of one pod share the GPU, too
    os.environ["NCCL_HOSTID"] += "-" + os.environ["LOCAL_RANK"]
time.sleep(options.set_up_seconds)
told = Path(os.environ["EVENTS"])
if random.random() < options.set_up_fails and told.exists() and told.stat().st_size:
    # A member of a group that exits with 0 says that the job is done.
    how = random.choice(("raise", "kill", *(("leave",) if preparation.prepares() else ())))
    event("set-up fails", alone=True, how=how)
    if how == "leave":
        os._exit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("told to fail in its set-up")
if options.double:
    torch.set_default_dtype(torch.float64)
torch.manual_seed(5)
numbers = torch.arange(options.samples, dtype=torch.get_default_dtype())
data = TensorDataset(
    torch.stack([torch.sin(numbers * k / 7) for k in range(1, 9)], 1),
    torch.cos(numbers / 3),
    numbers,
)
sharded = options.sharded or options.sharded_weights


def make() -> SimpleNamespace:
    """Makes what is trained; what is sharded belongs to the group, which is made here."""
    parts, layers = (
        None,
        [nn.Linear(8, 32), nn.Dropout(options.dropout), nn.Tanh(), nn.Linear(32, 1)],
    )
    model = trained = nn.Sequential(*layers).to(device)
    if sharded:
        dist.init_process_group(options.backend)
    if options.sharded:
        from torch.distributed.fsdp import fully_shard  # takes a second, and not every torch has it

        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    if options.sharded_weights:
        from sharded_weights import ShardedWeights  # no file of other jobs

        parts = trained = ShardedWeights(model)
    optimizer = torch.optim.AdamW(
        trained.parameters(), lr=options.learning_rate, foreach=None if parts is None else False
    )
    sampler = elastic.ElasticSampler(
        data,
        options.batch_size or None,
        micro_batch_size=options.micro_batch_size or None,
        seed=3,
        **OWN.get(options.own, {}),
    )
    state = elastic.State(
        options.folder,
        elastic.State.Options(
            every=options.every or None,
            flush_seconds=options.flush_seconds,
            total_steps=None if options.open_ended else options.epochs * sampler.batches_per_epoch,
        ),
        model=trained,
        optimizer=optimizer,
        sampler=sampler,
        ballast=torch.zeros(options.ballast_bytes, dtype=torch.uint8, device=device),
    )
    return SimpleNamespace(
        model=model, parts=parts, optimizer=optimizer, sampler=sampler, state=state
    )


def restore_sharded(state: elastic.State) -> int:
    """Tells that the process cannot go on, which another one in its place would hide."""
    from elastic_pytorch.group.mesh_caches import StaleMesh  # takes seconds

    try:
        return state.restore()
    except StaleMesh as error:
        event("refused", error=str(error))
        raise


made = None if sharded and options.in_process else make()


def train() -> nn.Module:
    own = made or make()
    model, parts, optimizer, sampler, state = (
        own.model,
        own.parts,
        own.optimizer,
        own.sampler,
        own.state,
    )
    loader = DataLoader(data, batch_sampler=sampler, num_workers=options.loader_workers)
    if not sharded:
        dist.init_process_group(options.backend)
    first = restore_sharded(state) if sharded else state.restore()
    if parts is not None:
        parts.put_together()
    ddp = model if sharded else DistributedDataParallel(model)
    event("restored", step=first, generation=state._version.generation)
    taken: list[int] = []
    for epoch in sampler.epochs(options.epochs):
        for inputs, targets, which in loader:
            with sampler.part(ddp) as part:
                loss = nn.functional.mse_loss(ddp(inputs.to(device)).squeeze(1), targets.to(device))
                taken += which.int().tolist() if part.samples else []
                # Before the gradients are exchanged: a rank that is killed after that has done its
                # share.
                if part.last:
                    event(
                        "step",
                        step=state.step + 1,
                        epoch=epoch,
                        samples=taken,
                        generation=state._version.generation,
                        interval=state._interval.steps,
                    )
                (part.weight * loss).backward()
            if not part.last:
                continue
            last_rank = dist.get_rank() == dist.get_world_size() - 1
            # once: the next group begins later
            if options.fail_at == state.step + 1 and first == 0 and last_rank:
                raise ValueError("told to fail")
            if parts is not None:
                parts.take_gradients()
            optimizer.step()
            if parts is not None:
                parts.put_together()
            optimizer.zero_grad()
            taken = []
            time.sleep(
                0 if options.slow and not Path(options.slow).exists() else options.step_seconds
            )
            state.commit(loss=loss)
    if not sharded:
        dist.destroy_process_group()
    return model


if options.early_group:
    dist.init_process_group(options.backend)
model = (elastic.in_process(train) if options.in_process else train)()
parameters = [p.full_tensor() if options.sharded else p for p in model.parameters()]
digest = hashlib.sha256(
    b"".join(p.detach().cpu().numpy().tobytes() for p in parameters)
).hexdigest()
event("done", digest=digest, parameters=[x for p in parameters for x in p.flatten().tolist()])
if sharded:
    dist.destroy_process_group()
