"""What the visitors saw, next to what the page's log says, in numbers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from .tab import Race, Seen
from .watch import Watch

LEAST_S = 3.0  # an announced wait and a real one count as this long if they are shorter: nobody minds
SETTLED_S = 60.0  # memory counts from then on: at first, things are loaded once


def inversions(races: Iterable[Race]) -> int:
    """Pairs of races of which the later one had the device first: one was seen waiting before the other was even asked
    for, and began after it."""
    begun = [race for race in races if race.begun and race.queued]
    return sum(
        a.queued < b.asked and a.begun > b.begun  # type: ignore[operator]
        for a in begun
        for b in begun
    )


def waits(races: Iterable[Race], starts: list[float]) -> dict[str, Any]:
    """How true the announced places and seconds were. starts: when races and prompts of studies had the device."""
    ratios, first, places, rose, unknown, num = [], [], [], 0, 0, 0
    for race in races:
        seen = [place for _, place, _ in race.said]
        rose += any(later > earlier for earlier, later in pairwise(seen))
        if race.begun is None or not race.said:
            continue
        of_race = []
        for at, _, seconds in race.said:
            num += 1
            unknown += seconds is None
            if seconds is not None and max(seconds, race.begun - at) >= LEAST_S:
                of_race.append(max(seconds, LEAST_S) / max(race.begun - at, LEAST_S))
        ratios += of_race
        first += of_race[:1]
        at, place, _ = race.said[0]
        places.append(place / (1 + sum(at < start < race.begun - 0.25 for start in starts)))
    return {
        "announcements": num,
        "without seconds": unknown,
        "places that rose": rose,
        "first place / races that really came first": spread(places),
        "announced / real seconds, all": spread(ratios),
        "announced / real seconds, first of each race": spread(first),
    }


def spread(ratios: list[float]) -> dict[str, Any]:
    if not ratios:
        return {"num": 0}
    off = sorted(max(ratio, 1 / ratio) for ratio in ratios)
    return {
        "num": len(ratios),
        "within a factor of 2": share(sum(ratio <= 2 for ratio in off), len(off)),
        "median": round(statistics.median(ratios), 3),
        "p90 of the factor off": round(quantile(off, 0.9), 3),
        "most": round(max(ratios), 2),
        "least": round(min(ratios), 2),
    }


def share(part: int, of: int) -> float:
    return round(part / max(of, 1), 4)


def quantile(values: list[float], at: float) -> float:
    return sorted(values)[min(len(values) - 1, int(at * len(values)))] if values else 0.0


def report(seen: Seen, watch: Watch, logged: dict[str, tuple[float | None, float]], lines: list[str]) -> dict[str, Any]:
    outcomes = Counter(race.outcome for race in seen.races)
    left = [race for race in seen.races if race.left and race.id]
    freed = [logged[race.logged][1] - race.left for race in left if race.logged in logged]  # type: ignore[operator]
    starts = [begun for begun, _ in logged.values() if begun] + seen.turns
    later = [mb for at, mb in watch.memory if at >= SETTLED_S] or [mb for _, mb in watch.memory]
    held = [race.over - race.begun for race in seen.races if race.over and race.begun and race.outcome == "finished"]
    waited = [race.begun - race.queued for race in seen.races if race.begun and race.queued]
    return {
        "races": {"begun": sum(race.begun is not None for race in seen.races), **outcomes},
        "lost": outcomes["lost"],
        "why lost": [f"{race.why} ({race.id})" for race in seen.races if race.outcome == "lost"][:10],
        "refused": Counter(race.why for race in seen.races if race.outcome == "refused"),
        "habits": seen.did,
        "studies": seen.studies,
        "error pages": sum(num for status, num in seen.statuses.items() if status >= 500),
        "statuses": {str(status): num for status, num in sorted(seen.statuses.items())},
        "problems": seen.problems[:20],
        "num problems": len(seen.problems),
        "started out of turn": inversions(seen.races),
        "wait s": {"median": round(quantile(waited, 0.5), 1), "p90": round(quantile(waited, 0.9), 1)},
        "race s": {"median": round(quantile(held, 0.5), 2), "p90": round(quantile(held, 0.9), 2)},
        "waits": waits(seen.races, starts),
        "abandoned": {
            "left": len(left),
            "never freed": sum(race.logged not in logged for race in left),
            "s until freed": {"median": round(quantile(freed, 0.5), 2), "most": round(max(freed, default=0), 2)},
        },
        "health": {"checks": watch.num_health, "problems": watch.unhealthy[:10], "num problems": len(watch.unhealthy),
                   "longest queue": max(watch.lengths, default=0)},
        "answered s": {
            name: {"p50": round(quantile(times, 0.5), 3), "p95": round(quantile(times, 0.95), 3), "num": len(times)}
            for name, times in watch.answered.items()
        },
        "rss mb": [mb for _, mb in watch.memory],
        "rss growth mb": {"to the end": round(later[-1] - later[0], 1), "to the most": round(max(later) - later[0], 1)},
        "log": {"bytes": watch.server.log.stat().st_size, "races": len(logged), "others": lines[:5],
                "tracebacks": sum("Traceback" in line or '"errors"' in line for line in lines)},
    }  # fmt: skip
