"""What the page's server does about once a minute, whatever its visitors do: it closes stuck connections, and returns
memory to the system, but not while a race is being timed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from ..jobs.process_memory import give_back
from .connections import Connections
from .gate import App, Message, Receive, Send

IDLE_S, CHECK_S = 5.0, 60.0  # seconds between two checks whether the page is idle, and of the connections


class Upkeep:
    """Middleware that begins with the server. page: gets its `server` later, from Gradio. is_idle: whether no race runs
    or waits."""

    def __init__(self, app: App, page: Any, is_idle: Callable[[], bool]) -> None:
        self._app, self._page, self._is_idle = app, page, is_idle
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
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
