"""A server that reads requests and never answers.

Its handshake is done: an API server gives up an unanswered one after 10 s.
"""

import asyncio
import ssl
from contextlib import suppress

from tally import Tally

PORT = 8443
CERTIFICATE = "/scripts/hang.pem"  # with its key
HOLD_SECONDS = 60.0  # longer than the API server waits for a webhook


async def main() -> None:
    tally = Tally("webhook")

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(HOLD_SECONDS):
                await reader.readline()
                tally.add()
                while await reader.read(4096):
                    pass
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    async with await asyncio.start_server(hold, "0.0.0.0", PORT, ssl=context) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
