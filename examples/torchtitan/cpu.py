"""Lets torchtitan run on CPUs, for a first try: torchtitan is made for accelerators.

Import it before the rest of torchtitan, whose modules copy the names that are set here.
"""

from types import SimpleNamespace

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torchtitan.tools import utils


class CpuDevices:
    """What torchtitan asks of torch.cuda, and torch.cpu lacks. Nothing is measured."""

    def __getattr__(self, name: str) -> object:
        return getattr(torch.cpu, name)

    def current_device(self) -> int:
        return 0

    def get_device_name(self, device: object = None) -> str:
        return "CPU"

    def get_device_properties(self, device: object = None) -> SimpleNamespace:
        return SimpleNamespace(total_memory=1 << 30)

    def memory_stats(self, device: object = None) -> dict[str, int]:
        return {}

    def reset_peak_memory_stats(self, device: object = None) -> None:
        pass

    def empty_cache(self) -> None:
        pass


ACCELERATOR = torch.accelerator.is_available()
if not ACCELERATOR:
    utils.device_type, utils.device_module = "cpu", CpuDevices()  # type: ignore[assignment]


def sum_gradients(model: nn.Module) -> None:
    """Have a sharded model use plain sums: torchtitan's reduction multiplies, which gloo cannot."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
