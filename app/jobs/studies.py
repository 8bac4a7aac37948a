"""Studies on the page: each waits for the device like a race, and sends frames to its browser. A study of many prompts
waits anew for every prompt, so that others race in between; a check-up, and a study of servers under load, keep the
device until they are over."""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Iterator
from contextlib import aclosing, suppress
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from engine.core.errors import PhotofinishError, RaceError, UsageError, sentence
from engine.doctor import K
from engine.doctor.findings import Finding
from engine.doctor.findings import report as findings_report
from engine.progress import Progress
from engine.remote.look import kinds_of
from engine.studies.load.level_metrics import report as load_report
from engine.studies.load.study import Plan, run
from engine.studies.load.study import Row as Level
from engine.studies.load.users import Outcome
from engine.studies.prompts.rows import Row
from engine.studies.prompts.study_file import dated, result

from ..catalogue.request import CheckUpRequest, StudyRequest
from .frames import ENDED, Waiting, frame_json, waiting_text
from .logs import words_of
from .queue import RaceQueue, Ticket
from .worker import QUIET_S, Halt

TICK_S = 0.2  # between checks for news
# Prompts whose rows each frame repeats, so that a browser may miss frames; the report of the last one has all rows.
LATEST = 10
ANEW = "The earlier results came from other weights or another machine, so all prompts are raced again."
LINE = attrgetter("line")
# How work ends that was stopped: between two steps, as a task of its own, or in tasks that ask servers.
HALTED = (Halt, asyncio.CancelledError, BaseExceptionGroup)
Raced = tuple[tuple[Row, ...], dict[str, Any], dict[str, Any]]


class Backend(Protocol):
    def study(self, request: StudyRequest, done: Container[int], progress: Progress) -> Raced: ...
    def examined(self, request: CheckUpRequest) -> dict[str, Any]: ...
    def check_up(self, request: CheckUpRequest, progress: Progress) -> Iterator[Finding]: ...


class Study(ABC):
    """One study, as its frames show it.

    rows: results, which a browser keeps even if the study fails.
    is_patient: it waits without counting as waiting, see `RaceQueue.enter`."""

    is_patient = is_complete = False

    def __init__(self, rows: Iterable[Any]) -> None:
        self.rows = list(rows)
        self.state, self.text = "waiting", ""
        self.share: float | None = None
        self.stopped = threading.Event()
        self._error: PhotofinishError | None = None
        self._ticket: Ticket | None = None

    @abstractmethod
    def frame(self) -> dict[str, Any]:
        """What it shows, besides its state and text."""

    def shown(self) -> str:
        """Its frame as JSON text."""
        return frame_json({"state": self.state, "text": self.text, **self.frame()})

    @abstractmethod
    def work(self) -> None:
        """What it does while it has the device, in a thread of its own. Raises one of HALTED if it was stopped."""

    def _progress(self, text: str, share: float | None) -> None:
        if self.stopped.is_set():
            raise Halt
        if self._ticket is not None:
            self._ticket.sign(QUIET_S)
        self.state, self.text, self.share = "racing", sentence(text), share

    def stop(self) -> None:
        """End within one step."""
        self.stopped.set()

    async def run(self, enter: Callable[..., Ticket]) -> AsyncGenerator[None, None]:
        """The whole study; yields at news. Closing this generator ends it within one step.

        enter: joins the queue, see `RaceQueue.enter`."""
        try:
            while not self.is_complete and not self.stopped.is_set():
                async with aclosing(self._turn(enter(patient=self.is_patient))) as news:
                    async for _ in news:
                        yield
            self.state, self.text = ("stopped", "Stopped.") if self.stopped.is_set() else ("finished", "Finished.")
        except PhotofinishError as error:
            if not self.rows:
                raise
            self.state, self.text = "failed", sentence(str(error))

    async def _turn(self, ticket: Ticket) -> AsyncGenerator[None, None]:
        """Wait for the device, then work."""
        over, is_running = threading.Event(), False
        self._ticket = ticket
        sent = None
        try:
            while not over.is_set():
                if closed := ticket.why_closed:
                    raise RaceError(closed)
                if is_running and (overtime := ticket.overtime):
                    self._error = RaceError(overtime)
                    self.stop()
                if not is_running:
                    if self.stopped.is_set():
                        return
                    if ticket.place == 0:
                        is_running = True
                        threading.Thread(target=self._run, args=(ticket, over), name="study", daemon=True).start()
                    else:
                        self.state, self.text = "waiting", waiting_text(Waiting(ticket.place or 0, ticket.expected_s))
                news = self.state, self.text, self.share, len(self.rows)
                if news != sent:
                    sent = news
                    yield
                await asyncio.sleep(TICK_S)
        finally:
            if not over.is_set():
                self.stop()
            if not is_running:
                ticket.leave()
        if self._error is not None:
            raise self._error

    def _run(self, ticket: Ticket, over: threading.Event) -> None:
        try:
            self.work()
        except BaseException as error:  # whatever ends this thread, the visitor reads why
            if not (self.stopped.is_set() and isinstance(error, HALTED)):
                self._error = error if isinstance(error, PhotofinishError) else RaceError(words_of(error, "the study"))
        finally:
            ticket.leave()
            over.set()


class Studies:
    """All studies, one per visitor. To be used from the event loop that serves the page."""

    def __init__(self, queue: RaceQueue) -> None:
        self._queue = queue
        self._studies: dict[str, Study] = {}

    @property
    def is_watched(self) -> bool:
        """Whether there is any."""
        return bool(self._studies)

    async def frames(self, visitor: str, address: str, study: Study) -> AsyncGenerator[str, None]:
        """Run a study; its frames as JSON text. Closing this generator ends it within one step. Raises UsageError if
        the visitor already has one, or too many races."""
        if visitor in self._studies:
            raise UsageError("you already have a study running here; stop it first")
        self._studies[visitor] = study
        try:
            async with aclosing(study.run(partial(self._queue.enter, visitor, address))) as news:
                async for _ in news:
                    yield study.shown()
        finally:
            study.stop()
            del self._studies[visitor]
        yield await asyncio.to_thread(study.shown)

    def stop(self, visitor: str) -> None:
        """End the visitor's study within one step."""
        if visitor in self._studies:
            self._studies[visitor].stop()


class PromptsStudy(Study):
    """A study of many prompts. note: a sentence on something unusual."""

    is_patient = True

    def __init__(self, backend: Backend, request: StudyRequest) -> None:
        super().__init__(request.kept)
        self._backend, self.request = backend, request
        self.note, self.raced_s, self.num_raced = "", 0.0, 0
        self.is_complete = len(self.done) == len(request.prompts)
        self.ran_on: dict[str, Any] = {}
        self.about: dict[str, Any] = {}
        self.said = self._dated()

    @property
    def done(self) -> set[int]:
        return {row.line for row in self.rows}

    def work(self) -> None:
        """Race the next prompt. Rows of an earlier run are kept only if weights and machine are the same."""
        began = time.monotonic()
        self._progress("Setting up.", None)
        rows, ran_on, about = self._backend.study(self.request, self.done, self._progress)
        if not self.num_raced and self.rows and self.request.kept_on != ran_on:
            self.rows, self.note = [], ANEW
        self.rows += rows
        self.ran_on, self.about = ran_on, about or {}
        self.said = self._dated()  # with the time at which it was measured
        self.raced_s += time.monotonic() - began
        self.num_raced += 1
        self.is_complete = len(self.done) == len(self.request.prompts)

    def frame(self) -> dict[str, Any]:
        request, num_done, over = self.request, len(self.done), self.state in ENDED
        left, params, spec = len(request.prompts) - num_done, request.params, self.about.get("spec", {})
        return {
            "key": request.key,
            "note": self.note,
            "num_prompts": len(request.prompts),
            "num_done": num_done,
            "left_s": self.raced_s / self.num_raced * left if self.num_raced and not over else None,
            "target": request.pair.target,
            "drafters": list(request.drafters),
            "lanes": [lane["name"] for lane in spec.get("lanes", ())],
            "chat": request.pair.chat is True,
            "same_device": spec.get("solo", False),
            "params": {name: getattr(params, name) for name in ("temperature", "top_p", "seed", "max_new_tokens")},
            "rows": [] if over else [row.to_json() for row in self.rows[-LATEST * len(request.drafters) :]],
            "ran_on": self.ran_on,
            "report": result(sorted(self.rows, key=LINE), request.pair.target, self.said, params.temperature)
            if over and self.rows
            else None,
        }

    def _dated(self) -> dict[str, Any]:
        return dated(self.about.get("said", {}), len(self.request.prompts), self.request.name)


class CheckUp(Study):
    """A check-up of one pair. Its rows are findings, added one by one."""

    def __init__(self, backend: Backend, request: CheckUpRequest) -> None:
        super().__init__(())
        self._backend, self._request = backend, request

    def work(self) -> None:
        self._progress("Reading the files.", None)
        for finding in self._backend.check_up(self._request, self._progress):
            self.rows.append(finding)
        self.is_complete = True

    def frame(self) -> dict[str, Any]:
        request, findings = self._request, tuple(self.rows)
        about = self._backend.examined(request)
        return {
            "servers": about.pop("servers", None),
            "share": None if self.state in ENDED else self.share,
            "params": {name: getattr(request.params, name) for name in ("temperature", "seed", "max_new_tokens")},
            "chat": request.as_messages,
            "report": findings_report(findings, about),
            "races": {finding.prompt: self._race(finding.prompt) for finding in findings if finding.prompt is not None},
        }

    def _race(self, index: int) -> dict[str, Any] | None:
        """The settings that race this prompt on the page as the check-up did; None for a conversation, which the prompt
        box cannot hold, and for a turn as long as it is not known whether the model has a chat template."""
        request, prompt = self._request, self._request.prompts[index]
        roles, params = [role for role, _ in prompt.messages], request.params
        if roles not in ([], ["user"]) or (roles and request.pair.chat is None):
            return None
        return {
            "prompt": prompt.text,
            "chat": bool(roles and request.pair.chat),
            "drafter": request.drafter,
            "k": str(K),
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": params.seed + index,
            "max_new_tokens": params.max_new_tokens,
            "rule": "coupled",
        }


class LoadStudy(Study):
    """A study of servers under load, on a thread with its own event loop. servers: their id."""

    def __init__(self, plan: Plan, servers: str) -> None:
        super().__init__(())
        self._plan, self._servers = plan, servers
        self.share = 0.0
        self._kinds: dict[str, str] = {}
        self._said = self._plan.said({})
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """End it now."""
        super().stop()
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)

    def work(self) -> None:
        asyncio.run(self._serve())
        self.is_complete = True

    async def _serve(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._progress("Setting up.", 0.0)
        self._kinds = await kinds_of(self._plan.endpoints)
        await run(self._plan, self._progress, self._add)

    def _add(self, row: Level, _: Outcome) -> None:
        self.rows.append(row)
        self._said = self._plan.said(self._kinds)  # with the time at which it was measured

    def frame(self) -> dict[str, Any]:
        plan = self._plan
        rows = sorted(self.rows, key=lambda row: plan.keys.index((row["lane"], row["concurrency"])))
        lanes = [endpoint.lane for endpoint in plan.endpoints]
        return {
            "servers": self._servers,
            "share": self.share,
            "lanes": lanes,
            "model": plan.endpoints[0].model,
            "temperature": plan.params.temperature,
            "max_new_tokens": plan.params.max_new_tokens,
            "seed": plan.params.seed,
            "chat": bool(plan.questions[0].messages),
            "report": load_report(rows, lanes, self._said) if rows else None,
        }
