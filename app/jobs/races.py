"""Runs queued races and streams their frames to browsers, until a race is over, stopped, or unwatched for a while."""

import asyncio
import json
import math
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from engine.core.errors import sentence
from engine.progress import Progress

from ..catalogue.catalogue import Pair
from ..catalogue.limits import Limits
from ..catalogue.request import RaceRequest
from .frames import Ended, Extras, News, RaceView, Waiting, fold_all, frame, frame_json
from .logs import log_race
from .queue import RaceQueue, Ticket
from .recorded import Shelf
from .worker import STOPPED_TEXT, Race, Worker

FRAME_S = 0.05
# After this many intervals a frame is sent even without news, so that a page knows that its server is there.
HEARTBEAT_FRAMES = 4
Frames = AsyncGenerator[str, None]  # frames as JSON text
Then = Callable[[RaceRequest, RaceView], None]
# How soon news is noticed after a pause longer than a frame's interval. Steps slower than a frame are shown when they
# are over, not at a tick.
POLL_S = 0.01
END_S = 2.0  # when the page ends, a race has so long to end by itself; then its visitors see it end without a recording
# How long an unwatched race goes on: a reloaded page reconnects to its race after a second or two, or later if the race
# keeps the browser's cores busy.
GRACE_S = 5.0

# For a reloaded page whose race is no longer known: it ended unwatched, or the server was restarted.
LOST = json.dumps({"race": "none", "seq": 0, "state": "lost"})


class Backend(Protocol):
    def of(self, pair: Pair) -> Any: ...
    def prepare(self, request: RaceRequest, progress: Progress) -> Race: ...
    def extras(self, race: Any, progress: Progress) -> Mapping[str, Any]: ...


class _Run:
    """One race, from the queue until it is complete.

    view: what was last known about it.
    watchers: the visitors who watch it.
    leaving: the timer that ends it if nobody watches."""

    def __init__(self, backend: Backend, request: RaceRequest, ticket: Ticket, then: Then) -> None:
        self._ends_at, self._is_logged = math.inf, False
        self._request, self._entered_at, self._began_at = request, time.monotonic(), math.inf
        self._then = then
        self.view = RaceView(secrets.token_hex(8), request.name)
        prepare = partial(backend.prepare, request)
        self.ticket, self.worker = ticket, Worker(prepare, backend.extras, ticket, request.recorded)
        self.watchers: list[str] = []
        self._started = False
        self.leaving: asyncio.TimerHandle | None = None

    def look(self) -> RaceView:
        """The view, with what has happened since."""
        if self.ticket.patient and self.ticket.is_waited_for:
            self.stop()
        place, closed = self.ticket.place, sentence(self.ticket.why_closed)
        if closed and not self._started:
            self.ticket.leave()
        elif place == 0 and not self._started:
            self._started, self._began_at = True, time.monotonic()
            self.worker.start()
        elif overtime := self.ticket.overtime:
            self.worker.stop(why=overtime)
        news: list[News]
        if self._started:
            news = self.worker.take() + (self._closing(closed) if closed else [])
        elif closed:
            news = [Ended("failed", closed)]
        elif place is None:
            news = [Ended("stopped", STOPPED_TEXT)]
        else:
            news = [Waiting(place, self.ticket.expected_s)]
        self.view = fold_all(self.view, news)
        if self.view.ended:
            self.log(self.view)
        return self.view

    def log(self, view: RaceView) -> None:
        """Log once that it has ended, as this view shows."""
        if self._is_logged:
            return
        self._is_logged, now = True, time.monotonic()
        lasted_s = now - self._began_at if self._started else None
        log_race(self._request, view, min(now, self._began_at) - self._entered_at, lasted_s)
        self._then(self._request, view)

    def _closing(self, why: str) -> list[News]:
        """Stop the race, because none can go on. Returns its end, if a worker does not end within END_S."""
        if self._ends_at == math.inf:
            self._ends_at = time.monotonic() + END_S
            self.worker.stop(why=why)
        return [Ended("failed", why), Extras(None)] if time.monotonic() >= self._ends_at else []

    def stop(self) -> None:
        """End within one step, or leave the queue. For a race that is over: stop making its extras."""
        self.worker.stop()
        if not self._started:
            self.ticket.leave()

    def watched_by(self, visitor: str) -> None:
        """One more visitor watches, and the race now belongs to them."""
        self.watchers.append(visitor)
        self.ticket.visitor = visitor
        if self.leaving is not None:
            self.leaving.cancel()


class Stage:
    """All races of all visitors on one device. To be used from one event loop, the one that serves the page.

    grace_s: how long an unwatched race goes on.
    shelf: gets the recordings of races that are over, by their ids.
    limits: see `RaceQueue`.
    then: is called with every race that has ended."""

    def __init__(
        self, backend: Backend, grace_s: float = GRACE_S, shelf: Shelf | None = None, limits: Limits | None = None
    ) -> None:
        self._backend, self._grace_s = backend, grace_s
        self.then: Then = lambda request, view: None
        self.shelf = shelf or Shelf({})
        self.queue = RaceQueue(limits=limits)
        self._runs: dict[str, _Run] = {}

    @property
    def is_watched(self) -> bool:
        """Whether a browser watches any race."""
        return any(run.watchers for run in list(self._runs.values()))

    def frames(self, visitor: str, address: str, request: RaceRequest, patient: bool = False) -> Frames:
        """Run a race; its frames, until it is complete: those after its end bring its extras. If this generator is
        closed, and nobody resumes the race within the grace time, the race ends within one step after it. patient: it
        ends as soon as another race waits. Raises UsageError if the visitor or the address already has too many races,
        or if no race can start any more."""
        backend, ticket = self._backend.of(request.pair), self.queue.enter(visitor, address, patient)
        run = _Run(backend, request, ticket, self.then)
        self._runs[run.view.race] = run
        self._leave_alone(run)
        return self.resume(visitor, run.view.race)

    def resume(self, visitor: str, race: str) -> Frames:
        """The frames of a race from its beginning, for whoever knows its id; from now on it belongs to this visitor.
        One frame, LOST, if there is no such race."""
        run = self._runs.get(race)
        return self._watch(run, visitor) if run is not None else _lost()

    async def _watch(self, run: _Run, visitor: str) -> Frames:
        run.watched_by(visitor)
        try:
            sent: RaceView | None = None
            sent_at, shown = time.monotonic(), 0
            while sent is None or not sent.complete:
                view, now = run.look(), time.monotonic()
                if view != sent or now - sent_at >= HEARTBEAT_FRAMES * FRAME_S:
                    yield await self._text(sent, view, shown)
                    sent, shown, sent_at = view, shown + 1, now
                if view.ended:
                    run.worker.shown()
                if not view.complete:
                    await asyncio.sleep(max(POLL_S, sent_at + FRAME_S - time.monotonic()))
        finally:
            run.watchers.remove(visitor)
            if not run.watchers:
                self._leave_alone(run)

    def stop(self, visitor: str) -> int:
        """End all races of a visitor, the running one within one step. Returns how many there were."""
        theirs = [run for run in self._runs.values() if visitor in (run.ticket.visitor, *run.watchers)]
        runs = [run for run in theirs if not run.view.complete]
        for run in reversed(runs):
            run.stop()
        return len(runs)

    def _leave_alone(self, run: _Run) -> None:
        """Nobody watches: after the grace time the race ends, and is forgotten."""
        run.leaving = asyncio.get_running_loop().call_later(self._grace_s, self._forget, run)

    def _forget(self, run: _Run) -> None:
        run.stop()
        self._runs.pop(run.view.race, None)  # watched late, it is left alone twice
        view = run.look()
        run.log(view if view.ended else replace(view, state="stopped"))

    async def _text(self, sent: RaceView | None, view: RaceView, seq: int) -> str:
        """A frame as JSON. The first and the last one can contain a whole race, so they are made in a thread."""

        def made() -> str:
            if view.recording and (sent is None or sent.recording is not view.recording):
                self.shelf.put(view.race, view.recording)
            return frame_json(frame(sent, view, seq))

        return await asyncio.to_thread(made) if view.ended or sent is None else made()


async def _lost() -> Frames:
    yield LOST
