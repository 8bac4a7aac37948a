"""What the page's server does whatever its visitors do. It closes connections that send no request, or do not read
their answer: uvicorn would wait for them without a limit, and keep the answer in memory. And it returns memory to the
system, but not while a race is being timed."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from ..jobs.process_memory import give_back

LEAST_BYTES = 60_000  # while an answer waits, a connection must take at least this much of it between two checks
BYTES_ACKED = 120  # where Linux's struct tcp_info has the number of bytes that the other end has confirmed
IDLE_S, CHECK_S = 5.0, 60.0  # seconds between two checks whether the page is idle, and of the connections


class Upkeep:
    """Middleware that begins with the server. page: gets its `server` later, from Gradio. is_idle: whether no race runs
    or waits."""

    def __init__(self, app: ASGIApp, page: Any, is_idle: Callable[[], bool]) -> None:
        self._app, self._page, self._is_idle = app, page, is_idle
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" and self._task is None:
            self._task = asyncio.create_task(self._go_on())
        await self._app(scope, receive, send)

    async def _go_on(self) -> None:
        connections, check_at = Connections(), time.monotonic() + CHECK_S
        while True:
            await asyncio.sleep(IDLE_S)
            if time.monotonic() > check_at and (server := getattr(self._page, "server", None)):
                connections.check(server)
                check_at = time.monotonic() + CHECK_S
            if self._is_idle():
                await asyncio.to_thread(give_back)


class _Seen(NamedTuple):
    """A connection at a check: whether it has ever asked, whether an answer waits, what it has taken."""

    asked: bool
    waits: bool
    taken: float


class Connections:
    """The connections of a uvicorn server. Each `check` compares them with their state at the check before."""

    def __init__(self) -> None:
        self._before: dict[Any, _Seen] = {}

    def check(self, server: Any) -> int:
        """Abort connections that had not asked at the last check either, and those for which an answer waited both
        times and that have hardly taken anything since. Returns how many. Call it in the server's event loop."""
        now, num = {}, 0
        for connection in list(server.server_state.connections):
            seen = _Seen(
                getattr(connection, "cycle", connection) is not None,
                connection.transport.get_write_buffer_size() > 0,
                _taken(connection.transport),
            )
            before = self._before.get(connection)
            if before is None or not _is_stuck(before, seen):
                now[connection] = seen
            else:
                connection.transport.abort()
                num += 1
        self._before = now
        return num


def _is_stuck(before: _Seen, now: _Seen) -> bool:
    is_idle = not before.asked and not now.asked
    return is_idle or (before.waits and now.waits and now.taken - before.taken < LEAST_BYTES)


def _taken(transport: Any) -> float:
    """What the other end has confirmed, in bytes; NaN if the system does not say, and then nobody is stuck."""
    try:
        info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_ACKED + 8)
        return float(struct.unpack_from("Q", info, BYTES_ACKED)[0])
    except (AttributeError, OSError, struct.error):
        return math.nan
