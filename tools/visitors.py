"""Visit a public page of the default model as many people at once, and check what each of them gets.

    python -m tools.visitors --visitors 50 --minutes 10 --seed 1 > FILE

Starts a page with a file of limits. Visitors of 16 addresses, each a thread, load it, race (16 to 48 tokens), stop,
leave, reload, exceed the limits, study, open and export files, with pauses between.
Reported: how each race ended, error pages, whether the order was fair, and the page's health, memory, log and answering
times. Exit status 1: a race was lost, or an error page was seen.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from engine.analysis.metrics import percentile
from engine.cache import cache_dir
from engine.loading.default_model import NAME
from tests.helpers import ROOT
from tests.helpers.fuzz import rss_mb
from tests.helpers.pageserver import ORDER, Refused, Server, Visitor, served
from tools import about

LIMITS = "races_per_visitor = 2\nraces_per_address = 8\nmax_new_tokens = 256\n"
END_S = 180.0  # how long to wait for the device to be free at the end
SETTLED_S = 60.0  # memory counts from then on: at first, things are loaded once
ENDED = ("finished", "stopped", "failed")
PREDICT = "/gradio_api/run/predict"  # where status 400 is a refusal, too
TOO_OFTEN = 429  # the status of a refusal by the limits on requests
PROMPTS = (
    ORDER["prompt"],
    "name,age\nAda,36\nGrace,45\nAlan,41\n\nThe same as JSON:\n[",
    "Once upon a time there was a heron who",
    "SELECT name, born FROM people WHERE born > 1900;\nSELECT name, city FROM",
)
LENGTHS = (16, 24, 32, 48)
STUDY = {"name": "a.txt", "text": "la la la\nfa fa fa\n", "limit": 2, "max_new_tokens": 16, "flatten": False,
         "kept": None}  # fmt: skip
FILES = tuple(sorted((ROOT / "assets" / "races").glob("*.json"))[:3])
# What a visitor does next, and how often. crowd: one race more than a tab may have.
HABITS = {"race": 62, "stop": 8, "leave": 10, "reload": 6, "crowd": 4, "study": 3, "files": 7}


@dataclass
class Race:
    """A race as its visitor saw it, in seconds of time.time().

    asked, queued, begun: when it was asked for, first seen waiting, and first seen with the device. outcome, once it is
    complete: finished, stopped, abandoned, refused or lost; `why` in words."""

    asked: float = field(default_factory=time.time)
    queued: float | None = None
    begun: float | None = None
    outcome: str = ""
    why: str = ""
    id: str = ""
    state: str = ""

    def see(self, frame: dict[str, Any]) -> None:
        """One more frame."""
        now, self.id, self.state = time.time(), frame["race"], frame["state"]
        self.queued = self.queued or now
        if self.state != "waiting" and (self.state not in ENDED or frame["header"]):
            self.begun = self.begun or now
        if frame.get("complete"):
            self.end("lost" if self.state == "failed" else self.state, frame["status"]["text"])

    def end(self, outcome: str, why: str = "") -> None:
        """A race that is over stays as it is."""
        if not self.outcome:
            self.outcome, self.why = outcome, why


@dataclass
class Seen:
    """What all visitors have seen. problems: error pages, refusals without a sentence, programs that failed.
    did: how often each habit was followed."""

    races: list[Race] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)

    def note(self, answer: httpx.Response) -> None:
        """Count an answer. Raises Refused with what it says instead."""
        status, path = answer.status_code, answer.url.path
        self.statuses[status] += 1
        if status >= 400:
            text = answer.read().decode(errors="replace")
            if status == TOO_OFTEN or (status == 400 and path == PREDICT):
                said = json.loads(text)
                raise Refused(said.get("detail") or said["error"])
            self.problems.append(f"{answer.request.method} {path}: {status}: {text[:200]}")

    def client(self, url: str, address: str) -> httpx.Client:
        """A client from an address of this machine, whose answers are noted."""
        transport = httpx.HTTPTransport(local_address=address)
        return httpx.Client(base_url=url, transport=transport, timeout=60, event_hooks={"response": [self.note]})


class Person:
    """Comes, does one thing or more with pauses of `think_s` seconds on average, and goes at `until`."""

    def __init__(self, url: str, number: int, seed: int, think_s: float, until: float, seen: Seen) -> None:
        self._rng, self._url, self._seen = random.Random(f"{seed} {number}"), url, seen
        self._think_s, self._until = think_s, until
        self._client, self._key = seen.client(url, f"127.0.3.{number % 16 + 1}"), ""

    def visit(self) -> None:
        time.sleep(self._rng.uniform(0, self._think_s))
        self._open()
        is_over = False
        while not is_over:
            (habit,) = self._rng.choices([*HABITS], [*HABITS.values()])
            self._seen.did[habit] += 1
            try:
                getattr(self, f"_{habit}")()
            except Refused as refused:
                words = str(refused)
                if len(words.split()) < 4 or any(sign in words for sign in ("Error", "<", "a bug in Photofinish")):
                    self._seen.problems.append(f"refused without a sentence: {words[:200]}")
            except httpx.HTTPError as error:
                self._seen.problems.append(f"{habit}: {type(error).__name__}")
            time.sleep(max(0, min(self._until - time.time(), self._rng.expovariate(1 / self._think_s))))
            is_over = time.time() >= self._until

    def _open(self, raced: Race | None = None) -> None:
        """Open the page in a new tab. raced: goes on there, and is watched to its end."""
        page = self._client.get("/").text
        for asset in ("theme.css", *re.findall(r'"\./(assets/[\w.-]+)"', page)[:4]):
            self._client.get(f"/{asset}")
        self._tab = Visitor(self._url, "visitor", self._client)
        if raced:
            self._follow(race=raced)
        list(self._tab.events("model"))

    def _follow(
        self, until: Callable[[Race], bool] = lambda race: False, race: Race | None = None
    ) -> tuple[Race, bool]:
        """Watch a race until it is complete; and whether it was left at `until`, which closes its stream.

        race: goes on in this tab; without it, a new one is asked for."""
        if race is None:
            self._seen.races.append(race := Race())
            changes = {"max_new_tokens": self._rng.choice(LENGTHS), "audit": False}
            frames = self._tab.frames("race", {**ORDER, "prompt": self._rng.choice(PROMPTS), **changes})
        else:
            frames = self._tab.frames("resume", race=race.id)
        try:
            with closing(frames):
                for frame in frames:
                    race.see(frame)
                    if until(race):
                        return race, True
        except Refused as refused:
            race.end("lost" if race.queued else "refused", str(refused))
            raise
        return race, False

    def _moment(self) -> Callable[[Race], bool]:
        """Some moment of a race: while it waits, or while it has the device."""
        at, waits = time.time() + self._rng.uniform(0, 12), self._rng.random() < 0.4
        return lambda race: not race.outcome and (time.time() > at if waits else race.state == "running")

    # Habits

    def _race(self) -> None:
        """Race, and watch to the end of the extras; at times look at its figures."""
        race, _ = self._follow()
        if race.outcome == "finished":
            self._key = race.id
            if self._rng.random() < 0.2:
                self._look()

    def _look(self) -> None:
        """See the figures of one of the tabs."""
        functions = self._client.get("/config").json()["dependencies"]
        (number,) = (function["id"] for function in functions if function["api_name"] == "figures")
        event = {"tab": self._rng.choice(("charts", "why")), "request": "1", "key": self._key, "lane": "speculative"}
        call = {"data": [], "fn_index": number, "session_hash": self._tab.tab, "trigger_id": None, "event_data": event}
        self._client.post(PREDICT, json=call)

    def _crowd(self) -> None:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda _: self._follow(), range(3)))

    def _stop(self) -> None:
        """Press Stop at some moment, and watch what comes of it."""
        moment, pressed = self._moment(), []

        def press(race: Race) -> bool:
            if not pressed and moment(race):
                pressed.append(self._tab.stop())
            return False

        self._follow(press)

    def _leave(self) -> None:
        """Close the tab at some moment, and come back in another one."""
        race, left = self._follow(self._moment())
        if left:
            race.end("abandoned")
        self._open()

    def _reload(self) -> None:
        """Load the page again at some moment, and watch the race to its end there."""
        race, left = self._follow(self._moment())
        self._open(race if left else None)

    def _study(self) -> None:
        """Two prompts of one's own."""
        frame = [{"state": "", "text": ""}, *self._tab.frames("study", **STUDY)][-1]
        if frame["state"] != "finished":
            self._seen.problems.append(f"a study ended {frame['state']}: {frame['text']}")

    def _files(self) -> None:
        """Open a file, export it, save one's last race, look at a recorded one, count the tokens of a prompt."""
        answer = self._client.post("/recordings", content=self._rng.choice(FILES).read_bytes())
        if answer.status_code == 200:
            for form in ("html", "csv"):
                self._client.get(f"/recordings/{answer.json()['key']}.{form}")
        for key in filter(None, (self._key, "recorded-story")):
            self._client.get(f"/recordings/{key}.json")
        self._client.post("/tokens", json={"text": self._rng.choice(PROMPTS), "target": NAME})


def inversions(races: Iterable[Race]) -> int:
    """Pairs of races of which the later had the device first, though one waited before the other was asked for."""
    begun = [race for race in races if race.begun and race.queued]
    return sum(a.queued < b.asked and a.begun > b.begun for a in begun for b in begun)


def other_lines(log: Path) -> list[str]:
    """The warnings and errors in a page's log."""
    lines = log.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and " INFO " not in line and not line.startswith("* ")]


def crowd(server: Server, num: int, seconds: float, seed: int = 0, think_s: float = 45.0) -> dict[str, Any]:
    """Visit a page for so long; what came of it."""
    while httpx.get(f"{server.url}/healthz").status_code != 200:
        time.sleep(0.1)
    seen, began = Seen(), time.time()
    memory, answered = list[float](), list[float]()
    with ThreadPoolExecutor(num) as pool, seen.client(server.url, "127.0.3.99") as client:
        people = [Person(server.url, i, seed, think_s, began + seconds, seen) for i in range(num)]
        visits = [pool.submit(person.visit) for person in people]
        while True:
            asked, over = time.time(), all(visit.done() for visit in visits)
            client.get("/")
            answered.append(time.time() - asked)
            health = client.get("/healthz").json()
            if asked >= began + min(SETTLED_S, seconds / 2):
                memory.append(rss_mb(server))
            is_busy = health["queue_length"] or health["device_busy"]
            if over and (not is_busy or asked > began + seconds + END_S):
                break
            time.sleep(min(1.0, seconds / 4))
    for race in seen.races:
        race.end("lost", f"no end after {race.state}")
    seen.problems += [f"a visitor's program failed: {e!r}" for visit in visits if (e := visit.exception())]
    outcomes = Counter(race.outcome for race in seen.races)
    waited = [race.begun - race.queued for race in seen.races if race.begun and race.queued]
    return {
        "races": {"begun": sum(race.begun is not None for race in seen.races), **outcomes},
        "lost": outcomes["lost"],
        "why lost": [f"{race.why} ({race.id})" for race in seen.races if race.outcome == "lost"][:10],
        "refused": Counter(race.why for race in seen.races if race.outcome == "refused"),
        "habits": seen.did,
        "error pages": sum(num for status, num in seen.statuses.items() if status >= 500),
        "statuses": {str(status): num for status, num in sorted(seen.statuses.items())},
        "problems": seen.problems[:20],
        "started out of turn": inversions(seen.races),
        "wait s": {"median": percentile(waited, 0.5), "p90": percentile(waited, 0.9)},
        "device still busy": bool(is_busy),
        "answered s": {"p50": percentile(answered, 0.5), "p95": percentile(answered, 0.95)},
        "rss growth mb": {"to the end": memory[-1] - memory[0], "to the most": max(memory) - memory[0]},
        "log": other_lines(server.log)[:5],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visitors", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options, circumstances = parser.parse_args(), about()
    with tempfile.TemporaryDirectory() as folder:
        limits = Path(folder, "limits.toml")
        limits.write_text(LIMITS)
        arguments = "--target", NAME, "--limits", str(limits)
        with served(cache_dir(), *arguments, script=("app.py",), log=Path(folder, "log")) as server:
            result = crowd(server, options.visitors, 60 * options.minutes, options.seed)
    print(json.dumps({**circumstances, **result}, indent=1))
    return 1 if result["lost"] or result["error pages"] or result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
