"""Studies of many prompts for the page: each prompt waits for the device like a race of its own, so that others race in
between."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Container
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.errors import PhotofinishError, RaceError, UsageError, sentence
from engine.progress import Progress
from engine.recordings.recording import OUTPUT_SCHEMA
from engine.recordings.words import circumstances, ribbons
from engine.studies.prompts.rows import Row
from engine.studies.prompts.verdict import report

from ..catalogue.request import StudyRequest
from .frames import ENDED, Waiting, frame_json, waiting_text
from .queue import RaceQueue, Ticket

TICK_S, HEARTBEAT_S = 0.2, 2.0
"""Seconds between checks for news, and between frames at most: only at a frame does the server notice that a browser
has left."""
LATEST = 10
"""Prompts whose rows each frame repeats, so that a browser may miss frames; the last frame has all rows."""
FAULT = "The study failed because of a bug in Photofinish; see its log."
ANEW = "The earlier results came from other weights or another machine, so all prompts are raced again."
Raced = tuple[tuple[Row, ...], dict[str, Any], dict[str, Any]]

log = logging.getLogger(__name__)


class Backend(Protocol):
    def study(self, request: StudyRequest, done: Container[int], progress: Progress) -> Raced: ...


class _Halt(BaseException):
    """Raised by the progress callback to end a race from inside."""


@dataclass
class _State:
    """State of one study, as sent to the browser. note: a sentence on something unusual."""

    request: StudyRequest
    rows: list[Row]
    state: str = "waiting"
    text: str = ""
    note: str = ""
    share: float | None = None
    raced_s: float = 0.0
    num_raced: int = 0
    ran_on: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] | None = None

    @property
    def done(self) -> set[int]:
        return {row.line for row in self.rows}

    def frame(self) -> dict[str, Any]:
        request, num_done, over = self.request, len(self.done), self.state in ENDED
        left = len(request.prompts) - num_done
        return {
            "schema": OUTPUT_SCHEMA,
            "key": request.key,
            "state": self.state,
            "text": self.text,
            "note": self.note,
            "share": self.share,
            "num_prompts": len(request.prompts),
            "num_done": num_done,
            "left_s": self.raced_s / self.num_raced * left if self.num_raced and not over else None,
            "target": request.pair.target,
            "drafters": list(request.drafters),
            "params": {
                "temperature": request.params.temperature,
                "top_p": request.params.top_p,
                "seed": request.params.seed,
                "max_new_tokens": request.params.max_new_tokens,
            },
            "rows": [row.to_json() for row in (self.rows if over else self.rows[-LATEST * len(request.drafters) :])],
            "ran_on": self.ran_on,
            "circumstances": circumstances(self.about) if self.about else "",
            "ribbons": [each.strip() for each in ribbons(self.about, False)] if self.about else [],
            "report": self.report,
        }


def refused_study(why: str) -> str:
    """The frame of a study that never began."""
    return frame_json({"state": "failed", "text": sentence(why), "rows": []})


class Studies:
    """All studies of all visitors, one each. To be used from the event loop that serves the page."""

    def __init__(self, backend: Backend, queue: RaceQueue) -> None:
        self._backend, self._queue = backend, queue
        self._stops: dict[str, threading.Event] = {}

    async def frames(self, visitor: str, address: str, request: StudyRequest) -> AsyncGenerator[str, None]:
        """Run a study; its frames as JSON text, the last one with its report. Closing this generator ends the study
        within one step. Raises UsageError if the visitor already has one, or too many races."""
        if visitor in self._stops:
            raise UsageError("you already have a study running here; stop it first")
        stop = self._stops[visitor] = threading.Event()
        study = _State(request, list(request.kept))
        try:
            while len(study.done) < len(request.prompts) and not stop.is_set():
                async with aclosing(self._next(study, visitor, address, stop)) as news:
                    async for _ in news:
                        yield frame_json(study.frame())
            study.state, study.text = ("stopped", "Stopped.") if stop.is_set() else ("finished", "Finished.")
        except PhotofinishError as error:
            if not study.rows:
                raise
            study.state, study.text = "failed", sentence(str(error))
        finally:
            stop.set()
            del self._stops[visitor]
        study.share = None
        if study.rows:
            study.report = await asyncio.to_thread(report, study.rows)
        yield frame_json(study.frame())

    def stop(self, visitor: str) -> None:
        """End the visitor's study within one step."""
        if visitor in self._stops:
            self._stops[visitor].set()

    async def _next(
        self, study: _State, visitor: str, address: str, stop: threading.Event
    ) -> AsyncGenerator[None, None]:
        """Race the study's next prompt; yields at news, and as a heartbeat."""
        ticket = self._queue.enter(visitor, address, patient=True)
        thread: _Race | None = None
        sent, sent_at = None, 0.0
        try:
            while thread is None or not thread.over.is_set():
                if thread is None and ticket.place == 0:
                    thread = _Race(self._backend, study, ticket, stop)
                elif thread is None:
                    if stop.is_set():
                        return
                    study.state = "waiting"
                    study.text = waiting_text(Waiting(ticket.place or 0, ticket.expected_s))
                else:
                    study.state, (study.text, study.share) = "racing", thread.news
                if (news := (study.state, study.text, study.share)) != sent or time.monotonic() - sent_at > HEARTBEAT_S:
                    sent, sent_at = news, time.monotonic()
                    yield
                await asyncio.sleep(TICK_S)
        finally:
            if thread is None:
                ticket.leave()
            elif not thread.over.is_set():
                stop.set()
        thread.take(study)


class _Race:
    """The race of a study's next prompt, in a thread of its own, which leaves the place on the device when it ends."""

    def __init__(self, backend: Backend, study: _State, ticket: Ticket, stop: threading.Event) -> None:
        self.news: tuple[str, float | None] = ("Setting up.", None)
        self.over = threading.Event()
        self._stop, self._began = stop, time.monotonic()
        self._raced: Raced | None = None
        self._error: PhotofinishError | None = None
        arguments = (backend, study.request, study.done, ticket)
        threading.Thread(target=self._run, args=arguments, name="study", daemon=True).start()

    def _run(self, backend: Backend, request: StudyRequest, done: Container[int], ticket: Ticket) -> None:
        try:
            self._raced = backend.study(request, done, self._progress)
        except _Halt:
            pass
        except PhotofinishError as error:
            self._error = error
        except Exception:
            log.exception("a study failed")
            self._error = RaceError(FAULT)
        finally:
            ticket.leave()
            self.over.set()

    def _progress(self, text: str, share: float | None) -> None:
        if self._stop.is_set():
            raise _Halt
        self.news = sentence(text), share

    def take(self, study: _State) -> None:
        """Add the result to the study, once it is over; raises what the race raised. Rows of an earlier run are kept
        only if weights and machine are the same."""
        if self._error is not None:
            raise self._error
        if self._raced is None:
            return
        rows, ran_on, about = self._raced
        if not study.num_raced and study.rows and study.request.kept_on != ran_on:
            study.rows, study.note = [], ANEW
        study.rows += rows
        study.ran_on, study.about = ran_on, about
        study.raced_s += time.monotonic() - self._began
        study.num_raced += 1
