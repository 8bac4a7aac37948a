"""From a race to a browser: frames at a fixed rate, in the order of a queue, until the race is over, stopped, or nobody
has watched for a while."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from engine.progress import Progress

from .race_queue import RaceQueue, Ticket
from .request import RaceRequest
from .view import Ended, News, RaceView, Waiting, fold_all, frame, frame_json
from .worker import STOPPED_TEXT, Race, Worker

FRAME_S = 0.05
HEARTBEAT_FRAMES = 4
"""A frame is sent when so many could have been, though it says nothing new: only at a frame does the server notice that
a visitor has left."""
POLL_S = 0.01
"""How soon news is noticed that came later than a frame after the last one. Steps slower than a frame are shown when
they are over, not at a tick."""
METRICS_FRAMES = 5
GRACE_S = 5.0
"""How long a race goes on that nobody watches: a page that is loaded again asks for its race a second or two later, and
later where the race keeps the browser's cores busy."""


class Backend(Protocol):
    def prepare(self, request: RaceRequest, progress: Progress) -> Race: ...
    def beside(self, race: Any, progress: Progress) -> Mapping[str, Any]: ...


class _Run:
    """One race, from the queue until it is complete. `view`: what was last known of it; `watchers`: the visitors who
    watch it; `told`: by visitor who saw its end, the view that he has and the number of his frames; `leaving`: what
    will end it where nobody watches."""

    def __init__(self, backend: Backend, request: RaceRequest, ticket: Ticket) -> None:
        self.view = RaceView(secrets.token_hex(8), request.name)
        prepare = partial(backend.prepare, request)
        self.ticket, self.worker = ticket, Worker(prepare, backend.beside, ticket, request.recorded)
        self.watchers: list[str] = []
        self.told: dict[str, tuple[RaceView, int]] = {}
        self._started = False
        self.leaving: asyncio.TimerHandle | None = None

    def look(self) -> RaceView:
        """The view, with what has happened since."""
        place = self.ticket.place
        if place == 0 and not self._started:
            self._started = True
            self.worker.start()
        news: list[News]
        if self._started:
            news = self.worker.take()
        elif place is None:
            news = [Ended("stopped", STOPPED_TEXT)]
        else:
            news = [Waiting(place, self.ticket.expected_s)]
        self.view = fold_all(self.view, news)
        return self.view

    def stop(self, unwatched: bool = False) -> None:
        """End within one step, or leave the queue; of a race that is over, give up what is made beside it."""
        self.worker.stop(unwatched)
        if not self._started:
            self.ticket.leave()

    def watched_by(self, visitor: str) -> None:
        """One more watches, and the race is his now."""
        self.watchers.append(visitor)
        self.ticket.visitor = visitor
        if self.leaving is not None:
            self.leaving.cancel()


class Stage:
    """All races of all visitors on one device. To be used from one event loop, the one that serves the page. grace_s:
    how long a race goes on that nobody watches."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.monotonic, grace_s: float = GRACE_S) -> None:
        self._backend, self._clock, self._grace_s = backend, clock, grace_s
        self.queue = RaceQueue(clock)
        self._runs: dict[str, _Run] = {}

    def frames(self, visitor: str, address: str, request: RaceRequest) -> AsyncGenerator[str, None]:
        """Hold a race; its frames as JSON text. Where this generator is closed, and nobody resumes the race within the
        grace time, it ends within one step after it. Raises UsageError where the visitor, or the address that the
        request came from, has too many races already."""
        ticket = self.queue.enter(visitor, address)
        run = _Run(self._backend, request, ticket)
        self._runs[run.view.race] = run
        self._leave_alone(run)
        return self.resume(visitor, run.view.race)

    def resume(self, visitor: str, race: str) -> AsyncGenerator[str, None]:
        """The frames of a race from its beginning to its end, for whoever knows its id: it is this visitor's from now
        on. Of a race that is not there, nothing."""
        run = self._runs.get(race)
        return _nothing() if run is None else self._watch(run, visitor, None, 0)

    def beside(self, visitor: str) -> AsyncGenerator[str, None]:
        """The frames after the end of the last race whose end this visitor saw, until it is complete: the last one
        brings what was made beside it. A stream of its own, so that the visitor may order the next race meanwhile."""
        run = next((run for run in reversed(self._runs.values()) if visitor in run.told), None)
        return _nothing() if run is None else self._watch(run, visitor, *run.told[visitor])

    async def _watch(self, run: _Run, visitor: str, sent: RaceView | None, shown: int) -> AsyncGenerator[str, None]:
        """Frames for one who has `sent` (None: nothing) from `shown` frames: to the race's end, or on from there."""
        is_over = attrgetter("complete" if sent and sent.ended else "ended")
        run.watched_by(visitor)
        try:
            sent_at = self._clock()
            while sent is None or not is_over(sent):
                view, now = run.look(), self._clock()
                if view != sent or now - sent_at >= HEARTBEAT_FRAMES * FRAME_S:
                    yield await _text(sent, view, shown)
                    sent, shown, sent_at = view, shown + 1, now
                if not is_over(view):
                    await asyncio.sleep(max(POLL_S, sent_at + FRAME_S - self._clock()))
            run.told[visitor] = sent, shown
            run.worker.shown()
        finally:
            run.watchers.remove(visitor)
            if not run.watchers:
                self._leave_alone(run)

    def stop(self, visitor: str) -> int:
        """End all races of a visitor, the running one within one step. Returns how many there were."""
        his = [run for run in self._runs.values() if visitor in (run.ticket.visitor, *run.watchers)]
        runs = [run for run in his if not run.view.complete]
        for run in reversed(runs):
            run.stop()
        return len(runs)

    def racing(self, visitor: str) -> bool:
        """Whether this visitor watches a race that has the device and is not over."""
        his = (run for run in self._runs.values() if visitor in run.watchers)
        return any(run.ticket.place == 0 and not run.view.ended for run in his)

    def _leave_alone(self, run: _Run) -> None:
        """Nobody watches: after the grace time the race ends, and is forgotten."""
        run.leaving = asyncio.get_running_loop().call_later(self._grace_s, self._forget, run)

    def _forget(self, run: _Run) -> None:
        run.stop(unwatched=True)
        del self._runs[run.view.race]


async def _nothing() -> AsyncGenerator[str, None]:
    """No frames."""
    return
    yield


async def _text(sent: RaceView | None, view: RaceView, seq: int) -> str:
    """A frame as JSON. That of the end holds the whole race, so it is made beside the event loop."""
    if view.ended:
        return await asyncio.to_thread(_dump, sent, view, seq)
    return _dump(sent, view, seq)


def _dump(sent: RaceView | None, view: RaceView, seq: int) -> str:
    return frame_json(frame(sent, view, seq, with_metrics=seq % METRICS_FRAMES == 0))


def first_frame(view: RaceView | None) -> str:
    """What a page shows before its visitor has done anything: a race that is over, or nothing yet."""
    return _dump(None, view or RaceView("none"), 0)
