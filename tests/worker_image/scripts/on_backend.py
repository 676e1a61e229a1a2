"""All ranks add up ones, on the backend and with the handler of SIGTERM that the file MODE names.

Handlers:

- "none".
- "flag" notes the signal. All ranks save and leave in the step in which one of them knows of it.
- "alone" notes the signal. Each rank saves and leaves without asking the others, a step later than
  the rank before it.
- "lightning", as of Lightning 2.5.2 (and 2.6): what `_SignalConnector.register_signal_handlers`
  installs without SLURM, and the look of the training loop after each batch, in which rank 0 tells
  the others whether it has had the signal. Written down from its source and its changelog, as
  Lightning is not installed here. Up to 2.5.1 no rank tells another: each leaves after its own
  batch.
- "lightning-2.6", as of Lightning 2.6.6, compared with its source: the handler itself waits for
rank 0 in a collective.
"""

import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from events import event

mode = json.loads(Path(os.environ["MODE"]).read_text())
backend, handler = mode["backend"], mode["handler"]
os.environ.update(mode["environment"])
received: list[int] = []  # signals


class HandlersCompose:
    """Calls handlers one after the other, as Lightning's `_HandlersCompose`."""

    def __init__(self, signal_handlers: list[Any]) -> None:
        self.signal_handlers = signal_handlers

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        for signal_handler in self.signal_handlers:
            called = (
                signal.getsignal(signal_handler)
                if isinstance(signal_handler, int)
                else signal_handler
            )
            if callable(called):
                called(signum, frame)


class SIGTERMException(SystemExit):
    """Lightning's, which nothing catches: the process exits with 0."""


def note(number: int, _frame: FrameType | None) -> None:
    if handler == "lightning-2.6" and "torch.distributed" in sys.modules and dist.is_initialized():
        dist.broadcast(torch.tensor([1], device=device), src=0)
    received.append(number)


if handler in ("flag", "alone"):
    signal.signal(signal.SIGTERM, note)
elif handler.startswith("lightning"):
    handlers: list[Any] = [note]
    if signal.getsignal(signal.SIGTERM) not in (None, signal.SIG_DFL):
        handlers.append(signal.getsignal(signal.SIGTERM))
    signal.signal(signal.SIGTERM, HandlersCompose(handlers))

device = "cuda" if backend == "nccl" else "cpu"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

if backend == "nccl_like":
    import nccl_like  # noqa: F401 - registers it

dist.init_process_group(backend)
steps_left = dist.get_rank()
for step in itertools.count(1):
    total = torch.tensor([1.0, float(bool(received))], device=device)
    dist.all_reduce(total)
    assert total[0] == dist.get_world_size()
    event("step", step=step, world=dist.get_world_size(), **mode)
    if handler == "flag" and total[1] > 0:
        event("saved", step=step, **mode)
        sys.exit()
    if handler == "alone" and received:
        if not steps_left:
            event("saved", step=step, **mode)
            sys.exit()
        steps_left -= 1
    time.sleep(0.02)
    if handler.startswith("lightning"):
        sigterm = torch.tensor([int(bool(received))], device=device)
        dist.broadcast(sigterm, src=0)
        if sigterm.item() == 1:
            raise SIGTERMException
