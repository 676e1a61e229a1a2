"""A pod that means harm: it holds idle connections and sends requests without a token.

A program of its own: takes the port, the seconds and the number of idle connections, and prints
what became of what it tried, as JSON.
"""

import asyncio
import json
import resource
import socket
import ssl
import sys
import time
from collections import Counter
from contextlib import suppress

from tests.operator.agents_server import STRANGER

REQUESTS_PER_SECOND = 2000
SENDERS = 40
CLIENT_HELLO_BEGINS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
REQUEST = b"POST /v1/agent HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"


class Strangers:
    def __init__(self, port: int, seconds: float, idle: int) -> None:
        self._port = port
        self._idle_connections = idle
        self._until = time.monotonic() + seconds
        self._began = time.monotonic()
        self._sent = 0
        self.seen: Counter[str] = Counter()
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    async def attack(self) -> None:
        idle = [asyncio.create_task(self._idle(n)) for n in range(self._idle_connections)]
        await asyncio.gather(*(self._send() for _ in range(SENDERS)))
        for task in idle:
            task.cancel()
        await asyncio.gather(*idle, return_exceptions=True)

    async def _idle(self, number: int) -> None:
        """Keeps one connection open: without a word, within a handshake, or within a request."""
        while time.monotonic() < self._until:
            with suppress(OSError):
                in_request = number % 3 == 2
                reader, writer = await self._connect(self._tls if in_request else None)
                if number % 3 == 1:
                    writer.write(CLIENT_HELLO_BEGINS)
                elif in_request:
                    writer.write(b"POST /v1/agent HTTP/1.1\r\nHost: ")
                held = time.monotonic()
                try:
                    while await reader.read(4096):
                        pass
                finally:
                    self.seen["idle connections held for a second"] += time.monotonic() - held > 1
                    writer.transport.abort()
            self.seen["idle connections closed"] += 1
            await asyncio.sleep(1)

    async def _send(self) -> None:
        """Sends its share of the requests, on one connection for as long as that is open."""
        while time.monotonic() < self._until:
            await self._pace()
            try:
                reader, writer = await self._connect(self._tls)
            except OSError:
                self.seen["requests refused with their connection"] += 1
                continue
            try:
                while time.monotonic() < self._until:
                    writer.write(REQUEST)
                    head = await reader.readuntil(b"\r\n\r\n")
                    self.seen[f"requests answered {head.split()[1].decode()}"] += 1
                    await reader.readexactly(
                        int(head.lower().split(b"content-length: ")[1].split()[0])
                    )
                    if b"connection: close" in head.lower():
                        break
                    await self._pace()
            except (OSError, asyncio.IncompleteReadError):
                self.seen["requests refused with their connection"] += 1
            finally:
                writer.transport.abort()

    async def _pace(self) -> None:
        self._sent += 1
        await asyncio.sleep(self._began + self._sent / REQUESTS_PER_SECOND - time.monotonic())

    async def _connect(
        self, tls: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        link = socket.socket()
        link.setblocking(False)
        # IP_BIND_ADDRESS_NO_PORT: ports are taken for each connection.
        link.setsockopt(socket.IPPROTO_IP, 24, 1)
        link.bind((STRANGER, 0))
        try:
            await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", self._port))
            return await asyncio.open_connection(
                sock=link, ssl=tls, server_hostname="localhost" if tls else None
            )
        except BaseException:
            link.close()
            raise


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    strangers = Strangers(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    asyncio.run(strangers.attack())
    print(json.dumps(strangers.seen))
