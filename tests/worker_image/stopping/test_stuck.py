from collections.abc import Callable
from functools import reduce

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
    return [
        Observation(
            at,
            stack,
            sleeps=sleeps,
            cpu_seconds=cpu * at,
            copied_bytes=round(1000 * at) if copies else 0,
        )
        for at in times
    ]


def answer(at: float, stack: str = LOOP, handler: str = HANDLER) -> list[Observation]:
    return [Observation(at, stack, answered=True, handler=handler)]


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
    "it no longer writes its stack": (
        [*observed(LOOP, 0), *observed("", SILENT_SECONDS + 1, since=0.1)],
        False,
    ),
    "it did not write its stack for a time": (
        [
            *observed(LOOP, 0.2),
            Observation(0.3, ""),
            *observed(LOOP, WAITING_SECONDS - STEP, since=0.4),
        ],
        False,
    ),
    "it computes, and writes each stack late": (
        [
            seen
            for n in range(14)
            for seen in (Observation(STEP * n, LOOP), Observation(STEP * (n + 0.5), ""))
        ],
        True,
    ),
    "it was not observed for a time": (
        [*observed(LOOP, 0), *observed(LOOP, 0, since=GAP_SECONDS + 1)],
        False,
    ),
    "it was not observed for a time, and waits since": (
        [*observed(LOOP, 0), *observed(LOOP, SHORT, since=GAP_SECONDS + 1)],
        True,
    ),
    "it has answered, in a loop": (
        [*observed(LOOP, 0), *[Observation(STEP * n, LOOP, True, HANDLER) for n in range(1, 30)]],
        False,
    ),
    "its handler is at work, and has not answered": (
        [*observed(LOOP, 0), *observed(SAVES, LONG, since=0.1)],
        False,
    ),
    "its handler waits for peers": (
        [*observed(LOOP, 0), *observed(BARRIER, LONG, since=0.1)],
        True,
    ),
    "its handler waits for peers, not yet for long": (
        [*observed(LOOP, 0), *observed(BARRIER, SHORT, since=0.1)],
        False,
    ),
    "its handler is at work, and has answered": (
        [*observed(LOOP, 0), *answer(0.1), *observed(SAVES, LONG, since=0.2)],
        False,
    ),
    "its handler has returned, and it waits": (
        [*observed(LOOP, 0), *answer(0.1), *observed(OTHER, SHORT, since=0.2)],
        False,
    ),
    "its handler has returned, and it waits for long": (
        [*observed(LOOP, 0), *answer(0.1), *observed(OTHER, LONG, since=0.2)],
        True,
    ),
    "its handler has returned, and it writes a file": (
        [*observed(LOOP, 0), *answer(0.1), *observed(OTHER, LONG, since=0.2, copies=True)],
        False,
    ),
    "its handler has returned, to where it was": (
        [*observed(LOOP, 0), *answer(0.1), *observed(LOOP, LONG, since=0.2)],
        True,
    ),
    "its handler is no Python": (
        [*observed(LOOP, 0), *answer(0.1, handler=""), *observed(SAVES, LONG, since=0.2)],
        True,
    ),
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
