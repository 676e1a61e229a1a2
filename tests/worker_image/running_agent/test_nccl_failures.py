"""What the operator hears, and makes, of the failures that NCCL tells in a way of its own."""

import tests.python_of_operator  # noqa: F401 - leaves this module out

# isort: split

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from elastic_pytorch_operator.model.failure import Fault, fault_of_worker
from elastic_pytorch_operator.model.observed import Failure

from tests.worker_image.agents import SCRIPTS, Agents
from tests.worker_image.scripted_operator import ScriptedOperator
from tests.worker_image.told_failure import run_until_failure

pytestmark = pytest.mark.process

TRAIN = """
import datetime, os, sys, time
sys.path.insert(0, os.environ["SCRIPTS"])
import nccl_like
import torch
import torch.distributed as dist
from elastic_pytorch import in_process

def train():
    timeout = datetime.timedelta(seconds=float(os.environ["NCCL_LIKE_TIMEOUT"]))
    dist.init_process_group("nccl_like", timeout=timeout)
    for step in range(2):
        if step == 1 and dist.get_rank() == 1:
            time.sleep(600)
        dist.all_reduce(torch.ones(1))

train = in_process(train) if "in_process" in sys.argv else train
train()
"""

DUPLICATE = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
Train = Callable[..., Failure]


@pytest.fixture
def fail(operator: ScriptedOperator, agents: Agents, tmp_path: Path) -> Train:
    """Has a worker's two processes fail; returns what a real operator reads of it."""
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))

    def run(
        *arguments: str, timeout: int = 600, error: str = "", start_method: str = "forkserver"
    ) -> Failure:
        environment = {"SCRIPTS": SCRIPTS, "NCCL_LIKE_TIMEOUT": timeout, "NCCL_LIKE_ERROR": error}
        return run_until_failure(
            operator, agents, *arguments, start_method=start_method, **environment
        )

    return run


def test_wrong_set_up_ends_a_function_that_could_be_called_again_and_is_its_own_failure(
    fail: Train,
) -> None:
    failure = fail("in_process", error="invalid-usage")
    assert (failure.exit_code, failure.signal, failure.exception) == (1, "", "DistBackendError")
    assert failure.message.endswith(DUPLICATE)
    assert "in train" in failure.traceback, (
        "the process has ended with its exception, and has lost no peer"
    )
    assert fault_of_worker(failure) is Fault.CODE


def test_abort_by_the_watchdog_is_told_with_its_reason(fail: Train, start_method: str) -> None:
    failure = fail(timeout=3, start_method=start_method)
    assert (failure.exit_code, failure.signal, failure.rank) == (134, "SIGABRT", 0)
    assert failure.message.startswith("killed by SIGABRT")
    assert (
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE"
        in failure.message
    )
    assert (
        "terminate called after throwing an instance of 'c10::DistBackendError'" in failure.message
    )
    assert fault_of_worker(failure) is Fault.ECHO
