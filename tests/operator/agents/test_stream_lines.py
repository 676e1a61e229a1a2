import asyncio
from typing import Any

import pytest
from elastic_pytorch_operator.agents.heartbeat import MalformedHeartbeat
from elastic_pytorch_operator.agents.stream_lines import (
    LINE_BYTES,
    LINE_SECONDS,
    MAX_HELD_BYTES,
    MAX_LINE_BYTES,
    PAUSE_SECONDS,
    HeldBytes,
    StreamLines,
)

from tests.situations import situations

pytestmark = pytest.mark.usefixtures("virtual_time")


class Body:
    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def readany(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def lines_of(*pieces: bytes, refuse: tuple[int, ...] = ()) -> tuple[StreamLines, list[float]]:
    """The lines of a body, of which some are refused, and what each has counted as."""
    prices: list[float] = []

    def admit(price: float) -> float:
        prices.append(price)
        return 0.05 if len(prices) in refuse else 0.0

    body: Any = Body(*pieces)
    return StreamLines(body, admit, HeldBytes()), prices


async def read(lines: StreamLines) -> list[bytes]:
    found = []
    while line := await lines.next():
        found.append(line)
    return found


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([], []),
        ([b"a\nb\n"], [b"a\n", b"b\n"]),
        ([b"a", b"b\nc", b"\n"], [b"ab\n", b"c\n"]),
        ([b"\n", b"\n"], [b"\n", b"\n"]),
        ([b"a\nb"], [b"a\n", b"b"]),
        ([bytes([byte]) for byte in b"ab\n"], [b"ab\n"]),
        ([b"x" * (MAX_LINE_BYTES - 1) + b"\n"], [b"x" * (MAX_LINE_BYTES - 1) + b"\n"]),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_lines_are_put_together_from_pieces(pieces: list[bytes], lines: list[bytes]) -> None:
    assert await read(lines_of(*pieces)[0]) == lines


@situations(
    "pieces",
    {
        "whole": [b"x" * MAX_LINE_BYTES + b"\n"],
        "parts": [b"x" * 1000] * 66,
        "second": [b"a\n" + b"x" * 70_000 + b"\n"],
    },
)
async def test_line_may_not_be_too_long(pieces: list[bytes]) -> None:
    with pytest.raises(MalformedHeartbeat, match="too long"):
        await read(lines_of(*pieces)[0])


async def test_line_counts_by_its_length() -> None:
    lines, prices = lines_of(b"a\n", b"x" * (3 * LINE_BYTES - 1) + b"\n")
    await read(lines)
    assert prices[:2] == [1.0, 3.0]


async def test_nothing_is_read_for_a_while_after_a_refused_line() -> None:
    lines, _ = lines_of(b"a\nb\nc\n", refuse=(2,))
    loop, times = asyncio.get_running_loop(), []
    for refused in (False, True, False):
        await lines.next()
        assert bool(lines.refused_seconds) is refused
        times.append(loop.time())
    assert times[1] - times[0] < 0.01
    assert times[2] - times[1] >= PAUSE_SECONDS


class OpenBody:
    """The body of a request whose sender says no more after some pieces, and leaves it open."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def readany(self) -> bytes:
        if not self._pieces:
            await asyncio.Event().wait()
        return self._pieces.pop(0)


async def test_line_that_has_begun_must_end_soon_and_one_that_has_not_may_wait() -> None:
    silent: Any = OpenBody(b"a\n")
    lines = StreamLines(silent, lambda _: 0.0, HeldBytes())
    assert await lines.next() == b"a\n"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(lines.next(), 100 * LINE_SECONDS)
    half: Any = OpenBody(b"a\nb")
    lines = StreamLines(half, lambda _: 0.0, HeldBytes())
    await lines.next()
    began = asyncio.get_running_loop().time()
    with pytest.raises(MalformedHeartbeat, match="too long"):
        await lines.next()
    assert asyncio.get_running_loop().time() - began == pytest.approx(LINE_SECONDS)


async def test_half_lines_of_a_namespace_take_no_more_than_it_may_have() -> None:
    held, streams = HeldBytes(), 2 * MAX_HELD_BYTES // MAX_LINE_BYTES
    half: list[Any] = [OpenBody(b"x" * MAX_LINE_BYTES) for _ in range(streams)]
    waiting = [asyncio.create_task(StreamLines(body, lambda _: 0.0, held).next()) for body in half]
    await asyncio.sleep(1)
    assert held.count == MAX_HELD_BYTES
    assert (
        sum(isinstance(task.exception(), MalformedHeartbeat) for task in waiting if task.done())
        == streams // 2
    )
    whole: Any = OpenBody(b"a\n")
    assert await StreamLines(whole, lambda _: 0.0, held).next() == b"a\n", (
        "a line that has ended is none of them"
    )
    await asyncio.sleep(LINE_SECONDS)
    assert held.count == 0
    await asyncio.gather(*waiting, return_exceptions=True)
