"""What one simulated visitor does, drawn by a seed: races most of the time, and everything that people do besides."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from contextlib import aclosing

import httpx

from engine.loading.default_model import NAME
from tests.helpers import ROOT
from tests.helpers.pageserver import ORDER

from .tab import Gone, Race, Refused, Seen, Tab

PROMPTS = (
    ORDER["prompt"],
    "name,age\nAda,36\nGrace,45\nAlan,41\n\nThe same as JSON:\n[",
    "Once upon a time there was a heron who",
    "SELECT name, born FROM people WHERE born > 1900;\nSELECT name, city FROM",
)
LENGTHS = (16, 24, 32, 48)
STUDY = {"name": "a.txt", "text": "la la la\nfa fa fa\n", "limit": 2, "max_new_tokens": 16, "flatten": False,
         "whole": False, "kept": None, "look": False}  # fmt: skip
FILES = (*sorted((ROOT / "assets" / "races").glob("*.json"))[:3],)
# What a visitor does next, and how often. crowd: one race more than a tab may have.
HABITS = (("race", 62), ("stop", 8), ("leave", 10), ("reload", 6), ("crowd", 4), ("study", 3), ("files", 7))


class Visitor:
    """Comes, does what it likes with pauses of `think_s` seconds on average, and goes at `until`."""

    def __init__(self, url: str, number: int, seed: int, think_s: float, until: float, seen: Seen):
        self._rng, self._think_s, self._until, self._seen = random.Random(f"{seed} {number}"), think_s, until, seen
        transport = httpx.AsyncHTTPTransport(local_address=f"127.0.3.{number % 16 + 1}")
        self._client = httpx.AsyncClient(base_url=url, transport=transport, timeout=60)
        self._key = ""

    async def run(self) -> None:
        async with self._client:
            await asyncio.sleep(self._rng.uniform(0, self._think_s))
            tab = await self._new_tab()
            names, weights = zip(*HABITS, strict=True)
            while time.time() < self._until:
                habit = self._rng.choices(names, weights)[0]
                if habit != "study" or "study" in tab.functions:
                    self._seen.did[habit] += 1
                    try:
                        tab = await getattr(self, f"_{habit}")(tab) or tab
                    except Refused as refused:
                        self._check(str(refused))
                    except Gone:
                        tab = await self._new_tab()
                left = self._until - time.time()
                await asyncio.sleep(max(0, min(left, self._rng.expovariate(1 / self._think_s))))

    async def _new_tab(self, raced: Race | None = None) -> Tab:
        """Open the page. raced: goes on there, and is watched to its end."""
        tab = Tab(self._client, f"{self._rng.getrandbits(55):011x}", self._seen)
        await tab.open()
        if raced is None:
            await tab.call("resume", "")
        else:
            await self._follow(tab, {await tab.join("resume", raced.id): raced}, lambda race: False)
        await tab.call("model")
        return tab

    def _check(self, refusal: str) -> None:
        if len(refusal.split()) < 4 or "Error" in refusal or "<" in refusal:
            self._seen.problems.append(f"refused without a sentence: {refusal[:200]}")

    async def _order(self, tab: Tab, races: dict[str, Race]) -> Race:
        order = {"pair": tab.pair, "prompt": self._rng.choice(PROMPTS), "max_new_tokens": self._rng.choice(LENGTHS)}
        race = Race()
        try:
            races[await tab.join("race", *{**ORDER, "audit": False, **order}.values())] = race
        except Refused as refused:
            race.end("refused", str(refused))
        self._seen.races.append(race)
        return race

    async def _follow(self, tab: Tab, races: dict[str, Race], until: Callable[[Race], bool]) -> bool:
        """Watch races until the page has said everything, or until `until`: then the tab is closed."""
        async with aclosing(tab.follow(races)) as news:
            async for race in news:
                if until(race):
                    return True
        for race in races.values():
            if race.outcome == "refused":
                self._check(race.why)
        return False

    async def _race(self, tab: Tab, num: int = 1) -> None:
        """Race, and watch to the end and to the end of its extras; at times look at its figures."""
        races: dict[str, Race] = {}
        raced = [await self._order(tab, races) for _ in range(num)]
        await self._follow(tab, races, lambda race: False)
        if raced[0].outcome == "finished":
            self._key = raced[0].id
            await tab.call("model_now")
            await tab.call("extras")
            if self._rng.random() < 0.2:
                await tab.call("charts", event={"request": "1", "key": self._key, "lane": "speculative"})

    async def _crowd(self, tab: Tab) -> None:
        await self._race(tab, 3)

    def _moment(self) -> Callable[[Race], bool]:
        """Some moment of a race: while it waits, or while it has the device."""
        at, waits = time.time() + self._rng.uniform(0, 12), self._rng.random() < 0.4
        return lambda race: not race.outcome and (time.time() > at if waits else race.state == "running")

    async def _stop(self, tab: Tab) -> None:
        """Press Stop at some moment, and watch what comes of it."""
        races: dict[str, Race] = {}
        await self._order(tab, races)
        moment, pressed = self._moment(), []
        async with aclosing(tab.follow(races)) as news:
            async for race in news:
                if not pressed and moment(race):
                    pressed.append(True)
                    await tab.ask("POST", "/gradio_api/run/stop", json={"data": [], "session_hash": tab.session})

    async def _leave(self, tab: Tab) -> Tab:
        """Close the tab at some moment, and come back in another one."""
        races: dict[str, Race] = {}
        race = await self._order(tab, races)
        if await self._follow(tab, races, self._moment()):
            race.end("abandoned")
            race.left = race.over
        return await self._new_tab()

    async def _reload(self, tab: Tab) -> Tab:
        """Load the page again at some moment, and watch the race to its end there."""
        races: dict[str, Race] = {}
        race = await self._order(tab, races)
        left = await self._follow(tab, races, self._moment())
        return await self._new_tab(race if left else None)

    async def _study(self, tab: Tab) -> None:
        """Two prompts of one's own."""
        frame, began = {"state": "", "text": ""}, False
        async for text in tab.values("study", tab.pair, "ngram", 0, 1, 0, [], event=STUDY):
            before, frame = frame, json.loads(text)
            if frame["state"] == "racing" != before["state"]:
                self._seen.turns.append(time.time())
                began = True
        self._seen.studies[frame["state"] if began else "refused"] += 1
        if not began:
            self._check(frame["text"])
        elif frame["state"] != "finished":
            self._seen.problems.append(f"a study ended {frame['state']}: {frame['text']}")

    async def _files(self, tab: Tab) -> None:
        """Open a file, export it, save one's last race, look at a recorded one, count the tokens of a prompt."""
        data = self._rng.choice(FILES).read_bytes()
        answer = await tab.ask("POST", "/recordings", content=data)
        if answer.status_code == 200:
            for form in ("html", "csv"):
                await tab.ask("GET", f"/recordings/{answer.json()['key']}.{form}")
        for key in filter(None, (self._key, "recorded-story")):
            await tab.ask("GET", f"/recordings/{key}.json")
        await tab.ask("POST", "/tokens", json={"text": self._rng.choice(PROMPTS), "target": NAME})
