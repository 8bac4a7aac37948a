"""Races of many prompts with one model, one after the other: the loop of bench, of studies and of the check-up's trial,
and what they read from each race."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

from ..analysis.metrics import disturbance, num_tokens_of, race_speedups
from ..analysis.same import are_same
from ..core.errors import RaceError
from ..core.events import Failed, LaneEvent, Prompt, steps
from ..core.spec import BASELINE, SPECULATIVE, RaceSpec
from ..progress import Progress, collected, silent
from .torch_race import TorchRace

if TYPE_CHECKING:
    from ..loading.loading import LoadedModel

Figures = TypeVar("Figures")
# Decodes a prompt's token ids by other means than a lane, and writes so many tokens.
Peer = Callable[[Sequence[int], int], Any]
OURS = ""  # the race itself, among the names of its peers


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

    def __init__(
        self, entry: Entry, race: TorchRace, events: Sequence[LaneEvent], repeat: int = 0, tell: Progress = silent
    ) -> None:
        self.entry, self.race, self.events, self.repeat, self.tell = entry, race, events, repeat, tell
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
        return are_same(self.verdicts[lane]["kind"])

    def difference(self, lane: str) -> str:
        """How a drafting lane's tokens differ from the baseline's, or ""."""
        return f"{self.entry.name}: {self.verdicts[lane]['sentence']}" if self.is_identical(lane) is False else ""

    def fault(self, lane: str) -> str:
        """Why nothing may be quoted of a lane, or "": it failed, or differs although the race's widths are exact."""
        if lane in self.failed:
            return f"{self.entry.name}: lane {lane} failed: {self.failed[lane]}"
        return self.difference(lane) if lane in self.gains and self.race.widths.plan.exact else ""


def run_prompts(
    loaded: LoadedModel,
    entries: Sequence[Entry],
    read: Callable[[Raced], Figures],
    failed: Callable[[Entry, RaceError], Figures] | None = None,
    peers: Mapping[str, Peer] | None = None,
    repeats: int = 1,
    num_done: int = 0,
    progress: Progress = silent,
) -> Iterator[tuple[Figures, dict[str, Any]]]:
    """Race every entry, then every entry again, `repeats` times; in every second repeat the other way round, so that a
    machine that gets warmer or slower treats all lanes alike. Yields, when each is over, what was read from the race,
    and what each peer returned, or the RaceError that it raised.

    read: called with each finished race, which is let go before anything else runs.
    failed: called instead where a race raises a RaceError; without it the error is raised.
    peers: run after the race, or before it the other way round; each writes as many tokens as the baseline did.
    num_done: races that are over already, for the progress.
    progress: may raise to give up, also between two steps."""
    began, total = time.monotonic(), num_done + repeats * len(entries)
    turns, written = [OURS, *(peers or {})], dict[str, int]()
    for number, (repeat, entry) in enumerate(product(range(repeats), entries)):
        where = f"prompt {num_done + number + 1} of {total}"
        if number:
            where += f", {_left((time.monotonic() - began) / number * (total - num_done - number))}"
        tell = partial(_tell, progress, where, (num_done + number) / total)
        by_peer: dict[str, Any] = {}
        for name in reversed(turns) if repeat % 2 else turns:
            if name == OURS:
                try:
                    figures, written[entry.name] = _race(loaded, entry, repeat, read, tell)
                except RaceError as error:
                    if failed is None:
                        raise
                    figures = failed(entry, error)
            elif peers and written.get(entry.name):
                try:
                    by_peer[name] = peers[name](entry.prompt.token_ids, written[entry.name])
                except RaceError as error:
                    by_peer[name] = error
        yield figures, by_peer


def other_way_round(spec: RaceSpec) -> RaceSpec:
    """The drafting lanes in reverse, before the others: `synthetic` is decoded at the width of the last lane, which
    must be an exact one."""
    drafting = [lane for lane in spec.lanes if lane.role == SPECULATIVE]
    return replace(spec, lanes=(*reversed(drafting), *(lane for lane in spec.lanes if lane not in drafting)))


def _race(
    loaded: LoadedModel, entry: Entry, repeat: int, read: Callable[[Raced], Figures], tell: Progress
) -> tuple[Figures, int]:
    """What is read from the race, and how many tokens its baseline wrote."""
    spec = other_way_round(entry.spec) if repeat % 2 else entry.spec
    race = TorchRace(loaded, spec, entry.prompt, tell, entry.room)
    events = collected(race.events(), tell)
    return read(Raced(entry, race, events, repeat, tell)), num_tokens_of(steps(events, BASELINE))


def _tell(progress: Progress, where: str, share: float, stage: str, _: float | None) -> None:
    progress(f"{where}: {stage}", share)


def _left(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
