import json
import signal
from pathlib import Path

import pytest
from elastic_pytorch.failures.failure import Failure, describe
from elastic_pytorch.failures.last_words import DEVICE_FAULT, find_fault
from elastic_pytorch.failures.local_failures import LocalFailures

ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
NVLINK = "uncorrectable NVLink error"
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: "
    "ProcessGroupNCCL.cpp:3690, unhandled cuda error\n"
    "ncclUnhandledCudaError: Call to CUDA or HIP function failed.\nLast error:\n"
    "Cuda failure 214 'uncorrectable ECC error encountered'"
)


def failed(exit_code: int = 1, local_rank: int = 0, **more: str) -> Failure:
    return describe(local_rank=local_rank, rank=1, pid=7, exit_code=exit_code, **more)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (ECC, "an uncorrectable ECC error"),
        (NCCL, "an uncorrectable ECC error"),
        (f"CUDA error: {NVLINK} detected during the execution", f"an {NVLINK}"),
        ("NVRM: Xid (PCI:0): 79, GPU has fallen off the bus.", "the GPU has fallen off the bus"),
        ("no device handle for GPU0000:3B:00.0: GPU is lost.", "the GPU is lost"),
        ("NVRM: Xid (PCI:0000:2b:00): 31, pid=7, MMU Fault", ""),
        ("CUDA error: device-side assert triggered", ""),
        ("CUDA error: an illegal memory access was encountered", ""),
        ("Xid 79", ""),
    ],
)
def test_fault_of_a_device(words: str, fault: str) -> None:
    assert find_fault(words) == fault


def test_failure_of_a_device_is_reported_as_such(tmp_path: Path) -> None:
    error_file = tmp_path / "error.json"
    extra = {"py_callstack": f"Traceback …\n{ECC}"}
    error_file.write_text(json.dumps({"message": {"message": ECC, "extraInfo": extra}}))
    failure = failed(error_file=str(error_file))
    assert failure.exception == DEVICE_FAULT
    assert failure.message == f"a device has failed (an uncorrectable ECC error): {ECC}"
    aborted = failed(-signal.SIGABRT, stderr=f"terminate called\n  what():  {ECC}\n")
    assert (aborted.exception, aborted.signal) == (DEVICE_FAULT, "SIGABRT")


def test_failure_of_a_device_is_the_cause_although_a_peer_has_failed_before() -> None:
    failures = LocalFailures()
    failures.add(failed(stderr="  x\nRuntimeError: gloo: Connection closed by peer\n"))
    failures.add(failed(local_rank=1, stderr=f"  x\n{NCCL}\n"))
    assert failures.in_order()[0].local_rank == 1


def test_words_of_a_script_long_before_its_failure_do_not_count() -> None:
    stderr = f"{ECC}\n" + "x" * 4000 + "\n  f()\nValueError: boom\n"
    assert failed(stderr=stderr).exception == "ValueError"
