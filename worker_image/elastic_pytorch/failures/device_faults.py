"""Says by a worker's last words whether a device of the node has failed it. They are the words of the driver and of CUDA, not of a script.

Sources:

- CUDA's cudaGetErrorString for cudaErrorECCUncorrectable (214) and cudaErrorNvlinkUncorrectable (220), which NCCL and torch repeat;
- nvmlErrorString for NVML_ERROR_GPU_IS_LOST, and the driver's words for Xid 79.

All other errors of CUDA are left out: a device-side assert, an illegal address or a launch failure is nearly always the script's own.
"""

DEVICE_FAULT = "DeviceFault"  # reported as the exception of a worker that a device has failed
_FAULTS = {
    "uncorrectable ECC error encountered": "an uncorrectable ECC error",
    "uncorrectable NVLink error detected during the execution": "an uncorrectable NVLink error",
    "GPU has fallen off the bus": "the GPU has fallen off the bus",
    "GPU is lost": "the GPU is lost",
}


def find_fault(words: str) -> str:
    """Which fault of a device some words report, for people; empty: none."""
    return next((fault for phrase, fault in _FAULTS.items() if phrase in words), "")
