"""Measures what commits of a model and its optimizer on a GPU cost, in states of several sizes."""

import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import elastic_pytorch as elastic
import torch
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.state.commit_interval import next_interval
from torch import nn

from gpu.table import align

TENSORS = 300  # of a state
MEGABYTES = (10, 100, 1000, 10_000)
STEP_SECONDS = 0.1
STEPS = 40
# Larger states have a longer interval than the steps that are taken.
MOST_MEGABYTES = 1000


class Commits(NamedTuple):
    """The costs of commits, in seconds except for the last three."""

    first: float  # of the CPU, which allocates and pins memory
    library: float  # the median of a commit, as the library measures it
    loss: float  # by which a commit makes a step longer
    step: float  # without a commit
    interval: int  # in steps, as the library chooses it
    share: float  # of the time, with that interval; not a number: not tried
    memory: float  # of committed states, as a multiple of the state


def measure(size: int, *, overlap: bool) -> Commits:
    """Commits a model of some bytes with AdamW, in steps of 0.1 s that never wait for the GPU."""
    model = nn.ParameterList(
        torch.randn(size // (4 * TENSORS), device="cuda") for _ in range(TENSORS // 3)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model:
        parameter.grad = torch.randn_like(parameter)

    def step() -> None:
        # No computation, whose speed would depend on the temperature of the GPU.
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        optimizer.step()

    def timed(count: int, do: Callable[[], None]) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            do()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / count

    cycles = 10**7
    timed(5, step)
    cycles = round(cycles * STEP_SECONDS / timed(5, step))

    def committing(state: elastic.State) -> Callable[[], None]:
        def do() -> None:
            step()
            state.commit()

        return do

    alone = timed(20, step)
    each = elastic.State(
        None, elastic.State.Options(every=1, overlap=overlap), model=model, optimizer=optimizer
    )
    begun = time.perf_counter()
    each.restore()
    first = time.perf_counter() - begun
    timed(4, committing(each))
    loss = timed(10, committing(each)) - alone
    cost = statistics.median(each._interval._commits)
    assert each._commits.snapshot is not None
    memory = os.fstat(each._commits.snapshot.fd).st_blocks * 512 / size
    assert all(
        mapping.tensors[0].is_pinned()
        for mapping in each._commits.snapshot._mappings
        if mapping is not None
    )
    each.close()
    interval, share = next_interval(1, cost, alone), float("nan")
    if size <= MOST_MEGABYTES * 10**6:
        chosen = elastic.State(
            None, elastic.State.Options(overlap=overlap), model=model, optimizer=optimizer
        )
        chosen.restore()
        timed(20, committing(chosen))
        share = timed(STEPS, committing(chosen)) / timed(20, step) - 1
        interval = chosen._interval.steps
        chosen.close()
    return Commits(first, cost, loss, alone, interval, share, memory)


def main() -> None:
    server = PodServer()
    os.environ[LOCAL_SOCKET] = server.prepare()
    server.start()
    head = (
        "state",
        "overlap",
        "first",
        "a commit, as measured",
        "a step takes longer by",
        "step",
        "every",
        "loss",
        "memory / state",
    )
    rows = []
    for megabytes in MEGABYTES:
        for overlap in (False, True):
            found = measure(megabytes * 10**6, overlap=overlap)
            times = (
                f"{1e3 * seconds:.1f} ms"
                for seconds in (found.first, found.library, found.loss, found.step)
            )
            shares = (f"{found.interval} steps", f"{found.share:.2%}", f"{found.memory:.2f}")
            rows.append((f"{megabytes} MB", "yes" if overlap else "no", *times, *shares))
            torch.cuda.empty_cache()
    server.close()
    print(
        f"Commits from {torch.cuda.get_device_name()}, torch {torch.__version__}",
        align(head, rows),
        sep="\n",
    )


if __name__ == "__main__":
    main()
