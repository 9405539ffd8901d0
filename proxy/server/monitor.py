"""A health check and the metrics over HTTP, for this machine only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from proxy.limits import MAX_MONITOR_BYTES, MONITOR_SECONDS

Page = Callable[[], Awaitable[tuple[bool, str]]]
"""Returns whether all is well, and the text."""


async def serve(pages: Mapping[str, Page], port: int) -> asyncio.Server:
    """Return a listener on the loopback address that answers GET for each page."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(MONITOR_SECONDS):
                writer.write(await _response(reader, pages))
                await writer.drain()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", port, limit=MAX_MONITOR_BYTES)


async def _response(reader: asyncio.StreamReader, pages: Mapping[str, Page]) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    page = pages.get(rest.split(" ")[0].split("?")[0])
    if method not in ("GET", "HEAD") or page is None:
        return _http("404 Not Found", f"there are: {', '.join(pages)}\n", body=True)
    well, text = await page()
    return _http("200 OK" if well else "503 Service Unavailable", text, body=method == "GET")


def _http(status: str, text: str, *, body: bool) -> bytes:
    data = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(data)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + (data if body else b"")
