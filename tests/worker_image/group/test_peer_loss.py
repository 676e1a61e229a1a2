from pathlib import Path

import elastic_pytorch.failures.peer_errors
import elastic_pytorch_operator.model.peer_errors
import pytest
from elastic_pytorch.group.group_watch import is_peer_loss

GLOO = (
    "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
    "[10.244.1.5]:41234"
)


class DistBackendError(RuntimeError): ...


class DistStoreError(RuntimeError): ...


def nccl(what: str, explained: str, last: str) -> DistBackendError:
    """As torch 2.3 to 2.9 put it together."""
    return DistBackendError(
        "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, "
        f"{what} (run with NCCL_DEBUG=INFO for details), "
        f"NCCL version 2.27.5\n{explained}\nLast error:\n{last}"
    )


REMOTE = (
    "ncclRemoteError: A call failed possibly due to a network error or a remote process "
    "exiting prematurely."
)
SYSTEM = (
    "ncclSystemError: System call (e.g. "
    "socket, malloc) or external library call failed or device error. "
)
INTERNAL = "ncclInternalError: Internal check failed."
USAGE = "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."
CUDA = "ncclUnhandledCudaError: Call to CUDA function failed."
DUPLICATE = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000"

PEER_LOST = [
    RuntimeError(GLOO),
    nccl(
        "remote process exited or there was a network error",
        REMOTE,
        "socketProgress: Connection closed by remote peer",
    ),
    *(
        nccl("unhandled system error", SYSTEM, last)
        for last in (
            "socketStartConnect: Connect to 10.1.1.5<45763> failed : Connection refused",
            "Call to recv from 10.244.1.5<45763> failed : Connection reset by peer",
        )
    ),
    nccl("internal error", INTERNAL, "Socket recv failed while polling for opId=0x7f6f18cb7f40"),
    DistStoreError("Timed out after 61 seconds waiting for clients. 1/2 clients joined."),
    DistBackendError("whatever it says"),
]
OTHER = [
    # A wrong set-up: the next group would fail as this one has.
    nccl("invalid usage", USAGE, DUPLICATE),
    nccl("internal error", INTERNAL, DUPLICATE),
    nccl("internal error", INTERNAL, "Bootstrap : no socket interface found"),
    nccl(
        "unhandled system error",
        SYSTEM,
        "Error while creating shared memory segment /dev/shm/nccl-jc5XcA (size 9637888)",
    ),
    nccl("unhandled cuda error", CUDA, "Cuda failure 'out of memory'"),
    nccl("invalid argument", "ncclInvalidArgument: Invalid value for an argument.", ""),
    # As ProcessGroupNCCL2 puts it together, without NCCL's name of the error.
    *(
        DistBackendError(f"NCCL {what} (run with NCCL_DEBUG=WARN for details)")
        for what in (
            "AllReduce failed: invalid argument",
            "Send failed: invalid usage",
            "operation timed out: unhandled cuda error",
        )
    ),
    DistBackendError(
        "[Rank 0] Process group watchdog thread terminated with exception: CUDA error: an illegal "
        "memory access"
    ),
    # The script's own.
    RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
    ValueError(GLOO),
    KeyError("loss"),
]


@pytest.mark.parametrize("error", PEER_LOST)
def test_errors_that_the_loss_of_a_peer_causes(error: Exception) -> None:
    assert is_peer_loss(error)


@pytest.mark.parametrize("error", OTHER)
def test_errors_that_the_next_group_would_have_too(error: Exception) -> None:
    assert not is_peer_loss(error)


def test_an_error_that_wraps_one() -> None:
    wrapped = ValueError("the step failed")
    wrapped.__cause__ = RuntimeError(GLOO)
    assert is_peer_loss(wrapped)
    wrapped.__cause__ = nccl("invalid usage", USAGE, DUPLICATE)
    assert not is_peer_loss(wrapped)


def test_agent_and_operator_read_errors_alike() -> None:
    copies = (elastic_pytorch.failures.peer_errors, elastic_pytorch_operator.model.peer_errors)
    agents, operators = (Path(copy.__file__ or "").read_text() for copy in copies)
    assert agents == operators, "these two files are copies of each other"
