"""One race in a thread of its own, which queues news for the page.

Between two steps this thread only appends to a queue and checks a flag; text for the browser is made elsewhere.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Protocol

from engine.core.errors import PhotofinishError, sentence
from engine.core.events import LaneEvent, Started
from engine.core.spec import SPECULATIVE
from engine.progress import Progress
from engine.recordings.compare import compare
from engine.recordings.recording import Recording, build

from .frames import Ended, Extras, News, Prepared, Preparing, finished_text
from .logs import words_of
from .queue import Ticket

STOPPED_TEXT = "Stopped."
# A worker hangs if it reports no progress for QUIET_S, or takes longer than STEP_S for a step, or for what a server
# sends next (at most `Patience.silence_s`).
QUIET_S, STEP_S = 900.0, 180.0
POLL_S = 0.01  # interval for checking whether a browser has the end of a race


class Race(Protocol):
    """What a backend makes: see `engine.session.TorchRace`."""

    def header(self) -> dict[str, Any]: ...
    def events(self) -> Iterator[LaneEvent]: ...
    def result(self) -> Mapping[str, Any]: ...


class Halt(BaseException):
    """Raised by a progress callback to end work from inside, whatever catches ordinary exceptions there."""


class Worker:
    """Runs `prepare(progress)` and the race it returns, in a thread; `stop` ends it within one step. The place on the
    device is left as soon as it is no longer needed.

    extras: called as `extras(race, progress)` after a race that ran to its end, unless it is stopped or another race
        waits; what it returns is added to the recording.
    recorded: the race that this one repeats."""

    def __init__(
        self,
        prepare: Callable[[Progress], Race],
        extras: Callable[[Any, Progress], Mapping[str, Any]],
        device: Ticket,
        recorded: Recording | None = None,
    ) -> None:
        self._prepare, self._extras, self._device, self._recorded = prepare, extras, device, recorded
        self._news: deque[News] = deque()
        self._stop, self._shown = threading.Event(), threading.Event()
        self._is_running = False
        self._why = STOPPED_TEXT
        self._thread = threading.Thread(target=self._run, name="race", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, why: str = STOPPED_TEXT) -> None:
        """End within one step. why: a sentence."""
        self._why = why
        self._stop.set()

    def shown(self) -> None:
        """A browser has the end of the race: its extras may be made now without delaying it."""
        self._shown.set()

    def take(self) -> list[News]:
        """What happened since the last call, in order. The last of all is an `Ended`, or the `Extras` after it."""
        news = []
        while self._news:
            news.append(self._news.popleft())
        return news

    def _run(self) -> None:
        race: Race | None = None
        try:
            race, ended = self._race()
        except Halt:
            ended = Ended("stopped", self._why)
        except BaseException as error:  # whatever ends this thread, the device is free and the visitor reads why
            ended = Ended("failed", sentence(words_of(error, "the race")))
        if race is None or ended.state != "finished":
            race = None  # its memory is free before the next race is set up
            self._device.leave()
            self._news.append(ended)
            return
        self._device.race_over()
        self._news.append(ended)
        members = self._made(race)
        race = None
        self._device.leave()
        assert ended.recording is not None
        self._news.append(Extras(ended.recording.adding(members) if members else None))

    def _made(self, race: Race) -> Mapping[str, Any]:
        """The extras of the race; {} if there are none, or if the job was given up."""

        def go_on(text: str, share: float | None) -> None:
            self._device.sign(QUIET_S)
            if self._stop.is_set() or self._device.is_waited_for:
                raise Halt

        try:
            go_on("", None)
            while not self._shown.wait(POLL_S):
                go_on("", None)
            return self._extras(race, go_on)
        except (Halt, PhotofinishError):
            return {}
        except BaseException as error:
            words_of(error, "what is added to a race")
            return {}

    def _race(self) -> tuple[Race, Ended]:
        self._progress("your turn: setting up the race", None)
        race = self._prepare(self._progress)
        self._progress("starting the race", None)
        header = race.header()
        events: list[LaneEvent] = []
        pending: list[News] = [Prepared(header)]  # until every lane has read its prompt, which reports progress
        with closing(race.events()) as source:  # type: ignore[type-var]
            for event in source:
                self._device.sign(STEP_S)
                events.append(event)
                pending.append(event)
                if not isinstance(event.event, Started):
                    self._is_running = True
                    self._news += pending
                    pending = []
                if self._stop.is_set():
                    break
        self._news += pending
        self._device.sign(QUIET_S)
        result = race.result()
        if self._stop.is_set():
            return race, Ended("stopped", self._why, build(header, events, {**result, "stopped": True}))
        recording = build(header, events, result)
        again = said_again(self._recorded, recording) if self._recorded else ""
        return race, Ended("finished", finished_text(events), recording, again)

    def _progress(self, text: str, share: float | None) -> None:
        self._device.sign(QUIET_S)
        if self._is_running:  # lanes run one after the other, and a later one reads its prompt
            return
        if self._stop.is_set():
            raise Halt
        self._news.append(Preparing(text, share))


def said_again(recorded: Recording, here: Recording) -> str:
    """Whether this machine wrote the recorded tokens; if it did, both ratios."""
    comparison = compare(recorded, here)
    lane = comparison["lanes"][recorded.spec.first(SPECULATIVE)]
    if not (comparison["same_tokens"] and comparison["digest"]["same"] and lane["same_tokens"] and lane["counts"]):
        return f"Run again here: {comparison['sentence']}."
    bits = ", bit for bit" if lane["rows_different"] == 0 else ""
    ratios = f"; {comparison['speed']}" if comparison["speed"] else ""
    return sentence(f"this machine wrote the same {lane['num_tokens']} tokens{bits}{ratios}")
