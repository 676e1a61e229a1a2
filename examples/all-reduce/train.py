"""The smallest elastic job: an all-reduce a step, now and then a checkpoint, and one line a step.

Plain torchrun code: NCCL where there is a GPU, else gloo. Rank 0 prints `STEP n world=w
time=seconds`, so that every change of the group can be timed from its log.
"""

import argparse
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def say(text: str) -> None:
    sys.stdout.write(f"{text} time={time.time():.3f} host={os.environ.get('HOSTNAME', '')}\n")
    sys.stdout.flush()


def load_step(path: Path) -> int:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def save_step(path: Path, step: int) -> None:
    new = path.with_suffix(".new")
    new.write_text(str(step))
    new.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--steps", type=int, default=100_000)
    add("--step-seconds", type=float, default=0.1)
    add("--checkpoint-dir", type=Path, default=Path("/tmp"))
    add("--checkpoint-every", type=int, default=10)
    add("--fail-at", type=int, default=0, help="raise at this step, on the last rank (0: never)")
    add(
        "--save-on-sigterm",
        action="store_true",
        help="once told to end, all leave after a step that rank 0 saves",
    )
    options = parser.parse_args()

    device, backend = torch.device("cpu"), "gloo"
    if torch.cuda.is_available():
        device, backend = torch.device("cuda", int(os.environ["LOCAL_RANK"])), "nccl"
        torch.cuda.set_device(device)  # NCCL uses the current device
    dist.init_process_group(backend, timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    say(f"INIT rank={rank} world={world} restart={os.environ['TORCHELASTIC_RESTART_COUNT']}")

    # One checkpoint for each run of a job: the run id is the job's identity.
    checkpoint = options.checkpoint_dir / f"{os.environ['TORCHELASTIC_RUN_ID']}.step"
    done = torch.tensor(load_step(checkpoint) if rank == 0 else 0, device=device)
    dist.broadcast(done, 0)
    told: list[int] = []
    if options.save_on_sigterm:
        # Only a note: a handler may run within a save.
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    for step in range(int(done) + 1, options.steps + 1):
        total = torch.tensor([1, len(told)], device=device)
        dist.all_reduce(total)
        ranks, leave = total.tolist()
        if ranks != world:
            raise ValueError(f"{world} workers add up to {ranks}")
        if step == options.fail_at and rank == world - 1:
            raise ValueError(f"told to fail at step {step}")
        if rank == 0:
            say(f"STEP {step} world={world}")
            if leave or step % options.checkpoint_every == 0:
                save_step(checkpoint, step)
        if leave:
            dist.destroy_process_group()  # or gloo's threads may abort this process as it ends
            sys.exit(0)
        time.sleep(options.step_seconds)
    dist.barrier()
    say(f"DONE rank={rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
