"""On a GPU, the drafter that a page opens with: the fastest in a race of the opening example on this card.

After a visitor's first race every kind of head races it once by itself, unwatched and as long as nobody waits, with the
settings that the page opens with for that pair. A race that warns of its ratio does not count."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress

from engine.analysis.metrics import race_speedups
from engine.cache import read_json, write_json
from engine.core.errors import UsageError
from engine.core.spec import SPECULATIVE
from engine.recordings.recording import Recording, failures, faults

from ..catalogue.catalogue import Catalogue, Pair
from ..catalogue.request import RaceRequest, read_request
from ..jobs.frames import RaceView
from ..jobs.logs import RUNNING
from ..jobs.races import Stage
from .controls import preset_values

KEPT = "opening_races.json"  # name in the cache, of ratios by the pairs' ids, by card
HEADS = ("eagle3", "dflash")


class OpeningRaces:
    """Which draft head is fastest for the default target. stage: runs the races. catalogue: what is on offer, as if
    none had raced. To be used from one event loop, but for `ratios`."""

    def __init__(self, stage: Stage, catalogue: Callable[[], Catalogue]) -> None:
        self._stage, self._catalogue = stage, catalogue
        self._card, self._ratios = "", dict[str, float]()
        self._running: RaceRequest | None = None
        self._faulty = set[str]()  # pairs that would fail again
        self._task: asyncio.Task[None] | None = None
        stage.then = self._ended

    @property
    def ratios(self) -> dict[str, float]:
        """Ratios of this card's races, by the pairs' ids."""
        if (card := self._catalogue().card) != self._card:
            kept = ((read_json(KEPT) or {}).get(card) or {}).items()
            self._ratios = {pair: ratio for pair, ratio in kept if isinstance(ratio, float)}
            self._card = card
        return self._ratios

    def _ended(self, request: RaceRequest, view: RaceView) -> None:
        """Note the page's own race; after a visitor's that ran to its end, those that are missing run."""
        if request is self._running:
            self._running = None
            ratio = _ratio(view.recording) if view.state == "finished" and view.recording else None
            if ratio is not None:
                self.ratios[request.pair.id] = ratio
                write_json(KEPT, (read_json(KEPT) or {}) | {self._card: self.ratios})
            elif view.state != "stopped":
                self._faulty.add(request.pair.id)
        elif view.state == "finished" and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._race_missing())

    async def _race_missing(self) -> None:
        """Race the heads that have not raced here, until somebody waits."""
        for pair in self._rivals():
            if pair.id in self.ratios or pair.id in self._faulty:
                continue
            visitor, self._running = f"opening {pair.id}", self._request(pair)
            RUNNING.info("the page races %s by itself: is it faster on %s?", pair.title, self._card)
            with suppress(UsageError):  # the queue is full, or the page ends
                async with aclosing(self._stage.frames(visitor, visitor, self._running, patient=True)) as frames:
                    async for _ in frames:
                        if self._running is None:
                            break
            self._stage.stop(visitor)  # its extras are for nobody
            if pair.id not in self.ratios:
                return

    def _rivals(self) -> list[Pair]:
        """The first pair with each kind of head for the default target; none where there is one kind, where the CPU
        races, or where the drafter was named by the operator."""
        catalogue = self._catalogue()
        if not catalogue.card or catalogue.default.named:
            return []
        rivals = [pair for pair in reversed(catalogue.runnable) if pair.target == catalogue.default.target]
        firsts = {pair.drafter.partition(":")[0]: pair for pair in rivals}
        return [firsts[kind] for kind in HEADS] if firsts.keys() >= set(HEADS) else []

    def _request(self, pair: Pair) -> RaceRequest:
        """The race that the page opens with for this pair."""
        catalogue = self._catalogue()
        return read_request(catalogue, {**preset_values(catalogue, catalogue.presets[0], pair), "pair": pair.id})


def _ratio(recording: Recording) -> float | None:
    """How much faster the drafting lane was than plain decoding; None if it failed, wrote other tokens, or looped, or
    if the machine was disturbed. (To copy is the example's task.)"""
    warnings = {caution["kind"] for caution in recording["cautions"]} - {"copies"}
    is_good = not (failures(recording) or faults(recording) or warnings)
    return race_speedups(recording.events, recording.spec.lanes).get(SPECULATIVE) if is_good else None
