"""Races without a model, for tests of the stage: real events of a recording, handed out at a pace of our choosing, by a
backend that counts who runs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from functools import wraps
from typing import Any, Self

from app.catalogue.catalogue import load_pairs
from app.catalogue.request import RaceRequest
from app.jobs.frames import ENDED
from app.jobs.races import Stage
from app.jobs.studies import Studies
from engine.core.events import LaneEvent
from tests.helpers.races import events_of, fixed_race, spec_of


class StagedRace:
    """A race whose steps take `step_s` each."""

    def __init__(self, backend: StagedBackend) -> None:
        self._backend = backend

    def header(self) -> dict[str, Any]:
        skipped = ("schema", "format", "events", "verdicts")
        return {key: value for key, value in self._backend.recording.items() if key not in skipped}

    def events(self) -> Iterator[LaneEvent]:
        backend = self._backend
        with backend.lock:
            backend.running += 1
            backend.most = max(backend.most, backend.running)
        try:
            for event in events_of(backend.recording):
                time.sleep(backend.step_s)
                yield event
                backend.fail()
        finally:
            with backend.lock:
                backend.running -= 1

    def result(self) -> dict[str, Any]:
        return {"verdicts": self._backend.recording["verdicts"]}


class StagedBackend:
    """Prepares StagedRaces. `running`: how many have begun and not ended; `most`: the most there ever were."""

    def __init__(self, recording: dict[str, Any], step_s: float = 0.0, prepare_s: float = 0.0) -> None:
        self.recording, self.step_s, self.prepare_s = recording, step_s, prepare_s
        self.fail: Callable[[], None] = lambda: None
        self.running = self.most = 0
        self.lock = threading.Lock()
        self.orders: list[Any] = []
        self.members: dict[str, Any] = {}
        self.num_positions, self.position_s, self.asked = 0, 0.01, 0

    def of(self, pair: Any) -> Self:
        return self

    def extras(self, race: Any, progress: Callable[[str, float | None], None]) -> dict[str, Any]:
        """`members`, after as many positions; `asked` counts them."""
        for position in range(self.num_positions):
            progress("asking the drafters", position / self.num_positions)
            time.sleep(self.position_s)
            self.asked += 1
        return self.members

    def prepare(self, order: Any, progress: Callable[[str, float | None], None]) -> StagedRace:
        self.orders.append(order)
        ends = time.monotonic() + self.prepare_s
        while time.monotonic() < ends:
            progress("preparing something", 0.5)
            time.sleep(0.01)
        return StagedRace(self)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test in an event loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(test(*arguments, **options))

    return run


ORDER = RaceRequest("an order", "", False, load_pairs()[0], spec_of(fixed_race()))


async def watch(stage: Stage | Studies, visitor: str, order: Any = ORDER) -> list[dict[str, Any]]:
    """All frames of this visitor's race, study or check-up."""
    async with aclosing(stage.frames(visitor, f"at {visitor}", order)) as frames:
        return [json.loads(text) async for text in frames]


def over(frames: list[dict[str, Any]]) -> dict[str, Any]:
    """The first frame after the race's end, which has its recording."""
    return next(frame for frame in frames if frame["state"] in ENDED)


async def until(holds: Callable[[], Any], seconds: float = 20) -> None:
    """Return once `holds()` is true, which it must become within this time."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it never happened"
        await asyncio.sleep(0.005)
