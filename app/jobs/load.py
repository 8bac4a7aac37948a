"""Studies of servers under load: each waits in the queue like a race and keeps the servers until it is over."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

from engine.errors import PhotofinishError, UsageError, sentence
from engine.recordings.recording import OUTPUT_SCHEMA
from engine.remote.endpoint import Endpoint
from engine.studies.load.metrics import report
from engine.studies.load.study import Key, Listener, Row, is_whole, run
from engine.studies.load.users import Outcome

from ..catalogue.load_request import LoadRequest
from .frames import Waiting, frame_json, waiting_text
from .queue import RaceQueue, Ticket

TICK_S, HEARTBEAT_S = 0.2, 2.0
"""Seconds between checks for news, and between frames at most: only at a frame does Gradio notice that a browser has
left."""
FAULT = "The study failed because of a bug in Photofinish; see its log."

log = logging.getLogger(__name__)


class LoadStudies:
    """All studies, one per visitor. separate: the servers share no device. To be used from the event loop that serves
    the page."""

    def __init__(self, endpoints: Sequence[Endpoint], separate: bool, queue: RaceQueue) -> None:
        self.endpoints, self.separate, self._queue = tuple(endpoints), separate, queue
        self._studies: dict[str, _Study] = {}

    async def frames(self, visitor: str, address: str, request: LoadRequest) -> AsyncGenerator[str, None]:
        """Run a study; its frames as JSON text. Closing this generator ends it. Raises UsageError if the visitor
        already has one, or too many races."""
        if visitor in self._studies:
            raise UsageError("you already have a study running here; stop it first")
        ticket = self._queue.enter(visitor, address)
        study = self._studies[visitor] = _Study(request)
        try:
            sent, sent_at = "", 0.0
            while not study.over.is_set():
                if not study.is_running:
                    self._advance(study, ticket)
                if (news := frame_json(study.frame())) != sent or time.monotonic() - sent_at > HEARTBEAT_S:
                    sent, sent_at = news, time.monotonic()
                    yield news
                await asyncio.sleep(TICK_S)
        finally:
            study.stop()
            if not study.is_running:
                ticket.leave()
            del self._studies[visitor]
        yield frame_json(study.frame())

    def _advance(self, study: _Study, ticket: Ticket) -> None:
        """Start if the servers are free, else update the waiting text."""
        if ticket.place == 0:
            study.start(ticket)
        else:
            study.text = waiting_text(Waiting(ticket.place or 0, ticket.expected_s))

    def stop(self, visitor: str) -> None:
        """End the visitor's study."""
        if visitor in self._studies:
            self._studies[visitor].stop()


class _Study:
    """One study, in a thread with its own event loop. It leaves the queue when it ends."""

    def __init__(self, request: LoadRequest) -> None:
        self.request, self.rows, self.begun = request, list[Row](request.rows), set[Key](request.begun)
        self.state, self.text, self.is_running, self.over = "waiting", "", False, threading.Event()
        self._now: dict[Key, tuple[int, int]] = {}
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, ticket: Ticket) -> None:
        self.is_running, self.state, self.text = True, "running", "Setting up."
        threading.Thread(target=self._run, args=(ticket,), name="load study", daemon=True).start()

    def stop(self) -> None:
        """End it now."""
        self._stopped = True
        if not self.is_running:
            self.state, self.text = "stopped", "Stopped."
            self.over.set()
        elif self._loop is not None and self._task is not None and not self.over.is_set():
            with suppress(RuntimeError):  # the loop has just ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)

    def _run(self, ticket: Ticket) -> None:
        try:
            asyncio.run(self._hold())
            self.state, self.text = "finished", "Finished."
        except asyncio.CancelledError:
            self.state, self.text = "stopped", "Stopped."
        except PhotofinishError as error:
            self.state, self.text = "failed", sentence(str(error))
        except Exception:
            log.exception("a study of servers failed")
            self.state, self.text = "failed", FAULT
        finally:
            ticket.leave()
            self.over.set()

    async def _hold(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._stopped:
            raise asyncio.CancelledError
        finished = [(row["lane"], row["concurrency"]) for row in self.rows]
        before = frozenset(self.begun)
        listener = Listener(self._warming, self._begin, self._asked, self._add)
        await run(self.request.plan, finished, before, listener)

    def _warming(self, lane: str) -> None:
        self.text = f"Warming {lane} up."

    def _begin(self, key: Key) -> None:
        self.begun.add(key)
        self._now[key] = (0, 0)
        self._tell()

    def _asked(self, key: Key, asked: Outcome) -> None:
        self._now[key] = (len(asked.answers) + len(asked.failures), len(asked.failures))
        self._tell()

    def _add(self, row: Row) -> None:
        del self._now[row["lane"], row["concurrency"]]
        if is_whole(row):
            self.begun.discard((row["lane"], row["concurrency"]))
        self.rows.append(row)

    def _tell(self) -> None:
        num = self.request.plan.num_requests
        self.text = "; ".join(
            f"{lane}, {users} user{'s' if users > 1 else ''}: {done} of {num} requests"
            + (f", {bad} failed" if bad else "")
            for (lane, users), (done, bad) in list(self._now.items())
        )

    def frame(self) -> dict[str, Any]:
        plan = self.request.plan
        order = {key: index for index, key in enumerate(plan.keys)}
        rows = sorted(self.rows, key=lambda row: order[row["lane"], row["concurrency"]])
        num_done = len(rows) * plan.num_requests + sum(done for done, _ in list(self._now.values()))
        lanes = [endpoint.lane for endpoint in plan.endpoints]
        return {
            "schema": OUTPUT_SCHEMA,
            "key": self.request.key,
            "state": self.state,
            "text": self.text,
            "share": num_done / (len(plan.keys) * plan.num_requests),
            "lanes": lanes,
            "model": plan.endpoints[0].model,
            "temperature": plan.params.temperature,
            "seed": plan.params.seed,
            "chat": bool(plan.questions[0].messages),
            "separate": plan.separate,
            "rows": rows,
            "begun": [list(key) for key in sorted(self.begun)],
            "report": report(rows, lanes, OUTPUT_SCHEMA) if rows else None,
        }
