"""How long each rank works in a step, measured in groups of real processes.

No test depends on the speed of the machine: the slow rank begins to be slow when the others have
computed their gradients and wait.
"""

import json
import os
import socket
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.progress.report import REPORT_SOCKET
from elastic_pytorch.training.work_timer import WorkTimer
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from tests.worker_image.torch_group import run_group

pytestmark = pytest.mark.torch

SLOW, PAUSE_SECONDS, STEPS = 1, 0.25, 6


class Reports:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        os.environ[REPORT_SOCKET] = str(Path(tempfile.mkdtemp(), "report"))
        self._socket.bind(os.environ[REPORT_SOCKET])
        self._socket.setblocking(False)

    def of_work(self) -> list[tuple[float, float]]:
        found = []
        while True:
            try:
                fields = json.loads(self._socket.recv(1024))
            except BlockingIOError:
                return found
            if "workSeconds" in fields:
                found.append((fields["workSeconds"], fields["stepSeconds"]))


class Slowness:
    """Has one rank begin a pause when all others wait for it."""

    def __init__(self) -> None:
        self._store = dist.distributed_c10d._get_default_store()

    def pause(self, step: int) -> None:
        others = [rank for rank in range(dist.get_world_size()) if rank != SLOW]
        if dist.get_rank() == SLOW:
            self._store.wait([f"{step}-{rank}" for rank in others])
            time.sleep(PAUSE_SECONDS)

    def note_waiting(self, loss: torch.Tensor, step: int) -> None:
        """Notes in backward, after the timer's callback, that this rank has its gradients."""

        def note() -> None:
            self._store.set(f"{step}-{dist.get_rank()}", "waits")

        queue = torch.autograd.Variable._execution_engine.queue_callback
        loss.register_hook(lambda _: queue(note))


def own_loop(parts: int) -> list[tuple[float, float]]:
    """A loop of a script's own, perhaps with several micro-batches in a step."""
    reports, slowness = Reports(), Slowness()
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer, timer = torch.optim.SGD(model.parameters(), lr=0.01), WorkTimer()
    for step in range(STEPS):
        for part in range(parts):
            last = part == parts - 1
            with model.no_sync() if not last else torch.enable_grad():
                loss = model(torch.ones(2, 4)).sum()
                timer.watch(loss)
                if last:
                    slowness.pause(step)
                    slowness.note_waiting(loss, step)
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        timer.end_step()
    return reports.of_work()


def librarys_loop() -> list[tuple[float, float]]:
    reports, slowness = Reports(), Slowness()
    data = TensorDataset(torch.ones(64, 4))
    sampler = elastic.ElasticSampler(data, 6)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = elastic.State(None, model=model, optimizer=optimizer, sampler=sampler)
    state.restore()
    parallel = DistributedDataParallel(model)
    for step in elastic.steps(
        state, DataLoader(data, batch_sampler=sampler), parallel, max_steps=STEPS
    ):
        optimizer.zero_grad()
        for batch in step.parts:
            loss = parallel(*batch).mean()
            slowness.pause(state.step)
            # Not of the loss itself: the library's callback belongs to what it makes of it, on
            # which backward begins.
            slowness.note_waiting(loss, state.step)
            step.backward(loss)
        optimizer.step()
    return reports.of_work()


def check(found: list[list[tuple[float, float]]]) -> None:
    for rank, reports in enumerate(found):
        assert len(reports) >= STEPS - 2, (
            "each step is longer than the time between two reports; the first one is not measured"
        )
        if rank == SLOW:
            assert all(work >= PAUSE_SECONDS for work, _ in reports), "its pause is its own"
        else:
            # The median, and half: on a busy machine a rank may also get the processor late, once
            # or in each step.
            assert median(step - work for work, step in reports) >= 0.5 * PAUSE_SECONDS, (
                "its wait for the slow rank is no work"
            )


@pytest.mark.parametrize("parts", [pytest.param(1, marks=pytest.mark.long), 3])
def test_the_wait_for_others_is_no_work(parts: int) -> None:
    check(run_group(3, own_loop, parts))


def test_the_library_measures_it_by_itself() -> None:
    check(run_group(3, librarys_loop))


def loop_alone() -> list[tuple[float, float]]:
    reports = Reports()
    data = TensorDataset(torch.ones(64, 4))
    sampler, model = elastic.ElasticSampler(data, 6), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = elastic.State(None, model=model, optimizer=optimizer, sampler=sampler)
    state.restore()
    for step in elastic.steps(state, DataLoader(data, batch_sampler=sampler), model, max_steps=2):
        time.sleep(0.2)
        optimizer.zero_grad()
        for batch in step.parts:
            step.backward(model(*batch).mean())
        optimizer.step()
    return reports.of_work()


def test_a_rank_that_is_alone_reports_no_work() -> None:
    assert run_group(1, loop_alone) == [[]]


def test_without_an_agent_nothing_is_hooked() -> None:
    timer, loss = WorkTimer(), nn.Linear(4, 1)(torch.ones(2, 4)).sum()
    timer.watch(loss)
    assert not loss._backward_hooks
    loss.backward()
    timer.end_step()


class Times:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def with_timer(monkeypatch: pytest.MonkeyPatch) -> tuple[WorkTimer, Times, Reports]:
    monkeypatch.setenv(REPORT_SOCKET, "to be bound")
    reports, clock = Reports(), Times()
    return WorkTimer(clock), clock, reports


def one_step(timer: WorkTimer, clock: Times, seconds: float, *, watched: bool = True) -> None:
    loss = nn.Linear(4, 1)(torch.ones(2, 4)).sum()
    clock.now += seconds
    if watched:
        timer.watch(loss)
    loss.backward()
    timer.end_step()


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        pytest.param(
            [9.0, 0.5, 0.75], [(0.5, 0.5), (0.75, 0.75)], id="each long step but the first"
        ),
        pytest.param(
            [9.0, 0.03, 0.02, 0.01, 0.05],
            [(0.03, 0.11 / 4)],
            id="one of some short steps, and the pace of all",
        ),
        pytest.param(
            [9.0, 0.03, 0.5, 0.5, 0.04, 0.5],
            [(0.03, 0.265), (0.04, 0.54 / 2)],
            id="the end of one goes before",
        ),
    ],
)
def test_ten_steps_a_second_are_measured(
    monkeypatch: pytest.MonkeyPatch, steps: list[float], found: list[tuple[float, float]]
) -> None:
    timer, clock, reports = with_timer(monkeypatch)
    for seconds in steps:
        one_step(timer, clock, seconds)
    assert reports.of_work() == [pytest.approx(report) for report in found]


def test_steps_that_are_not_watched_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, clock, reports = with_timer(monkeypatch)
    for _ in range(4):
        one_step(timer, clock, 1.0, watched=False)
    assert reports.of_work() == []


def test_a_loss_without_gradient_is_let_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, clock, reports = with_timer(monkeypatch)
    timer.watch(torch.zeros(()))
    for _ in range(4):
        one_step(timer, clock, 1.0)
    assert len(reports.of_work()) == 3


def test_no_training_ends_because_it_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise RuntimeError("no time")

    timer, _, reports = with_timer(monkeypatch)
    timer._clock = broken
    for _ in range(3):
        one_step(timer, Times(), 1.0)
    assert reports.of_work() == []


@pytest.mark.gpu
def test_on_a_gpu_the_work_is_that_of_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait() -> None:
        torch.cuda._sleep(100 * cycles)  # as NCCL's kernel does on the stream

    cycles, device = 10_000_000, torch.device("cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    work_seconds = begin.elapsed_time(end) / 1000

    monkeypatch.setenv(REPORT_SOCKET, "to be bound")
    reports, timer, model = Reports(), WorkTimer(), nn.Linear(4, 1).to(device)
    for _ in range(STEPS):
        loss = model(torch.ones(2, 4, device=device)).sum()
        torch.cuda._sleep(cycles)
        timer.watch(loss)
        queue = torch.autograd.Variable._execution_engine.queue_callback
        loss.register_hook(lambda _, queue=queue: queue(wait))
        loss.backward()
        timer.end_step()
    torch.cuda.synchronize()
    timer.end_step()
    found = reports.of_work()
    assert found
    for work, _ in found:
        assert work >= 0.5 * work_seconds
        assert work < 50 * work_seconds, "the wait is a hundred times as long"
