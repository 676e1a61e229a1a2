"""Copies from GPUs to the CPU's memory, in the queue of the training's work or beside it."""

import contextlib
from collections.abc import Sequence

import torch

Pair = tuple[torch.Tensor, torch.Tensor]  # a target, and the source that is copied there
Pairs = Sequence[Pair]
Span = tuple[torch.cuda.Event, torch.cuda.Event]


class CudaLane:
    """Copies tensors while training continues; beside it, by a CUDA stream on each GPU."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        # By GPU: the end of its copies beside the training.
        self._copied: dict[torch.device, torch.cuda.Event] = {}
        self._held_up: list[Span] = []  # while the training's work waits for copies

    def takes(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cuda

    def catch_up(self) -> None:
        """Waits for the training's own work of this step."""
        torch.cuda.current_stream().synchronize()

    def copy_in_turn(self, pairs: Pairs) -> None:
        """Starts a copy for which later work of the training waits."""
        for device, of_device in _by_device(pairs).items():
            with torch.cuda.device(device):
                begun = self._mark(device)
                for target, source in of_device:
                    target.copy_(source, non_blocking=True)
                self._held_up.append((begun, self._mark(device)))

    def copy_beside(self, pairs: Pairs) -> None:
        """Starts a copy beside the training's later work, until `hold_writes`."""
        for device, of_device in _by_device(pairs).items():
            if (stream := self._streams.get(device)) is None:
                stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
                self._streams[device] = stream
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for target, source in of_device:
                    target.copy_(source, non_blocking=True)
                self._copied[device] = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._copied[device].record(stream)

    def hold_writes(self) -> bool:
        """Makes the training's later work wait for the copies beside it; False: it cannot."""
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            return False
        for device, copied in self._copied.items():
            begun = self._mark(device)
            torch.cuda.current_stream(device).wait_event(copied)
            self._held_up.append((begun, self._mark(device)))
        return True

    def done(self) -> bool:
        events = (*self._copied.values(), *(end for _, end in self._held_up))
        return all(event.query() for event in events)  # type: ignore[no-untyped-call]

    def wait(self) -> float:
        """Waits for all copies; returns the seconds for which the training's work has waited."""
        for event in (*self._copied.values(), *(end for _, end in self._held_up)):
            event.synchronize()
        seconds: float = sum(begun.elapsed_time(end) for begun, end in self._held_up) / 1000
        self._copied.clear()
        self._held_up.clear()
        return seconds

    def _mark(self, device: torch.device) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(device))
        return event


def lock_pages(address: int, length: int) -> bool:
    """Pins memory, so that GPUs can copy into it asynchronously; returns whether it can."""
    if int(torch.cuda.cudart().cudaHostRegister(address, length, 0)) == 0:  # type: ignore[no-untyped-call]
        return True
    # The runtime keeps the error for the next call that checks. This launch of a kernel clears it.
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda")
    return False


def unlock_pages(address: int) -> None:
    """Unpins memory, which must still be mapped."""
    torch.cuda.cudart().cudaHostUnregister(address)  # type: ignore[no-untyped-call]


def _by_device(pairs: Pairs) -> dict[torch.device, list[Pair]]:
    found: dict[torch.device, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair[1].device, []).append(pair)
    return found
