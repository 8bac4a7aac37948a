"""Gradio's queue, so that no caller can end it for the others.

Gradio 6.31 serves all joins from one task, and any exception in that task ends it for good: every later join is
answered 503 "Queue is stopped". Two waiting joins with an empty session name were enough.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import gradio as gr
from gradio.queueing import Queue

RESTART_S = 1.0
_SESSION = re.compile(r"[!-~]{1,100}")
"""Names of browser sessions. Gradio's own clients send 11 to 36 letters, digits and dashes."""

log = logging.getLogger(__name__)


class GuardedQueue(Queue):
    """Refuses what Gradio's queue would fail on, and goes on serving after a fault of its own."""

    _closing = False

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        """Gradio's `push`; also answers 400 to a session without a usable name and to a function that does not exist.
        With an empty name Gradio keeps a mailbox under "" and sends to another one, which raises."""
        if body.session_hash is not None and not _SESSION.fullmatch(body.session_hash):
            return False, "session_hash must be 1 to 100 ASCII characters without spaces", "error"
        if body.fn_index not in self.blocks.fns:
            return False, f"fn_index must be the number of a function, from 0 to {max(self.blocks.fns)}", "error"
        return await super().push(body, request, username)

    def send_message(self, event: Any, event_message: Any) -> None:
        """Gradio's `send_message`; where Gradio has forgotten the session (it keeps the last 2,000) and would raise,
        the event ends."""
        if event.session_hash in self.pending_messages_per_session:
            super().send_message(event, event_message)
        else:
            event.alive = False

    async def start_processing(self) -> None:
        """Gradio's task that serves all joins. After an exception in it: a traceback in the log, a pause of RESTART_S,
        and on. Calls that run go on."""
        while True:
            try:
                return await super().start_processing()
            except Exception:
                log.exception("Gradio's queue failed; it goes on")
                self.stopped = False
                await asyncio.sleep(RESTART_S)

    def close(self) -> None:
        self._closing = True
        super().close()

    def _cancel_asyncio_tasks(self) -> None:
        """Called when `start_processing` ends for any reason. Calls that run end with the page, not with a fault."""
        if self._closing:
            super()._cancel_asyncio_tasks()


def guard(page: gr.Blocks) -> None:
    """Give a page that is not yet served a guarded queue."""
    page._queue = GuardedQueue(
        live_updates=True,
        concurrency_count=page.max_threads,
        update_intervals=1,
        max_size=None,
        blocks=page,
    )
