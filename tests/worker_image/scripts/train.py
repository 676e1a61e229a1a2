"""Adds up ranks, step after step, until a file appears; `--save` answers SIGTERM by saving."""

import argparse
import datetime
import signal
import sys
import time
from pathlib import Path

import elastic_pytorch
from events import event

parser = argparse.ArgumentParser()
add = parser.add_argument
add("--steps", type=int, default=10**6)
add("--finish", default="", help="stop when this file exists")
add("--fail-once", default="", help="rank 1 raises if this file does not exist, and makes it")
add("--save", action="store_true")
arguments = parser.parse_args()


def save(number: int, _frame: object) -> None:
    time.sleep(0.2)
    event("saved", signal=number)
    sys.exit(0)


if arguments.save:
    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGUSR1, save)
event("start", argv=sys.argv[1:])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(1, arguments.steps + 1):
    total = torch.tensor(
        [float(rank), float(bool(arguments.finish) and Path(arguments.finish).exists())]
    )
    dist.all_reduce(total)
    assert total[0] == world * (world - 1) / 2
    event("step", step=step, world=world)
    elastic_pytorch.report(
        step=step, total=arguments.steps, loss=1 / step, checkpoint_step=step // 10 * 10
    )
    if (
        arguments.fail_once
        and rank == world - 1
        and step == 3
        and not Path(arguments.fail_once).exists()
    ):
        Path(arguments.fail_once).touch()
        raise ValueError("boom at step 3")
    if total[1] > 0:
        break
    time.sleep(0.02)
dist.barrier()
dist.destroy_process_group()
event("done")
