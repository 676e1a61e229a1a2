import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from elastic_pytorch_operator.agents.heartbeat import parse_heartbeat
from elastic_pytorch_operator.model.failure import Fault, fault_of_worker
from elastic_pytorch_operator.model.observed import Failure

import tests.python_of_operator  # noqa: F401 - leaves this module out
from tests.worker_image.agents import Agents
from tests.worker_image.scripted_operator import ScriptedOperator
from tests.worker_image.told_failure import run_until_failure

pytestmark = [pytest.mark.gpu, pytest.mark.process]

TRAIN = """
import datetime, os, sys, time
import torch
import torch.distributed as dist
import elastic_pytorch as elastic

what, rank = os.environ["WHAT"], int(os.environ["RANK"])
if what != "duplicate":
    os.environ["NCCL_HOSTID"] = f"rank-{rank}"
if what == "interface":
    os.environ["NCCL_SOCKET_IFNAME"] = "nosuch0"

def fill() -> list[torch.Tensor]:
    kept, size = [], 1 << 30
    while size >= 1 << 12:
        try:
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return kept

def train() -> None:
    timeout = datetime.timedelta(seconds=3 if what == "timeout" else 600)
    dist.init_process_group("nccl", timeout=timeout)
    torch.ones(1, device="cuda")
    if what == "full":  # both have their CUDA context now
        dist.new_group(backend="gloo").barrier().wait()
    kept = fill() if what == "full" and rank == 0 else None
    for step in range(10**6):
        numbers = torch.ones(4, device="cuda")
        dist.all_reduce(numbers)
        numbers[0].item()
        if step == 3:
            open(f"stepping{rank}", "w").close()
        if step == 5 and rank == 1:
            if what == "timeout":
                time.sleep(600)
            elif what == "memory":
                torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
            elif what == "assert":
                numbers[torch.tensor([100], device="cuda")].item()
        time.sleep(0.02)

(elastic.in_process(train) if os.environ.get("IN_PROCESS") else train)()
"""
Train = Callable[..., Failure]
START_METHODS = pytest.mark.parametrize("start_method", ["forkserver", "spawn"])


@pytest.fixture
def fail(operator: ScriptedOperator, agents: Agents, tmp_path: Path) -> Train:
    """Has a worker's two processes fail; returns what a real operator reads of it."""
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))

    def run(what: str, start_method: str = "forkserver", **environment: str) -> Failure:
        failure = run_until_failure(
            operator, agents, start_method=start_method, WHAT=what, **environment
        )
        print(f"=== {what} {start_method}: {failure}")
        return failure

    return run


SET_UP = {
    "duplicate": "Duplicate GPU detected : rank ",
    "interface": "Bootstrap : no socket interface found",
}


@START_METHODS
@pytest.mark.parametrize("what", SET_UP)
def test_wrong_set_up_counts(fail: Train, what: str, start_method: str) -> None:
    failure = fail(what, start_method)
    assert failure.exit_code == 1
    assert failure.exception.endswith("DistBackendError")
    assert SET_UP[what] in failure.message
    assert fault_of_worker(failure) is Fault.CODE


def test_wrong_set_up_ends_a_function_that_could_be_called_again(fail: Train) -> None:
    failure = fail("duplicate", IN_PROCESS="1")
    assert SET_UP["duplicate"] in failure.message
    assert fault_of_worker(failure) is Fault.CODE


def test_a_full_gpu_counts(fail: Train) -> None:
    failure = fail("full")
    assert "out of memory" in failure.message or "ncclUnhandledCudaError" in failure.message
    assert fault_of_worker(failure) is Fault.CODE


@START_METHODS
def test_memory_that_is_not_there_counts(fail: Train, start_method: str) -> None:
    failure = fail("memory", start_method)
    assert failure.rank == 1
    assert failure.exception.endswith("OutOfMemoryError")
    assert "CUDA out of memory. Tried to allocate 1024.00 GiB" in failure.message
    assert fault_of_worker(failure) is Fault.CODE


@START_METHODS
def test_an_assertion_on_the_device_counts(fail: Train, start_method: str) -> None:
    failure = fail("assert", start_method)
    assert failure.rank == 1
    assert "CUDA error: device-side assert triggered" in failure.message
    assert fault_of_worker(failure) is Fault.CODE


def test_a_peer_that_never_comes_is_told_by_the_watchdog(fail: Train) -> None:
    failure = fail("timeout", TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC="0")
    assert (failure.rank, failure.signal) == (0, "SIGABRT")
    assert "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" in failure.message
    assert fault_of_worker(failure) is Fault.ECHO


def test_a_lost_peer_is_told_by_the_watchdog(
    operator: ScriptedOperator,
    agents: Agents,
    tmp_path: Path,
) -> None:
    """If the operator does nothing, which it does not wait for."""
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    started = [
        agents(worker, "train.py", WHAT="nothing", TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC="0")
        for worker in ("w0", "w1")
    ]
    operator.begin("w0", "w1")
    operator.wait((tmp_path / "stepping1").exists)
    started[1].kill()
    operator.wait_for("failed", "w0")
    heard = operator.last("w0")
    failure = parse_heartbeat("w0", heard.body, 0.0).failure
    print(f"=== lost: {failure}")
    assert failure.signal == "SIGABRT"
    assert "ncclRemoteError" in failure.message
    assert "Connection closed by remote peer" in failure.message
    assert fault_of_worker(failure) is Fault.ECHO
