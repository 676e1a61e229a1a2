from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
from elastic_pytorch.stopping.stuck import (
    COMPUTING_SECONDS,
    GAP_SECONDS,
    SILENT_SECONDS,
    WAITING_SECONDS,
    MainThread,
    Observation,
)

LOOP = '  File "train.py", line 9 in step\n  File "train.py", line 20 in <module>'
OTHER = '  File "train.py", line 12 in loss\n  File "train.py", line 20 in <module>'
HANDLER = 'File "train.py" in save'
SAVES = (
    '  File "torch/serialization.py", line 850 in save\n  File "train.py", line 4 in save\n' + LOOP
)
BARRIER = (
    '  File "/usr/lib/torch/distributed/distributed_c10d.py", line 4800 in barrier\n'
    '  File "train.py", line 3 in save\n' + LOOP
)
STEP = 0.1


def observed(
    stack: str,
    seconds: float,
    *,
    since: float = 0.0,
    sleeps: bool = True,
    cpu: float = 0.0,
    copies: bool = False,
) -> list[Observation]:
    """Looks that find no answer; of CPU time `cpu` is used each second."""
    times = [since + STEP * number for number in range(round(seconds / STEP) + 1)]
    copied = [round(1000 * at) if copies else 0 for at in times]
    return [
        Observation(at, stack, sleeps=sleeps, cpu_seconds=cpu * at, copied_bytes=each)
        for at, each in zip(times, copied, strict=True)
    ]


def begun(
    stack: str, seconds: float, since: float = 0.1, *, handler: str | None = None, **more: bool
) -> list[Observation]:
    """Looks after a first one in the loop, and after the answer of a handler if there is one."""
    answers = [] if handler is None else [Observation(0.1, LOOP, answered=True, handler=handler)]
    return [*observed(LOOP, 0), *answers, *observed(stack, seconds, since=since, **more)]


def returned(stack: str, seconds: float, **more: Any) -> list[Observation]:
    return begun(stack, seconds, 0.2, **({"handler": HANDLER} | more))


SHORT, LONG = WAITING_SECONDS + STEP, COMPUTING_SECONDS + STEP
CASES = {
    "nothing has been seen": ([], False),
    "one observation": (observed(LOOP, 0), False),
    "it waits in C": (observed(LOOP, SHORT), True),
    "it waits in C, not yet for long": (observed(LOOP, 0.1), False),
    "it polls": (observed(LOOP, SHORT, cpu=0.05), True),
    "it computes, or spins": (observed(LOOP, SHORT, sleeps=False, cpu=1), False),
    "it computes, or spins, for long": (observed(LOOP, LONG, sleeps=False, cpu=1), True),
    "it uses CPU time, and sleeps whenever it is seen": (observed(LOOP, SHORT, cpu=0.5), False),
    "it has just begun to sleep": (
        [*observed(LOOP, 0.5, sleeps=False), *observed(LOOP, SHORT, since=0.6)],
        False,
    ),
    "it writes a file": (observed(LOOP, LONG, copies=True), False),
    "it does not write its stack": (observed("", LONG), False),
    "it has never written its stack, for very long": (observed("", SILENT_SECONDS), True),
    "it no longer writes its stack": (begun("", SILENT_SECONDS + 1), False),
    "it did not write its stack for a time": (
        [
            *begun(LOOP, 0.1),
            Observation(0.3, ""),
            *observed(LOOP, WAITING_SECONDS - STEP, since=0.4),
        ],
        False,
    ),
    "it computes, and writes each stack late": (
        [Observation(STEP * n / 2, "" if n % 2 else LOOP) for n in range(28)],
        True,
    ),
    "it was not observed for a time": (begun(LOOP, 0, GAP_SECONDS + 1), False),
    "it was not observed for a time, and waits since": (begun(LOOP, SHORT, GAP_SECONDS + 1), True),
    "it has answered, in a loop": (
        [*observed(LOOP, 0), *[Observation(STEP * n, LOOP, True, HANDLER) for n in range(1, 30)]],
        False,
    ),
    "its handler is at work, and has not answered": (begun(SAVES, LONG), False),
    "its handler waits for peers": (begun(BARRIER, LONG), True),
    "its handler waits for peers, not yet for long": (begun(BARRIER, SHORT), False),
    "its handler is at work, and has answered": (returned(SAVES, LONG), False),
    "its handler has returned, and it waits": (returned(OTHER, SHORT), False),
    "its handler has returned, and it waits for long": (returned(OTHER, LONG), True),
    "its handler has returned, and it writes": (returned(OTHER, LONG, copies=True), False),
    "its handler has returned, to where it was": (returned(LOOP, LONG), True),
    "its handler is no Python": (returned(SAVES, LONG, handler=""), True),
}


@pytest.mark.parametrize("case", CASES)
def test_stuck(case: str) -> None:
    seen, stuck = CASES[case]
    assert reduce(MainThread.after, seen, MainThread()).stuck() == stuck


@pytest.mark.parametrize(("seconds", "stuck"), [(LONG, False), (5.0 + STEP, True)])
@pytest.mark.parametrize(
    "seen",
    [observed, lambda stack, seconds: [*observed(OTHER, 0), *observed(stack, seconds, since=0.1)]],
)
def test_more_patience(
    seen: Callable[[str, float], list[Observation]], seconds: float, stuck: bool
) -> None:
    stack = LOOP if seen is observed else BARRIER
    assert reduce(MainThread.after, seen(stack, seconds), MainThread()).stuck(5.0) == stuck
