"""From a race to a browser: frames at a fixed rate, in the order of a queue, until the race is over, stopped, or nobody
watches any more."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Protocol

from engine.progress import Progress

from .race_queue import RaceQueue, Ticket
from .request import RaceRequest
from .view import Ended, RaceView, Waiting, fold, fold_all, frame, frame_json
from .worker import STOPPED_TEXT, Race, Worker

FRAME_S = 0.05
HEARTBEAT_FRAMES = 4
"""A frame is sent when so many could have been, though it says nothing new: only at a frame does the server notice that
a visitor has left."""
POLL_S = 0.01
"""How soon news is noticed that came later than a frame after the last one. Steps slower than a frame are shown when
they are over, not at a tick."""
METRICS_FRAMES = 5


class Backend(Protocol):
    def prepare(self, request: RaceRequest, progress: Progress) -> Race: ...


class _Run:
    """One race of one visitor, from the queue to its end."""

    def __init__(self, ticket: Ticket, prepare: Callable[[Progress], Race]) -> None:
        self.ticket, self.worker = ticket, Worker(prepare, ticket.leave)
        self.started = False

    def start(self) -> None:
        self.started = True
        self.worker.start()

    def stop(self, unwatched: bool = False) -> None:
        """End within one step, or leave the queue."""
        self.worker.stop(unwatched)
        if not self.started:
            self.ticket.leave()


class Stage:
    """All races of all visitors on one device. To be used from one event loop, the one that serves the page."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic) -> None:
        self._backend, self._clock = backend, clock
        self._queue = RaceQueue(clock)
        self._runs: dict[str, list[_Run]] = {}

    async def frames(self, visitor: str, address: str, request: RaceRequest) -> AsyncGenerator[str, None]:
        """Hold a race and yield its frames as JSON text. Closing this generator ends the race within one step. Raises
        UsageError where the visitor, or the address that the request came from, has too many races already."""
        run = _Run(self._queue.enter(visitor, address), lambda progress: self._backend.prepare(request, progress))
        self._runs.setdefault(visitor, []).append(run)
        try:
            sent, shown, sent_at = None, 0, self._clock()
            view = RaceView(secrets.token_hex(8), request.name)
            while not view.ended:
                view = self._look(run, view)
                now = self._clock()
                if view != sent or now - sent_at >= HEARTBEAT_FRAMES * FRAME_S:
                    yield await _text(sent, view, shown)
                    sent, shown, sent_at = view, shown + 1, now
                if not view.ended:
                    await asyncio.sleep(max(POLL_S, sent_at + FRAME_S - self._clock()))
        finally:
            run.stop(unwatched=True)
            with suppress(ValueError, KeyError):
                self._runs[visitor].remove(run)
            if not self._runs.get(visitor):
                self._runs.pop(visitor, None)

    def stop(self, visitor: str) -> int:
        """End all races of a visitor, the running one within one step. Returns how many there were."""
        runs = list(self._runs.get(visitor, ()))
        for run in reversed(runs):
            run.stop()
        return len(runs)

    def leave(self, visitor: str) -> None:
        """The visitor is gone: end everything."""
        for run in reversed(list(self._runs.get(visitor, ()))):
            run.stop(unwatched=True)

    def racing(self, visitor: str) -> bool:
        """Whether a race of this visitor runs or waits."""
        return visitor in self._runs

    def _look(self, run: _Run, view: RaceView) -> RaceView:
        """The view, with what has happened since."""
        if run.started:
            return fold_all(view, run.worker.take())
        place = run.ticket.place
        if place is None:
            return fold(view, Ended("stopped", STOPPED_TEXT))
        if place == 0:
            run.start()
            return fold_all(view, run.worker.take())
        expected_s = run.ticket.expected_s
        return fold(view, Waiting(place, expected_s))


async def _text(sent: RaceView | None, view: RaceView, seq: int) -> str:
    """A frame as JSON. The last one holds the whole race, so it is made beside the event loop."""
    if view.ended:
        return await asyncio.to_thread(_dump, sent, view, seq)
    return _dump(sent, view, seq)


def _dump(sent: RaceView | None, view: RaceView, seq: int) -> str:
    return frame_json(frame(sent, view, seq, with_metrics=seq % METRICS_FRAMES == 0))


def first_frame(view: RaceView | None) -> str:
    """What a page shows before its visitor has done anything: a race that is over, or nothing yet."""
    return _dump(None, view or RaceView("none"), 0)
