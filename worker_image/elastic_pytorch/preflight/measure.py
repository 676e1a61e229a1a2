"""What one process of a node check does: matrix products on its device, then all-reduces with the other processes of the check.

Both are the two halves of a training step, as in DLRover's node check. Each is repeated, and the fastest repetition counts, so that a
busy moment is no fault of the node. The results are known beforehand and compared: a device that computes wrong numbers fails.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
from torch import distributed

from elastic_pytorch.operator_link.client import NodeCheck
from elastic_pytorch.operator_link.rounds import CheckRequest
from elastic_pytorch.processes.orphans import die_with_parent

REPETITIONS = 5
TIME_SHARE = 0.25  # of the time of a check: after it no repetition of one kind begins
MAX_ERROR_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Work:
    """How much is computed in a repetition.

    Attributes:
        side: of the square matrices.
        products: of two of them, one after the other.
        elements: numbers in the tensor that is reduced, of 4 bytes each.
        all_reduces: of it, one after the other.
    """

    side: int
    products: int
    elements: int
    all_reduces: int


CPU_WORK = Work(side=512, products=8, elements=2**20, all_reduces=2)
CUDA_WORK = Work(side=4096, products=50, elements=2**24, all_reduces=4)


class WrongResultError(RuntimeError):
    """A device or the network has not yielded the known result."""


def measure_node(result: Connection, request: CheckRequest, local_rank: int, local_world_size: int, deadline: float) -> None:
    """The entry point of the process.

    Args:
        result: where to send what was measured.
        request: what is to be measured.
        local_rank: of this process in the pod.
        local_world_size: processes per pod.
        deadline: when the check is to be over, by `time.monotonic()`, which all processes of a machine share.
    """
    die_with_parent(os.getppid())
    result.send(measure(request, local_rank, local_world_size, deadline))
    os._exit(0)  # a process group whose peers are gone need not be taken down


def measure(request: CheckRequest, local_rank: int, local_world_size: int, deadline: float) -> NodeCheck:
    """Measures, as `measure_node`; returns errors instead of raising them."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = torch.device("cuda", local_rank % gpus) if gpus else torch.device("cpu")
    work = CUDA_WORK if gpus else CPU_WORK
    torch.set_num_threads(1)
    matmul_seconds = all_reduce_seconds = None
    errors = []
    try:
        if gpus:
            torch.cuda.set_device(device)
        matmul_seconds = _time_products(device, work, TIME_SHARE * request.seconds)
    except Exception as error:
        errors.append(_describe("matrix products", error))
    # Also after an error: the others wait for this process.
    try:
        if request.world_size > 1:
            _form_group(request, request.first_rank + local_rank, "nccl" if gpus >= local_world_size else "gloo", deadline)
            all_reduce_seconds = _time_all_reduces(device, work, request.world_size, TIME_SHARE * request.seconds)
    except Exception as error:
        errors.append(_describe("all-reduces", error))
    return NodeCheck(request.number, matmul_seconds, all_reduce_seconds, errors[0] if errors else "")


def _describe(part: str, error: Exception) -> str:
    return " ".join(f"{part}: {type(error).__name__}: {error}".split())[:MAX_ERROR_CHARACTERS]


def _form_group(request: CheckRequest, rank: int, backend: str, deadline: float) -> None:
    address = f"[{request.store_address}]" if ":" in request.store_address else request.store_address
    distributed.init_process_group(
        backend,
        init_method=f"tcp://{address}:{request.store_port}",
        rank=rank,
        world_size=request.world_size,
        timeout=timedelta(seconds=max(1.0, deadline - time.monotonic())),
    )


def _time_products(device: torch.device, work: Work, limit_seconds: float) -> float:
    ones = torch.ones(work.side, work.side, device=device)
    product = torch.empty_like(ones)

    def multiply() -> None:
        for _ in range(work.products):
            torch.mm(ones, ones, out=product)

    def check() -> None:
        if not bool((product == work.side).all()):
            raise WrongResultError("a product of two matrices is wrong")

    return _fastest(multiply, check, device, limit_seconds)


def _time_all_reduces(device: torch.device, work: Work, world_size: int, limit_seconds: float) -> float:
    numbers = torch.empty(work.elements, device=device)

    def reduce() -> None:
        for _ in range(work.all_reduces):
            numbers.fill_(1.0)
            distributed.all_reduce(numbers)

    def check() -> None:
        if not bool((numbers == world_size).all()):
            raise WrongResultError("a sum over all processes is wrong")

    def agree(goes_on: bool) -> bool:
        votes = torch.tensor([float(goes_on)], device=device)
        distributed.all_reduce(votes, distributed.ReduceOp.MIN)
        return bool(votes.item())

    fastest = _fastest(reduce, check, device, limit_seconds, agree)
    distributed.barrier()  # rank 0 serves the store: it must not end before the others have finished
    return fastest


def _fastest(
    work: Callable[[], None],
    check: Callable[[], None],
    device: torch.device,
    limit_seconds: float,
    agree: Callable[[bool], bool] = bool,
) -> float:
    """Returns the seconds of the fastest repetition.

    Args:
        work: a repetition.
        check: raises WrongResultError if its result is wrong.
        device: where it runs.
        limit_seconds: no repetition begins after that.
        agree: whether to go on, given whether this process would: all processes of a group make equally many repetitions.
    """
    taken: list[float] = []
    began = time.monotonic()
    while len(taken) < REPETITIONS and (not taken or agree(time.monotonic() - began < limit_seconds)):
        since = time.monotonic()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.monotonic() - since)
        check()
    return min(taken)
