"""When a worker is taken for one that cannot run its handler: a table of looks."""

from collections.abc import Callable
from functools import reduce

import pytest
from elastic_pytorch.stopping.stuck import COMPUTING_SECONDS, GAP_SECONDS, SILENT_SECONDS, WAITING_SECONDS, Look, MainThread

LOOP = '  File "train.py", line 9 in step\n  File "train.py", line 20 in <module>'
OTHER = '  File "train.py", line 12 in loss\n  File "train.py", line 20 in <module>'
HANDLER = 'File "train.py" in save'
SAVES = '  File "torch/serialization.py", line 850 in save\n  File "train.py", line 4 in save\n' + LOOP
BARRIER = (
    '  File "/usr/lib/torch/distributed/distributed_c10d.py", line 4800 in barrier\n  File "train.py", line 3 in save\n' + LOOP
)
STEP = 0.1


def looks(
    stack: str, seconds: float, *, since: float = 0.0, sleeps: bool = True, cpu: float = 0.0, copies: bool = False
) -> list[Look]:
    """Looks that find no answer; of CPU time `cpu` is used each second."""
    times = [since + STEP * number for number in range(round(seconds / STEP) + 1)]
    return [
        Look(at, stack, sleeps=sleeps, cpu_seconds=cpu * at, copied_bytes=round(1000 * at) if copies else 0) for at in times
    ]


def answer(at: float, stack: str = LOOP, handler: str = HANDLER) -> list[Look]:
    return [Look(at, stack, answered=True, handler=handler)]


SHORT, LONG = WAITING_SECONDS + STEP, COMPUTING_SECONDS + STEP
CASES = {
    "nothing has been seen": ([], False),
    "one look": (looks(LOOP, 0), False),
    "it waits in C": (looks(LOOP, SHORT), True),
    "it waits in C, not yet for long": (looks(LOOP, 0.1), False),
    "it polls": (looks(LOOP, SHORT, cpu=0.05), True),
    "it computes, or spins": (looks(LOOP, SHORT, sleeps=False, cpu=1), False),
    "it computes, or spins, for long": (looks(LOOP, LONG, sleeps=False, cpu=1), True),
    "it uses CPU time, and sleeps whenever it is seen": (looks(LOOP, SHORT, cpu=0.5), False),
    "it has just begun to sleep": ([*looks(LOOP, 0.5, sleeps=False), *looks(LOOP, SHORT, since=0.6)], False),
    "it writes a file": (looks(LOOP, LONG, copies=True), False),
    "it does not write its stack": (looks("", LONG), False),
    "it has never written its stack, for very long": (looks("", SILENT_SECONDS), True),
    "it no longer writes its stack": ([*looks(LOOP, 0), *looks("", SILENT_SECONDS + 1, since=0.1)], False),
    "it did not write its stack for a time": (
        [*looks(LOOP, 0.2), Look(0.3, ""), *looks(LOOP, WAITING_SECONDS - STEP, since=0.4)],
        False,
    ),
    "it was not looked at for a time": ([*looks(LOOP, 0), *looks(LOOP, 0, since=GAP_SECONDS + 1)], False),
    "it was not looked at for a time, and waits since": ([*looks(LOOP, 0), *looks(LOOP, SHORT, since=GAP_SECONDS + 1)], True),
    "it has answered, in a loop": ([*looks(LOOP, 0), *[Look(STEP * n, LOOP, True, HANDLER) for n in range(1, 30)]], False),
    "its handler is at work, and has not answered": ([*looks(LOOP, 0), *looks(SAVES, LONG, since=0.1)], False),
    "its handler waits for peers": ([*looks(LOOP, 0), *looks(BARRIER, LONG, since=0.1)], True),
    "its handler waits for peers, not yet for long": ([*looks(LOOP, 0), *looks(BARRIER, SHORT, since=0.1)], False),
    "its handler is at work, and has answered": ([*looks(LOOP, 0), *answer(0.1), *looks(SAVES, LONG, since=0.2)], False),
    "its handler has returned, and it waits": ([*looks(LOOP, 0), *answer(0.1), *looks(OTHER, SHORT, since=0.2)], False),
    "its handler has returned, and it waits for long": ([*looks(LOOP, 0), *answer(0.1), *looks(OTHER, LONG, since=0.2)], True),
    "its handler has returned, and it writes a file": (
        [*looks(LOOP, 0), *answer(0.1), *looks(OTHER, LONG, since=0.2, copies=True)],
        False,
    ),
    "its handler has returned, to where it was": ([*looks(LOOP, 0), *answer(0.1), *looks(LOOP, LONG, since=0.2)], True),
    "its handler is no Python": ([*looks(LOOP, 0), *answer(0.1, handler=""), *looks(SAVES, LONG, since=0.2)], True),
}


@pytest.mark.parametrize("case", CASES)
def test_stuck(case: str) -> None:
    seen, stuck = CASES[case]
    assert reduce(MainThread.after, seen, MainThread()).stuck() == stuck


@pytest.mark.parametrize(("seconds", "stuck"), [(LONG, False), (5.0 + STEP, True)])
@pytest.mark.parametrize("seen", [looks, lambda stack, seconds: [*looks(OTHER, 0), *looks(stack, seconds, since=0.1)]])
def test_more_patience(seen: Callable[[str, float], list[Look]], seconds: float, stuck: bool) -> None:
    stack = LOOP if seen is looks else BARRIER
    assert reduce(MainThread.after, seen(stack, seconds), MainThread()).stuck(5.0) == stuck
