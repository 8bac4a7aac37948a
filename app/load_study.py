"""Studies of servers under load for the page: one at a time, which waits for the servers like a race and keeps them
until it is over."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

from engine.errors import PhotofinishError, UsageError
from engine.recordings.recording import OUTPUT_SCHEMA
from engine.remote.endpoint import Endpoint
from engine.under_load.metrics import report
from engine.under_load.study import Key, Listener, Row, is_whole, run
from engine.under_load.users import Asked

from .load_request import LoadRequest
from .race_queue import RaceQueue, Ticket
from .view import Waiting, frame_json, sentence, waiting_text

TICK_S, HEARTBEAT_S = 0.2, 2.0
"""How often there may be news; and the longest without a frame: only at one does Gradio notice that a browser has
left."""
FAULT = "The study ended for a reason that is a fault of this program; its log has the details."

log = logging.getLogger(__name__)


class LoadStudies:
    """All such studies of all visitors, one each. separate: the servers share no device. To be used from the event loop
    that serves the page."""

    def __init__(self, endpoints: Sequence[Endpoint], separate: bool, queue: RaceQueue) -> None:
        self.endpoints, self.separate, self._queue = tuple(endpoints), separate, queue
        self._studies: dict[str, _Study] = {}

    async def frames(self, visitor: str, address: str, request: LoadRequest) -> AsyncGenerator[str, None]:
        """Hold a study; its frames as JSON text. Where this generator is closed it ends within a moment. Raises
        UsageError where the visitor has one already, or too many races."""
        if visitor in self._studies:
            raise UsageError("you have a study here that is not over; stop it first")
        ticket = self._queue.enter(visitor, address)
        study = self._studies[visitor] = _Study(request)
        try:
            told, told_at = "", 0.0
            while not study.over.is_set():
                if not study.is_running:
                    self._advance(study, ticket)
                if (news := frame_json(study.frame())) != told or time.monotonic() - told_at > HEARTBEAT_S:
                    told, told_at = news, time.monotonic()
                    yield news
                await asyncio.sleep(TICK_S)
        finally:
            study.stop()
            if not study.is_running:
                ticket.leave()
            del self._studies[visitor]
        yield frame_json(study.frame())

    def _advance(self, study: _Study, ticket: Ticket) -> None:
        """Begin where the servers are free, or say how long it takes."""
        if ticket.place == 0:
            study.start(ticket)
        else:
            study.text = waiting_text(Waiting(ticket.place or 0, ticket.expected_s))

    def stop(self, visitor: str) -> None:
        """End the visitor's study."""
        if visitor in self._studies:
            self._studies[visitor].stop()


class _Study:
    """One study, in a thread with an event loop of its own, which leaves the place in the queue when it ends."""

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
        """End it where it stands."""
        self._stopped = True
        if not self.is_running:
            self.state, self.text = "stopped", "Stopped."
            self.over.set()
        elif self._loop is not None and self._task is not None and not self.over.is_set():
            with suppress(RuntimeError):  # of a loop that has just ended by itself
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

    def _asked(self, key: Key, asked: Asked) -> None:
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


def refused_load(why: str) -> str:
    """The frame of a study that never began."""
    return frame_json({"state": "failed", "text": sentence(why), "rows": []})
