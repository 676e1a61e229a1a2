"""A server that accepts connections and never answers."""

import asyncio
from contextlib import suppress

from tally import Tally

PORT = 8443
HOLD_SECONDS = 60.0  # longer than the API server waits for a webhook


async def main() -> None:
    tally = Tally("webhook")

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tally.add()
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(HOLD_SECONDS):
                while await reader.read(4096):
                    pass
        writer.close()

    async with await asyncio.start_server(hold, "0.0.0.0", PORT) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
