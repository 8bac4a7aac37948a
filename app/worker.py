"""One race in a thread of its own: everything that takes time happens here, and what happens is put where the page
picks it up.

Between two steps this thread appends to a queue and looks at a flag, nothing more: text for the browser is made
elsewhere.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Protocol

from engine.errors import PhotofinishError
from engine.events import LaneEvent, Started, from_json
from engine.progress import Progress
from engine.recordings.recording import build

from .again import told_again
from .view import Beside, Ended, News, Prepared, Preparing, finished_text, sentence

FAULT = "The race failed for a reason that is a fault of this program; its log has the details."
STOPPED_TEXT = "Stopped."

log = logging.getLogger(__name__)


class Race(Protocol):
    """What a backend makes: see `engine.session.TorchRace`."""

    def header(self) -> dict[str, Any]: ...
    def events(self) -> Iterator[LaneEvent]: ...
    def result(self) -> Mapping[str, Any]: ...


POLL_S = 0.01
"""How soon it is noticed that a browser has the end of a race."""
SWITCH_S = 5e-4
"""How long another thread's Python may keep the interpreter from the race's, which asks for it several times a step:
Python's own 5 ms are half of one."""


class Device(Protocol):
    """A place on the device: see `app.race_queue.Ticket`."""

    @property
    def is_waited_for(self) -> bool: ...
    def race_over(self) -> None: ...
    def leave(self) -> None: ...


class _Halt(BaseException):
    """Raised by the progress callback to end a preparation from inside, whatever catches ordinary exceptions there."""


class Worker:
    """Runs `prepare(progress)` and the race it returns. `stop` ends it within one step. After a race that ran to its
    end, `beside(race, progress)` makes what its recording gets beside it, unless it is stopped or another race waits.
    The place on the device is left when it is not used any more. recorded: the race that this one is to repeat."""

    def __init__(
        self,
        prepare: Callable[[Progress], Race],
        beside: Callable[[Any, Progress], Mapping[str, Any]],
        device: Device,
        recorded: Mapping[str, Any] | None = None,
    ) -> None:
        self._prepare, self._beside, self._device, self._recorded = prepare, beside, device, recorded
        self._news: deque[News] = deque()
        self._stop, self._shown = threading.Event(), threading.Event()
        self._unwatched = self._is_running = False
        self._stage, self._since, self._share = "", 0.0, 0.0
        self._thread = threading.Thread(target=self._run, name="race", daemon=True)

    def start(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        self._thread.start()

    def stop(self, unwatched: bool = False) -> None:
        """End within one step. With `unwatched` nobody waits for the result, so it is not worked out either."""
        self._unwatched = self._unwatched or unwatched
        self._stop.set()

    def shown(self) -> None:
        """A browser has the end of the race: what comes beside it may be made now, and does not hold the end up."""
        self._shown.set()

    def take(self) -> list[News]:
        """What happened since the last call, in order. The last of all is an `Ended`, or its `Beside`."""
        news = []
        while self._news:
            news.append(self._news.popleft())
        return news

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended within this time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        race: Race | None = None
        try:
            race, ended = self._race()
        except _Halt:
            ended = Ended("stopped", STOPPED_TEXT)
        except PhotofinishError as error:
            ended = Ended("failed", sentence(str(error)))
        except Exception:
            log.exception("a race failed")
            ended = Ended("failed", FAULT)
        except BaseException:
            self._device.leave()
            raise
        if race is None or ended.state != "finished":
            self._device.leave()
            self._news.append(ended)
            return
        self._device.race_over()
        self._news.append(ended)
        members = self._made(race)
        self._device.leave()
        self._news.append(Beside(members))

    def _made(self, race: Race) -> Mapping[str, Any]:
        """What goes beside the race; nothing where there is nothing, or where it was given up."""

        def go_on(text: str, share: float | None) -> None:
            if self._stop.is_set() or self._device.is_waited_for:
                raise _Halt

        try:
            go_on("", None)
            while not self._shown.wait(POLL_S):
                go_on("", None)
            return self._beside(race, go_on)
        except (_Halt, PhotofinishError):
            return {}
        except Exception:
            log.exception("nothing could be put beside a race")
            return {}

    def _race(self) -> tuple[Race, Ended]:
        self._progress("it is your turn: the race is being set up", None)
        race = self._prepare(self._progress)
        self._progress("the race is about to start", None)
        header = race.header()
        events: list[LaneEvent] = []
        held: list[News] = [Prepared(header)]  # until every lane has read its prompt, which tells `_progress`
        with closing(race.events()) as source:  # type: ignore[type-var]
            for event in source:
                events.append(event)
                held.append(event)
                if not isinstance(event.event, Started):
                    self._is_running = True
                    self._news += held
                    held = []
                if self._stop.is_set():
                    break
        self._news += held
        if self._unwatched:
            raise _Halt
        result = race.result()
        final = tuple(map(from_json, result.get("events", ())))
        if self._stop.is_set():
            stopped = build(header, events, {**result, "stopped": True})
            return race, Ended("stopped", STOPPED_TEXT, stopped, events=final)
        recording = build(header, events, result)
        again = told_again(self._recorded, recording) if self._recorded else ""
        return race, Ended("finished", finished_text(events), recording, again, final)

    def _progress(self, text: str, share: float | None) -> None:
        if self._is_running:  # a lane of a race of one lane after the other reads its prompt
            return
        if self._stop.is_set():
            raise _Halt
        self._news.append(Preparing(text, share, self._left_s(text, share)))

    def _left_s(self, text: str, share: float | None) -> float | None:
        """How long a stage should go on, from how long its share has taken so far."""
        now = time.monotonic()
        if text != self._stage:
            self._stage, self._since, self._share = text, now, share or 0.0
        done = (share or 0.0) - self._share
        return (now - self._since) * (1 - self._share - done) / done if done > 0 else None
