"""The words of torch 2.11.0+cu130 and NCCL 2.28.9 for failures, heard on an H100 on 2026-11-22.

C++ frames and lines that say nothing of the failure are left out, and so is the host's name.
"""

import pytest
from elastic_pytorch.failures.failure import describe
from elastic_pytorch.failures.peer_errors import is_echo

ENDED = (
    "[rank0]:[E1122 18:49:10 ProcessGroupNCCL.cpp:764] [Rank 0] To avoid data "
    "inconsistency, we are taking the entire process down.\n"
)
WATCHDOG = (
    "[PG ID 0 PG GUID 0(default_pg) "
    "Rank 0] Process group watchdog thread terminated with exception: "
)
C10D = "/pytorch/torch/csrc/distributed/c10d"
FRAME = (
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x9d "
    "(0x7f1ca2f7d05d in libc10.so)\n\n"
)
REMOTE = (
    "NCCL error: remote process exited or there was a network error, NCCL version 2.28.9\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely.\nLast error:\n"
    "socketProgress: Connection closed by remote peer localhost<53228>\n"
    f"Exception raised from checkForNCCLErrorsInternal at {C10D}/ProcessGroupNCCL.cpp:2770 "
    f"(most recent call first):\n{FRAME}"
)
TIMEOUT = (
    "[Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=51, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
    "Timeout(ms)=8000) ran for 8004 milliseconds before timing out.\n"
)
ASSERTED = (
    "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in "
    "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more "
    "information.\nCUDA kernel errors might be asynchronously reported at some other API call, "
    "so the stacktrace below might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n\n"
)
KERNEL = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:111: operator(): block: [0,0,0], thread: "
    "[0,0,0] Assertion "
    '`-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.\n'
)
ABORTED = (
    f"Exception raised from run at {C10D}/ProcessGroupNCCL.cpp:2125 (most recent call first):\n"
    f"{FRAME}Fatal Python error: Aborted\n\n"
    'Thread 0x00007fa42471c140 (most recent call first):\n  File "train.py", line 84 in train\n'
)
NOT_DESTROYED = (
    "[W1122 18:23:23.620121521 ProcessGroupNCCL.cpp:1575] Warning: WARNING: "
    "destroy_process_group() was not called before program exit, "
    "which can leak resources. (function operator())\n"
)


def raised(error: str) -> str:
    lines = (
        'Traceback (most recent call last):\n  File "train.py", line 62, in <module>\n'
        f"    dist.all_reduce(x)\n{error}{NOT_DESTROYED}"
    )
    return "".join(f"[rank0]: {line}" for line in lines.splitlines(keepends=True))


def aborted(reason: str) -> str:
    logged = f"[rank0]:[E1122 18:49:04.667153480 ProcessGroupNCCL.cpp:2119] {WATCHDOG}{reason}"
    return (
        f"{ENDED}{logged}terminate called after throwing an instance of "
        f"'c10::DistBackendError'\n  what():  {WATCHDOG}{reason}{ABORTED}"
    )


def nccl(place: str, last: str) -> str:
    return (
        f"torch.distributed.DistBackendError: NCCL error in: {C10D}/{place}, invalid usage (run "
        "with NCCL_DEBUG=WARN for details), NCCL version 2.28.9\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        f"Last error:\n{last}\n"
    )


ABORTED_GROUP = "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 1.\n"
LOST_STORE = (
    "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving "
    "ncclUniqueId from [0] via c10d key-value store "
    "by key '0', but store->get('0') got error: Failed to recv, got 0 bytes. "
    "Connection was likely closed. Did the remote server shutdown "
    "or crash?\nException raised from recvBytes at "
    f"{C10D}/Utils.hpp:682 (most recent call first):\n"
)
MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 GiB. "
    "GPU 0 has a total capacity of 79.18 GiB of which 76.10 GiB "
    "is free. Process 10087 has 634.00 MiB memory in use. "
    "Including non-PyTorch memory, this process has 1.17 GiB memory in use.\n"
)


DUPLICATE = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
NO_INTERFACE = "Bootstrap : no socket interface found"
WORDS = {
    "lost peer": (aborted(REMOTE), "Connection closed by remote peer localhost<53228>", True),
    "timeout": (aborted(TIMEOUT), "timeout: WorkNCCL(SeqNum=51", True),
    "aborted": (raised(ABORTED_GROUP), "was aborted on rank 1", True),
    "lost store": (raised(LOST_STORE), "Connection was likely closed", True),
    "one GPU for two": (raised(nccl("NCCLUtils.cpp:93", DUPLICATE)), DUPLICATE, False),
    # An internal error with NCCL 2.21.5.
    "no interface": (
        raised(nccl("ProcessGroupNCCL.cpp:3135", NO_INTERFACE)),
        NO_INTERFACE,
        False,
    ),
    "assert": (
        KERNEL + raised(f"torch.AcceleratorError: {ASSERTED}"),
        "torch.AcceleratorError: CUDA error: device-side assert",
        False,
    ),
    "assert in the watchdog": (
        KERNEL + aborted(ASSERTED),
        "CUDA error: device-side assert triggered",
        False,
    ),
    "memory": (raised(MEMORY), "CUDA out of memory. Tried to allocate 256.00 GiB", False),
}


@pytest.mark.parametrize(("stderr", "told", "echo"), WORDS.values(), ids=WORDS)
def test_reason_is_told_and_only_a_peers_failure_is_an_echo(
    stderr: str, told: str, echo: bool
) -> None:
    exit_code = -6 if ABORTED in stderr else 1
    failure = describe(local_rank=0, rank=0, pid=57, exit_code=exit_code, stderr=stderr)
    assert told in failure.message
    assert "frame #" not in failure.message
    assert "destroy_process_group" not in failure.message
    found = is_echo(
        exit_code=exit_code,
        signal=failure.signal,
        exception=failure.exception,
        message=failure.message,
        traceback=failure.traceback,
    )
    assert found is echo


@pytest.mark.parametrize(
    ("words", "echo"),
    [
        ("NCCL operation timed out", True),
        (
            "error - nccl hit async error: unhandled system error\nLast error:\nsocketProgress: "
            "Connection closed by remote peer",
            True,
        ),
        (
            "Timeout watchdog caught exception: NCCL Async Error: "
            "remote process exited or there was a network error",
            True,
        ),
        ("timeout - timeout watchdog detected operation timeout\nAborting process on rank 1", True),
        ("NCCL AllReduce failed: ncclInvalidUsage", False),
        ("NCCL operation failed", False),
    ],
)
def test_words_of_the_newer_backend(words: str, echo: bool) -> None:
    """From torch 2.15's library (ProcessGroupNCCL2); they have not been heard on a GPU."""
    found = is_echo(
        exit_code=-6, signal="SIGABRT", exception="", message="killed by SIGABRT", traceback=words
    )
    assert found is echo
