"""Races of many prompts with one model, one after the other: the loop of studies and of the check-up's trial, and what
they read from each race."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..analysis.metrics import disturbance, race_speedups
from ..analysis.verdict_words import VERDICTS
from ..core.errors import RaceError
from ..core.events import Failed, LaneEvent, Prompt
from ..core.spec import RaceSpec
from ..progress import Progress, collected, silent
from .torch_race import TorchRace

if TYPE_CHECKING:
    from ..loading.loading import LoadedModel

Figures = TypeVar("Figures")


@dataclass(frozen=True)
class Entry:
    """A prompt, its name in sentences and its kind, and the race to run on it. room: see `TorchRace`."""

    name: str
    kind: str
    prompt: Prompt
    spec: RaceSpec
    room: int = 0


class Raced:
    """A race that is over. tell: the progress of whoever reads it."""

    def __init__(self, entry: Entry, race: TorchRace, events: Sequence[LaneEvent], tell: Progress = silent) -> None:
        self.entry, self.race, self.events, self.tell = entry, race, events, tell
        self.gains = race_speedups(events, race.spec.lanes)
        self.failed = {event.lane: event.event.message for event in events if isinstance(event.event, Failed)}

    @cached_property
    def verdicts(self) -> dict[str, Any]:
        return self.race.result()["verdicts"]

    @property
    def is_disturbed(self) -> bool:
        return bool(disturbance(self.events, self.race.waited_share))

    def is_identical(self, lane: str) -> bool | None:
        """Whether a drafting lane wrote the baseline's tokens; None if they were not compared to the end."""
        return VERDICTS[self.verdicts[lane]["kind"]].is_same

    def fault(self, lane: str) -> str:
        """Why nothing may be quoted of a drafting lane, or "": it failed, or differs from the baseline although the
        race's widths are exact."""
        if lane in self.failed:
            return f"{self.entry.name}: lane {lane} failed: {self.failed[lane]}"
        if self.race.widths.plan.exact and self.is_identical(lane) is False:
            return f"{self.entry.name}: {self.verdicts[lane]['sentence']}"
        return ""


def run_prompts(
    loaded: LoadedModel,
    entries: Sequence[Entry],
    read: Callable[[Raced], Figures],
    failed: Callable[[Entry, RaceError], Figures] | None = None,
    num_done: int = 0,
    progress: Progress = silent,
) -> Iterator[Figures]:
    """Race every entry. Yields, when each race is over, what was read from it.

    read: called with each finished race, which is let go before anything else runs.
    failed: called instead where a race raises a RaceError; without it the error is raised.
    num_done: races that are over already, for the progress.
    progress: may raise to give up, also between two steps."""
    began, total = time.monotonic(), num_done + len(entries)
    for number, entry in enumerate(entries):
        where = f"prompt {num_done + number + 1} of {total}"
        if number:
            where += f", {_left((time.monotonic() - began) / number * (len(entries) - number))}"
        tell = partial(_tell, progress, where, (num_done + number) / total)
        try:
            figures = _race(loaded, entry, read, tell)
        except RaceError as error:
            if failed is None:
                raise
            figures = failed(entry, error)
        yield figures


def _race(loaded: LoadedModel, entry: Entry, read: Callable[[Raced], Figures], tell: Progress) -> Figures:
    race = TorchRace(loaded, entry.spec, entry.prompt, tell, entry.room)
    return read(Raced(entry, race, collected(race.events(), tell), tell))


def _tell(progress: Progress, where: str, share: float, stage: str, _: float | None) -> None:
    progress(f"{where}: {stage}", share)


def _left(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
