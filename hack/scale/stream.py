"""A request whose body and whose answer are streams of JSON lines, on a connection that is cheap enough for ten thousand in a process.

It is what worker_image/elastic_pytorch/operator_link/stream.py is for a real agent.
"""

import json
from collections.abc import Mapping
from typing import Any

from scale.connection import Connection


class Stream:
    """Sends and receives lines, from one task.

    Args:
        connection: which is used for nothing else meanwhile.
        path: of the request.
        headers: of the request.
    """

    def __init__(self, connection: Connection, path: str, headers: Mapping[str, str]) -> None:
        self._connection = connection
        kind = {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"}
        self._unsent = connection.head("POST", path, {**headers, **kind})
        self._received, self._line = bytearray(), bytearray()
        self._in_body = False

    async def open(self) -> None:
        """Connects.

        Raises:
            OSError: there is no connection.
        """
        await self._connection.connect()

    def send(self, fields: Any) -> None:
        """Sends a line.

        Raises:
            OSError: the connection is closed, or full.
        """
        line = json.dumps(fields).encode() + b"\n"
        self._connection.send(self._unsent + b"%x\r\n%b\r\n" % (len(line), line))
        self._unsent = b""

    async def receive(self, seconds: float) -> list[dict[str, Any]]:
        """Waits until there are lines, the connection is poked, or the time is over; returns the lines.

        Raises:
            RefusedError: the server refuses.
            OSError: the server has ended the stream, or the connection has failed.
        """
        self._received += await self._connection.receive_within(seconds)
        if not self._in_body:
            head, found, rest = self._received.partition(b"\r\n\r\n")
            if not found:
                return []
            self._connection.check_head(head, rest)
            self._received, self._in_body = rest, True
        while (end := self._received.find(b"\r\n")) >= 0:
            size, begin = int(self._received[:end], 16), end + 2
            if len(self._received) < begin + size + 2:
                break
            if not size:
                raise ConnectionResetError("the server has ended the stream")
            self._line += self._received[begin : begin + size]
            del self._received[: begin + size + 2]
        *lines, self._line = self._line.split(b"\n")
        return [json.loads(line) for line in lines]
