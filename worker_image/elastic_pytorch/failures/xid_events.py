"""Which Xids the driver has reported of this container's GPUs, and how they explain the failure of a process here.

An Xid of a broken device may come before anything else says so. The process may end with an error that names no device, or hang.
"""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from elastic_pytorch.failures.device_faults import DEVICE_FAULT
from elastic_pytorch.failures.failure import OUT_OF_MEMORY, Failure, framed
from elastic_pytorch.failures.nvml import GPU_IS_LOST, LIBRARY, Gpu, Nvml, NvmlError
from elastic_pytorch.failures.xids import OF_THE_DEVICE, words_of
from elastic_pytorch.log import logger

WAIT_MILLISECONDS = 60_000
EXPLAINS_SECONDS = 60.0  # an Xid of a program ends its process at once, or when it next asks the GPU
MAX_NAMED = 3  # in a failure
LOST = "a GPU of this container is lost"
_OF_A_GPU = re.compile("cuda|nccl", re.IGNORECASE)


class XidEvents:
    """What has been reported so far. Each method may be called from any thread.

    Args:
        clock: monotonic seconds.

    Attributes:
        fault: what has broken a device first, for people; empty: nothing. It stays: so does the device, while this container is there.
        on_fault: called when `fault` is set, from the thread that waits for events.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at: dict[str, float] = {}
        self.fault = ""
        self.on_fault: Callable[[], None] = lambda: None

    def note(self, gpu: Gpu, number: int) -> None:
        """Takes note of an Xid."""
        words = words_of(number)
        told = f"GPU {gpu.index} reported Xid {number}{f': {words}' if words else ''}"
        if not self._is_recent(told):
            logger.warning("%s (%s)", told, gpu.uuid)
        self._told_at[told] = self._clock()
        if number in OF_THE_DEVICE:
            self._note_fault(told)

    def note_loss(self) -> None:
        """Takes note of a GPU that the driver no longer finds."""
        logger.warning("%s", LOST)
        self._told_at[LOST] = self._clock()
        self._note_fault(LOST)

    def explain(self, failure: Failure, *, echo: bool) -> Failure:
        """A failure with what the driver has reported before it: a broken device is its cause, and other Xids are named.

        Args:
            failure: of a process here.
            echo: its words are those of a process that has lost a peer.
        """
        if failure.exception == OUT_OF_MEMORY:
            return failure
        of_a_gpu = _OF_A_GPU.search(f"{failure.message}\n{failure.traceback}") is not None
        if self.fault and (self._is_recent(self.fault) or (of_a_gpu and not echo)):
            before = f"{self.fault}; " if failure.exception == DEVICE_FAULT else f"a device has failed ({self.fault}): "
            return framed(replace(failure, exception=DEVICE_FAULT), before=before)
        recent = [told for told in list(self._told_at) if self._is_recent(told)]
        return framed(failure, after="\n" + "; ".join(recent[:MAX_NAMED])) if recent else failure

    def _note_fault(self, told: str) -> None:
        if not self.fault:
            self.fault = told
            self.on_fault()

    def _is_recent(self, told: str) -> bool:
        at = self._told_at.get(told)
        return at is not None and self._clock() <= at + EXPLAINS_SECONDS


def watch_xids(events: XidEvents, path: str = LIBRARY) -> None:
    """Watches this container's GPUs in a thread, to the end of the process; does nothing where the driver's library is missing.

    It must not be called before processes are forked that use a GPU.

    Args:
        events: takes note of the Xids.
        path: of the driver's library.
    """
    try:
        nvml = Nvml(path)
    except OSError:
        return
    threading.Thread(target=_watch, args=(events, nvml), name="xids", daemon=True).start()


def _watch(events: XidEvents, nvml: Nvml) -> None:
    try:
        gpus = nvml.start()
        while gpus:
            if (found := nvml.wait(WAIT_MILLISECONDS)) is not None:
                events.note(*found)
    except NvmlError as error:
        if error.code == GPU_IS_LOST:
            events.note_loss()
        else:
            logger.info("the driver reports no Xids here: %s", error)
