"""Measures what commits of a model and its optimizer on a GPU cost, in states of several sizes."""

import os
import statistics
import time
from collections.abc import Callable

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
HEAD = ("state", "overlap", "a commit, as measured", "a step takes longer by", "every", "loss")


def measure(megabytes: int, *, overlap: bool) -> tuple[str, ...]:
    """A row: commits a model with AdamW, in steps of 0.1 s that never wait for the GPU."""
    size = megabytes * 10**6 // (4 * TENSORS)
    model = nn.ParameterList(torch.randn(size, device="cuda") for _ in range(TENSORS // 3))
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

    def restored(every: int | None = None) -> tuple[elastic.State, Callable[[], None]]:
        """A state, and a step with its commit."""
        options = elastic.State.Options(every=every, overlap=overlap)
        state = elastic.State(None, options, model=model, optimizer=optimizer)
        state.restore()

        def do() -> None:
            step()
            state.commit()

        return state, do

    alone = timed(20, step)
    state, committing = restored(every=1)
    timed(4, committing)
    longer = timed(10, committing) - alone
    cost = statistics.median(state._interval._commits)
    state.close()
    interval, loss = next_interval(1, cost, alone), float("nan")  # not tried
    if megabytes <= MOST_MEGABYTES:
        state, committing = restored()
        timed(20, committing)
        loss = timed(STEPS, committing) / timed(20, step) - 1
        interval = state._interval.steps
        state.close()
    costs = (f"{1e3 * cost:.1f} ms", f"{1e3 * longer:.1f} ms", f"{interval} steps", f"{loss:.2%}")
    return (f"{megabytes} MB", "yes" if overlap else "no", *costs)


def main() -> None:
    server = PodServer()
    os.environ[LOCAL_SOCKET] = server.prepare()
    server.start()
    rows = []
    for megabytes in MEGABYTES:
        for overlap in (False, True):
            rows.append(measure(megabytes, overlap=overlap))
            torch.cuda.empty_cache()
    server.close()
    print(
        f"Commits from {torch.cuda.get_device_name()}, torch {torch.__version__}",
        align(HEAD, rows),
        sep="\n",
    )


if __name__ == "__main__":
    main()
