"""Visit a public page of the default model as many people at once, and check what becomes of their races.

    python -m tools.visitors --visitors 50 --minutes 10 --seed 1 > FILE

Starts a page with a file of limits. Visitors of 16 addresses, each a thread, race (16 to 48 tokens), press Stop, leave
or reload, with pauses between.
Reported: how each race ended, refusals, errors, whether the order was fair, and the page's memory, log and answering
times. Exit status 1: a race was lost, or something failed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from engine.analysis.metrics import percentile
from engine.cache import cache_dir
from engine.loading.default_model import NAME
from tests.helpers.fuzz import rss_mb
from tests.helpers.pageserver import ORDER, Refused, Server, Visitor, served
from tools import about

LIMITS = "races_per_visitor = 2\nraces_per_address = 8\nmax_new_tokens = 256\n"
SETTLED_S = 60.0  # memory counts from then on: at first, things are loaded once
PROMPTS = (
    ORDER["prompt"],
    "name,age\nAda,36\nGrace,45\nAlan,41\n\nThe same as JSON:\n[",
    "Once upon a time there was a heron who",
    "SELECT name, born FROM people WHERE born > 1900;\nSELECT name, city FROM",
)
HABITS = {"watch": 76, "stop": 8, "leave": 10, "reload": 6}  # what a visitor does during a race, and how often


@dataclass
class Race:
    """A race as its visitor saw it, in seconds of time.time().

    asked, queued, begun: when it was asked for, first seen waiting, and first seen with the device.
    outcome: finished, stopped, left, refused or lost; `why` in words."""

    asked: float = field(default_factory=time.time)
    queued: float | None = None
    begun: float | None = None
    outcome: str = "lost"
    why: str = ""

    def see(self, frame: dict[str, Any]) -> None:
        self.queued = self.queued or time.time()
        if frame["state"] in ("preparing", "running"):
            self.begun = self.begun or time.time()
        if frame.get("complete") and frame["state"] != "failed":
            self.outcome = frame["state"]
        self.why = frame["status"]["text"]


def visit(url: str, number: int, seed: int, until: float, think_s: float) -> list[Race]:
    """Come, race one or more times with pauses of `think_s` seconds on average, and go at `until`."""
    rng, races = random.Random(f"{seed} {number}"), []
    transport = httpx.HTTPTransport(local_address=f"127.0.3.{number % 16 + 1}")
    with httpx.Client(transport=transport, timeout=60) as client:
        time.sleep(rng.uniform(0, think_s))
        while not races or time.time() < until:
            client.get(url).raise_for_status()
            races.append(race := Race())
            try:
                _race(Visitor(url, "visitor", client), race, rng)
            except Refused as refused:
                race.outcome, race.why = "lost" if race.queued else "refused", str(refused)
            time.sleep(max(0, min(until - time.time(), rng.expovariate(1 / think_s))))
    return races


def _race(tab: Visitor, race: Race, rng: random.Random) -> None:
    """A race; at some moment of it, what one of the habits says."""
    (habit,) = rng.choices([*HABITS], [*HABITS.values()])
    moment = time.time() + rng.uniform(0, 12)
    settings = {**ORDER, "prompt": rng.choice(PROMPTS), "max_new_tokens": rng.choice((16, 24, 32, 48)), "audit": False}
    with closing(tab.frames("race", settings)) as frames:
        for frame in frames:
            race.see(frame)
            if habit == "watch" or time.time() < moment or race.outcome != "lost":
                continue
            if habit != "stop":
                break
            tab.stop()
            habit = "watch"
    if race.outcome == "lost" and habit == "leave":
        race.outcome = "left"
    elif race.outcome == "lost" and habit == "reload":
        for later in Visitor(tab.url, "visitor", tab.client).frames("resume", race=frame["race"]):
            race.see(later)


def inversions(races: Iterable[Race]) -> int:
    """Pairs of races of which the later had the device first, though one waited before the other was asked for."""
    begun = [(race.asked, race.queued, race.begun) for race in races if race.begun and race.queued]
    return sum(queued < asked and late > early for _, queued, late in begun for asked, _, early in begun)


def crowd(server: Server, num: int, seconds: float, seed: int, think_s: float = 45.0) -> dict[str, Any]:
    """Visit a page for so long; what came of it."""
    while httpx.get(f"{server.url}/healthz").status_code != 200:
        time.sleep(0.1)
    began, memory, answered = time.time(), list[float](), list[float]()
    with ThreadPoolExecutor(num) as pool:
        visits = [pool.submit(visit, server.url, i, seed, began + seconds, think_s) for i in range(num)]
        while not all(visit.done() for visit in visits):
            asked = time.time()
            httpx.get(server.url).raise_for_status()
            answered.append(time.time() - asked)
            if asked >= began + min(SETTLED_S, seconds / 2):
                memory.append(rss_mb(server))
            time.sleep(min(1.0, seconds / 4))
    failed = [repr(error) for visit in visits if (error := visit.exception())]
    races = [race for visit in visits if not visit.exception() for race in visit.result()]
    waited = [race.begun - race.queued for race in races if race.begun and race.queued]
    lines = server.log.read_text(encoding="utf-8").splitlines()
    return {
        "races": Counter(race.outcome for race in races),
        "why lost": [race.why for race in races if race.outcome == "lost"],
        "refused": Counter(race.why for race in races if race.outcome == "refused"),
        "failed": failed,
        "started out of turn": inversions(races),
        "wait s": {"median": percentile(waited, 0.5), "p90": percentile(waited, 0.9)},
        "answered s": {"p50": percentile(answered, 0.5), "p95": percentile(answered, 0.95)},
        "rss growth mb": {"to the end": memory[-1] - memory[0], "to the most": max(memory) - memory[0]},
        "log": [line for line in lines if line and " INFO " not in line and not line.startswith("* ")][:5],
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
    return 1 if result["why lost"] or result["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
