"""HTTP by hand, so that a test says what goes over the wire."""

from __future__ import annotations

import asyncio


async def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of a GET."""
    head, body = await exchange(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return int(head.split()[1]), body


async def exchange(port: int, request: bytes) -> tuple[str, str]:
    """Send these bytes; head and body of the answer, both empty when there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.decode().partition("\r\n\r\n")
    return head, body
