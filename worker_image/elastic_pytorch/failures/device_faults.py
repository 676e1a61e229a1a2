"""Says by a worker's last words whether a device of the node has failed it. They are the words of the driver and of CUDA, not of a script.

Sources:

- CUDA's cudaGetErrorString for cudaErrorECCUncorrectable (214) and cudaErrorNvlinkUncorrectable (220), which NCCL and torch repeat;
- nvmlErrorString for NVML_ERROR_GPU_IS_LOST;
- lines `NVRM: Xid` of the kernel's driver, with the numbers of a broken device (`xids.py`).

All other errors of CUDA are left out: a device-side assert, an illegal address or a launch failure is nearly always the script's own.
"""

import re

from elastic_pytorch.failures.xids import OF_THE_DEVICE

DEVICE_FAULT = "DeviceFault"  # reported as the exception of a worker that a device has failed
_FAULTS = {
    "uncorrectable ECC error encountered": "an uncorrectable ECC error",
    "uncorrectable NVLink error detected during the execution": "an uncorrectable NVLink error",
    "GPU has fallen off the bus": "the GPU has fallen off the bus",
    "GPU is lost": "the GPU is lost",
}
_XID = re.compile(r"NVRM: Xid \([^)\n]{1,40}\): (\d{1,4}),")


def find_fault(words: str) -> str:
    """Which fault of a device some words report, for people; empty: none.

    Args:
        words: the message and the last lines of a worker that has failed.
    """
    for found in _XID.finditer(words):
        if (number := int(found[1])) in OF_THE_DEVICE:
            return f"Xid {number}, {OF_THE_DEVICE[number]}"
    return next((fault for phrase, fault in _FAULTS.items() if phrase in words), "")
