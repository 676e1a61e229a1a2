"""Fits a small network to a curve, in the shortest script that does all an elastic one should.

It is plain torchrun code, which reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. The package
elastic_pytorch is not needed.
"""

import argparse
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BATCH = 48  # of all workers together


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint-dir", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()

    # 1. Where an earlier group has got to. The run id is the job's identity: a job that is created
    #    again trains from the beginning.
    checkpoint = options.checkpoint_dir / f"curve-{os.environ['TORCHELASTIC_RUN_ID']}.pt"
    found = [torch.load(checkpoint) if checkpoint.exists() else None]

    # 2. The group. Its size and this worker's rank are as of now: the next group may differ in
    #    both.
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world}, local rank {os.environ['LOCAL_RANK']}", flush=True)

    # Ranks that load at different moments may find different checkpoints: all take rank 0's.
    dist.broadcast_object_list(found, src=0)
    (saved,) = found

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = 0
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"]

    x = torch.linspace(-3, 3, 960).unsqueeze(1)
    data = TensorDataset(x, torch.sin(x))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data, seed=1)
    loader = DataLoader(data, batch_size=max(1, BATCH // world), sampler=sampler)
    replica = DistributedDataParallel(model)

    # 3. On from there.
    for epoch in range(first, options.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(replica(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            new = checkpoint.with_suffix(".new")
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "epoch": epoch + 1,
                },
                new,
            )
            new.replace(checkpoint)  # whole, or not at all
            print(
                f"epoch {epoch + 1} of {options.epochs}, workers {world}, loss {loss.item():.4f}",
                flush=True,
            )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
