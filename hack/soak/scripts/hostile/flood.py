"""Floods the operator on four streams with heartbeats, tokens and garbage, by its own token."""

import asyncio
import json
import os
import ssl
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from tally import Tally

STREAMS = 4  # that the operator lets a pod have
CHUNK_BYTES = 60_000
RETRY_SECONDS = 1.0
SEND_SECONDS = 60.0
TROUBLE = (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError)


def token() -> str:
    return Path(os.environ["ELASTIC_PYTORCH_TOKEN_FILE"]).read_text()


def head() -> bytes:
    lines = (
        "POST /v1/agent HTTP/1.1",
        "Host: operator",
        f"Authorization: Bearer {token()}",
        "Transfer-Encoding: chunked",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def beat(**more: object) -> bytes:
    return json.dumps(
        {"incarnation": "flood", "state": "ready", "round": 0} | more, separators=(",", ":")
    ).encode()


def lines(stream: int, turn: int) -> bytes:
    kinds = (
        beat(),
        json.dumps({"token": token()}).encode(),
        beat(state="running", round=turn, progress={"step": turn}),
        b'{"token": "' + b"x" * 2000 + b'"}',
        b'{"' * 500,
    )
    return kinds[stream] if stream < STREAMS - 1 else kinds[3 + turn % 2]


def chunk(line: bytes) -> tuple[bytes, int]:
    """A chunk of a body (RFC 9112, section 7.1) that repeats a line, and how often."""
    number = max(1, CHUNK_BYTES // (len(line) + 1))
    body = (line + b"\n") * number
    return b"%x\r\n%s\r\n" % (len(body), body), number


async def discard(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def send(
    first: bytes, body: bytes, number: int, tally: Tally, pause_seconds: float = 0.0
) -> None:
    operator = urlsplit(os.environ["ELASTIC_PYTORCH_OPERATOR_URL"])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(operator.hostname, operator.port, ssl=context)
    answers = None
    try:
        writer.write(head() + first)
        if b" 200 " not in await reader.readline():
            return
        answers = asyncio.create_task(discard(reader))
        while not answers.done():
            writer.write(body)
            await asyncio.wait_for(writer.drain(), SEND_SECONDS)
            tally.add(number)
            await asyncio.sleep(pause_seconds)
    finally:
        if answers:
            answers.cancel()
        writer.close()


async def keep_sending(stream: int, tally: Tally) -> None:
    for turn in count():
        first = chunk(beat())[0] if stream < STREAMS - 1 else chunk(lines(stream, turn))[0]
        with suppress(*TROUBLE):
            await send(first, *chunk(lines(stream, turn)), tally)
        await asyncio.sleep(RETRY_SECONDS)


async def main() -> None:
    tally = Tally("flood")
    await asyncio.gather(*(keep_sending(stream, tally) for stream in range(STREAMS)))


if __name__ == "__main__":
    asyncio.run(main())
