"""Sends heartbeats of 64 KiB with false claims and long words, and lines that never end."""

import asyncio
from contextlib import suppress
from itertools import count

from flood import RETRY_SECONDS, TROUBLE, beat, chunk, send
from tally import Tally

LINE_BYTES = 64 * 1024 - 1  # the longest that the operator takes, with its end
PROCESSES, PLACES = 1024, 128  # of a pod, as many as the operator takes
WORDS, METRICS = 8_000, 200
HALF_BYTES = 60_000
# The operator waits for the end of a line for some seconds, and some bytes.
SLOW_SECONDS = 2.0


def claim(turn: int) -> bytes:
    place = {"kind": "collective", "operation": "allreduce", "frame": "w" * 100}
    progress = {
        "step": turn,
        "workSeconds": [0.1] * PROCESSES,
        "metrics": {f"metric-{turn}-{n}": float(n) for n in range(METRICS)},
        "saveError": "w" * WORDS,
    }
    claimed = {
        "round": turn,
        "rank": turn % 7,
        "worldSize": PROCESSES * PROCESSES,
        "localWorldSize": PROCESSES,
    }
    places = {"byLocalRank": [place] * PLACES, "ageSeconds": 9.0}
    return padded(beat(**claimed, state="running", restarts=turn, progress=progress, places=places))


def failure(turn: int) -> bytes:
    words = {
        name: f"{name} {turn} " * (WORDS // 10)
        for name in ("exception", "message", "traceback", "signal")
    }
    failed = beat(state="failed", round=turn, failure={"exitCode": 1, "rank": 10**6, **words})
    return padded(failed)


def padded(line: bytes) -> bytes:
    """A heartbeat of 64 KiB: JSON allows blanks at its end."""
    assert len(line) < LINE_BYTES
    return line.ljust(LINE_BYTES)


async def keep_claiming(tally: Tally) -> None:
    for turn in count(1):
        line = (claim, failure)[turn % 2](turn)
        with suppress(*TROUBLE):
            await send(chunk(beat())[0], *chunk(line), tally)
        await asyncio.sleep(RETRY_SECONDS)


async def keep_beginning(tally: Tally, pause_seconds: float) -> None:
    half = b'{"state": "'.ljust(HALF_BYTES, b"w")
    first = chunk(beat())[0] + b"%x\r\n%s\r\n" % (len(half), half)
    more = b"64\r\n%s\r\n" % (b"w" * 100)
    while True:
        with suppress(*TROUBLE):
            await send(first, more, 1, tally, pause_seconds)
        await asyncio.sleep(RETRY_SECONDS)


async def main() -> None:
    claims, halves = Tally("claims"), Tally("half-lines")
    await asyncio.gather(
        *(keep_claiming(claims) for _ in range(2)),
        *(keep_beginning(halves, pause_seconds) for pause_seconds in (0.0, SLOW_SECONDS)),
    )


if __name__ == "__main__":
    asyncio.run(main())
