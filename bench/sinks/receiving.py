"""A receiver of webhooks that reads each request and takes it, as a process: prints its port."""

from __future__ import annotations

import asyncio
from contextlib import suppress

_TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            writer.write(_TAKEN)
            await writer.drain()
    writer.close()


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
