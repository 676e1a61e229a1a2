"""A check of a node before its worker starts: matrix products with a known result on each device.

It runs in an init container, and exit code 1 ends the pod. Replace it by what finds your faults,
such as `dcgmi diag --run 1`.
"""

import sys
import time

import torch

SIDE, PRODUCTS = 1024, 20
LIMIT_SECONDS = 60.0  # for each device: far above what a healthy one takes


def fault_of(device: torch.device) -> str:
    """What is wrong with a device; empty: nothing."""
    began = time.monotonic()
    ones = torch.ones(SIDE, SIDE, device=device)
    if not all(bool((ones @ ones == SIDE).all()) for _ in range(PRODUCTS)):
        return "a product of two matrices is wrong"
    taken = time.monotonic() - began
    return f"{PRODUCTS} products took {taken:.1f} s" if taken > LIMIT_SECONDS else ""


def main() -> int:
    """Returns 0 if no device has a fault, else 1."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [torch.device("cuda", number) for number in range(gpus)] or [torch.device("cpu")]
    faults = [f"{device}: {fault}" for device in devices if (fault := fault_of(device))]
    print(
        "\n".join(faults) or f"checked: {', '.join(str(device) for device in devices)}", flush=True
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
