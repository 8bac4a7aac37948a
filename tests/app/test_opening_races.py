"""What a page with a GPU opens with: the head that raced fastest on this card, with its ratio; after a visitor's first
race the other kinds race by themselves, and never in a visitor's way."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.catalogue.catalogue import CODE, load, load_pairs
from app.catalogue.machine import Machine
from app.catalogue.request import RaceRequest, read_request
from app.jobs.backend import TorchBackend
from app.jobs.races import Stage
from app.page.controls import pair_choices, preset_values
from app.page.handlers import Handlers
from app.page.opening_races import HEADS, OpeningRaces
from engine.cache import ENVIRONMENT_VARIABLE
from engine.core.errors import UsageError
from tests.helpers.machines import LARGE
from tests.helpers.races import a_race
from tests.helpers.staged import StagedBackend, StagedRace, in_loop, until

CARD = replace(LARGE, card="a card, torch 2")
EAGLE3, DFLASH = "qwen3-8b-eagle3", "qwen3-8b-dflash"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))


class Backend(StagedBackend):
    """Races whose speculative steps take so long, by kind of head; plain ones take 0.01 s, and a step has 3 tokens.
    Before one of DFlash its head is loaded for `loads_s`."""

    def __init__(self, **seconds: float) -> None:
        super().__init__({})
        self.seconds, self.verdict, self.loads_s = {"eagle3": 0.015, "dflash": 0.01, "ngram": 0.01} | seconds, "", 0.0
        self.disturbed: set[str] = set()

    def prepare(self, order: Any, progress: Any) -> StagedRace:
        kind = order.spec.lanes[-1].drafter.partition(":")[0]
        self.recording = a_race([(3, 2)] * 8, step_s=self.seconds[kind])
        self.prepare_s = self.loads_s if kind == "dflash" else 0.0
        if self.verdict and kind == "dflash":
            self.recording["verdicts"]["speculative"]["kind"] = self.verdict
        self.recording |= {"waited_share": 0.7} if kind in self.disturbed else {}
        return super().prepare(order, progress)


class Page:
    """A page's stage on a machine, with what it opens with."""

    def __init__(self, backend: Backend, machine: Machine = CARD, drafter: str | None = None) -> None:
        self.backend, self.stage, self.offered = backend, Stage(backend), load(machine, drafter=drafter)
        self.races = OpeningRaces(self.stage, lambda: self.offered)

    @property
    def catalogue(self) -> Any:
        return self.offered.opening(self.races.ratios)

    def opening(self, pair_id: str = "") -> RaceRequest:
        """The race that somebody starts who changes nothing, or the model alone."""
        pair = self.catalogue.pair(pair_id) if pair_id else self.catalogue.default
        values = preset_values(self.catalogue, self.catalogue.presets[0], pair)
        return read_request(self.catalogue, {**values, "pair": pair.id})

    async def race(self, request: RaceRequest) -> None:
        """A visitor's race, watched to its end."""
        async with aclosing(self.stage.frames("a", "at a", request)) as frames:
            async for _ in frames:
                pass

    async def idle(self) -> None:
        await until(lambda: self.stage.queue.is_empty and (self.races._task is None or self.races._task.done()))

    @property
    def raced(self) -> list[str]:
        return [order.spec.lanes[-1].drafter.partition(":")[0] for order in self.backend.orders]


@in_loop
async def test_the_head_that_raced_fastest_opens_the_page() -> None:
    """The pair that opens would stay the slower one; or the page would claim a gain that nobody measured here."""
    page = Page(Backend())
    assert page.catalogue.default.id == EAGLE3 and page.catalogue.presets[0].id == CODE
    await page.race(page.opening())
    await page.idle()
    assert page.raced == ["eagle3", "eagle3", "dflash"], "a visitor's own race, then one of each head"
    default = page.catalogue.default
    assert default.id == DFLASH and page.opening().spec.lanes[-1].drafter == default.drafter
    ratio = page.races.ratios[DFLASH]
    assert (
        ratio == pytest.approx(1.5 * page.races.ratios[EAGLE3]) and f" {ratio:.2f}× on “Python class”" in default.note
    )
    await page.race(page.opening())
    await page.idle()
    assert len(page.backend.orders) == 4, "nothing is left to race"
    again = Handlers(load(CARD), TorchBackend())
    assert again.catalogue.default.id == DFLASH, "the cache has it"
    assert DFLASH in dict(map(reversed, pair_choices(again.catalogue)))
    other = Page(Backend(), replace(CARD, card="another card, torch 2"))
    assert other.catalogue.default.id == EAGLE3, "of another card it says nothing"


@in_loop
async def test_a_race_of_something_else_says_nothing_of_the_pair() -> None:
    """Another prompt's ratio would be shown as that of the opening example, or one of a page that a browser drew."""
    page = Page(Backend(eagle3=0.009))
    await page.race(replace(page.opening(), prompt="Why is the sky blue?"))
    await page.idle()
    assert page.raced == ["eagle3", "eagle3", "dflash"], "both heads raced the example by themselves"
    assert page.catalogue.default.id == EAGLE3, "the faster one"


@in_loop
@pytest.mark.parametrize("verdict", ["different", "not_compared"])
async def test_a_head_that_fails_opens_no_page(verdict: str) -> None:
    """A page would open with a drafter that writes other tokens here; or race it after every visitor's race."""
    page = Page(Backend())
    page.backend.verdict = verdict
    for _ in range(2):
        await page.race(page.opening())
        await page.idle()
    assert page.catalogue.default.id == EAGLE3 and page.raced == ["eagle3", "eagle3", "dflash", "eagle3"]


@in_loop
async def test_a_ratio_that_its_race_warns_of_is_not_quoted() -> None:
    """A machine that was busy for a moment would choose the drafter, and the page show a number that is none."""
    page = Page(Backend())
    page.backend.disturbed = {"dflash"}
    await page.race(page.opening())
    await page.idle()
    assert page.raced == ["eagle3", "eagle3", "dflash"] and set(page.races.ratios) == {EAGLE3}
    assert page.catalogue.default.id == EAGLE3


@in_loop
async def test_a_race_by_itself_makes_room_for_a_visitor() -> None:
    """A visitor would wait for a race that nobody asked for."""
    page = Page(Backend())
    page.backend.loads_s = 60.0
    await page.race(page.opening())
    await until(lambda: page.raced == ["eagle3", "eagle3", "dflash"])
    page.backend.loads_s = 0.0
    await asyncio.wait_for(page.race(page.opening()), 20)
    await page.idle()
    assert page.raced == ["eagle3", "eagle3", "dflash", "eagle3", "dflash"], "it comes again once nobody waits"
    assert page.catalogue.default.id == DFLASH


@in_loop
@pytest.mark.parametrize(("machine", "drafter"), [(LARGE, None), (Machine(), None), (CARD, "ngram")])
async def test_nothing_races_by_itself_where_there_is_no_choice(machine: Machine, drafter: str | None) -> None:
    """A page on a CPU would race, and download, what nobody asked for; or an operator's drafter would be replaced."""
    page = Page(Backend(hybrid=0.01), machine, drafter)
    await page.race(page.opening())
    await page.idle()
    assert len(page.backend.orders) == 1 and not page.races.ratios


@in_loop
async def test_a_pair_that_is_not_offered_is_not_raced() -> None:
    """An operator who allows no more weights than the default pair's would find others downloaded."""
    page = Page(Backend())
    page.offered = load(CARD, pairs="loaded")
    with pytest.raises(UsageError, match="cannot run here"):
        page.catalogue.pair(DFLASH)
    await page.race(page.opening())
    await page.idle()
    assert page.raced == ["eagle3"]


def test_every_kind_of_head_is_a_shipped_pairs() -> None:
    """A renamed drafter would never race by itself."""
    assert set(HEADS) <= {pair.drafter.partition(":")[0] for pair in load_pairs()}


def test_pairs_of_one_target_think_alike() -> None:
    """Whether a model thinks would depend on the drafter that a visitor looked at before."""
    thinks: dict[str, set[bool | None]] = {}
    for pair in load_pairs():
        thinks.setdefault(pair.target, set()).add(pair.thinking)
    assert all(len(values) == 1 for values in thinks.values())
