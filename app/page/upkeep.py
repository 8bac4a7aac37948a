"""What the page's server does whatever its visitors do: it returns memory to the system, but not while a race is being
timed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from ..jobs.process_memory import give_back

IDLE_S = 5.0  # seconds between two checks whether the page is idle


class Upkeep:
    """Middleware that begins with the server. is_idle: whether no race runs or waits."""

    def __init__(self, app: ASGIApp, is_idle: Callable[[], bool]) -> None:
        self._app, self._is_idle = app, is_idle
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" and self._task is None:
            self._task = asyncio.create_task(self._go_on())
        await self._app(scope, receive, send)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(IDLE_S)
            if self._is_idle():
                await asyncio.to_thread(give_back)
