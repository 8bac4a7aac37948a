"""The verdict over the rows of a study: whether to ship the best drafter that a server can run, at its best fixed k.
Standard library only.

Deterministic: the bootstrap draws from a generator with a fixed seed, over sorted speed-ups, so the order of the rows
does not matter."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ...analysis.metrics import is_noise, percentile
from ...core.spec import AUTO, SERVER
from ...drafters import DRAFTERS, label
from ...drafters.served import is_served
from .rows import Row

THRESHOLD = 1.3  # the median speed-up that justifies another model, its memory and its configuration
SHIP, DO_NOT_SHIP, UNCLEAR = "ship", "do not ship", "unclear"
LEAST = 3  # prompts needed for a verdict
# This engine's best k is a fixed one, rather than auto, if it is computed to be this many times as fast as simulated
# auto.
WORTH_A_K = 1.02
RESAMPLES, SEED = 5000, 0
MOST_KINDS = 4
NO_RACE = "No prompt's race ended, so there is nothing to judge."


def report(rows: Sequence[Row], target: str) -> dict[str, Any]:
    """What --json shows of at least one row, besides the rows. Rows without a speed-up do not count.

    best: what the verdict is about: a drafter that a server can run for this target, at its best fixed k, or a lane
        that was measured on a server, whose k is None. None if no row has either. median_speedup is computed, or
        measured if the rows were raced at that k; saving is the share of machine time that it saves at the median
        prompt; without: the verdict on the prompts whose text does not loop and whose race was not disturbed;
        num_other_texts: prompts on which its text differs from plain decoding's; by_time_only: its server reported
        nothing about drafts.
    engine: the fastest that only this engine can do, if it is faster than `best`, else None.
    doubtful: the verdict would be another one without loops and disturbed races."""
    drafters = list(dict.fromkeys(row.drafter for row in rows))
    of = {drafter: [row for row in rows if row.drafter == drafter] for drafter in drafters}
    summary = {drafter: _summary(of[drafter]) for drafter in drafters}
    fixed = [
        (median, -int(k), drafter)
        for drafter in drafters
        if not _is_lane(drafter) and is_served(target, drafter)
        for k, median in summary[drafter]["computed"].items()
        if k != AUTO and median > 0
    ]
    fixed += [(summary[each]["median_speedup"] or 0.0, 0, each) for each in drafters if _is_lane(each)]
    engine = _of_engine(summary)
    found: dict[str, Any] = {"summary": summary, "best": None, "engine": engine, "verdict": UNCLEAR, "doubtful": False}
    if not fixed:
        return found | {"reason": _no_server(summary, target)}
    median, minus_k, drafter = max(fixed)
    if not median:
        return found | {"reason": NO_RACE}
    best = _best(of[drafter], drafter, -minus_k or None)
    if engine["median_speedup"] is not None and engine["median_speedup"] <= best["median_speedup"]:
        found["engine"] = None
    values, without = _values(of[drafter], best["k"]), best["without"]
    verdict = of_speedups(values)
    doubtful = without["num_prompts"] < len(values) and without["verdict"] != verdict
    reason = _reason(of[drafter], best, verdict, doubtful)
    return found | {"best": best, "verdict": verdict, "doubtful": doubtful, "reason": reason}


def _is_lane(drafter: str) -> bool:
    """Whether rows call a lane of a server so, which drafts as the server likes."""
    return drafter.partition(":")[0] not in DRAFTERS


def of_speedups(values: Sequence[float]) -> str:
    """The verdict on speed-ups alone: where the interval of their median lies."""
    if len(values) < LEAST:
        return UNCLEAR
    low, high = interval(values)
    return SHIP if low > THRESHOLD else DO_NOT_SHIP if high < THRESHOLD else UNCLEAR


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median of at least one value, by the percentile bootstrap (Efron 1979)."""
    return _interval(tuple(sorted(values)))


@lru_cache(16)
def _interval(ordered: tuple[float, ...]) -> tuple[float, float]:
    rng = random.Random(SEED)
    medians = sorted(statistics.median(rng.choices(ordered, k=len(ordered))) for _ in range(RESAMPLES))
    return medians[round(0.025 * RESAMPLES)], medians[round(0.975 * RESAMPLES) - 1]


def gain_at(row: Row, k: int | str | None) -> float | None:
    """The row's speed-up at this k: measured if it was raced so, else computed; None if neither. k None: as raced."""
    return row.speedup if k is None or str(k) == row.k or row.fault else row.computed.get(str(k))


def outcome(row: Row, k: int | str | None = AUTO) -> str:
    """One of "gains", "loses" and "even" (the speed-up is indistinguishable from 1)."""
    gain = gain_at(row, k)
    if not gain or is_noise(gain, row.noise):
        return "even"
    return "gains" if gain > 1 else "loses"


def _values(rows: Sequence[Row], k: int | str | None = AUTO) -> list[float]:
    return [gain for row in rows if (gain := gain_at(row, k))]


def _mean(values: Sequence[float | None]) -> float | None:
    """Over prompts, of those that have a value."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _numbers(rows: Sequence[Row]) -> dict[str, Any]:
    values, outcomes = _values(rows), Counter(map(outcome, rows))
    return {
        "median_speedup": percentile(values, 0.5),
        "p25": percentile(values, 0.25),
        "p75": percentile(values, 0.75),
        "share_above_1_3": sum(value > THRESHOLD for value in values) / len(values) if values else None,
        "mean_acceptance_length": _mean([row.mean_acceptance_length for row in rows]),
        "acceptance_rate": _mean([row.acceptance_rate for row in rows]),
        "num_prompts": len(values),
        "num_gain": outcomes["gains"],
        "num_lose": outcomes["loses"],
    }


def _summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The summary of one drafter. computed: the median speed-up of each k that was computed on every prompt
    whose race did not fail.
    without_loops: the verdict on prompts whose texts do not loop."""
    kinds = dict.fromkeys(row.kind for row in rows)
    known = [row for row in rows if row.computed and not row.fault]
    ks = [k for k in (known[0].computed if known else ()) if all(k in row.computed for row in known)]
    return {
        **_numbers(rows),
        "interval": interval(values) if (values := _values(rows)) else None,
        "num_loops": sum(row.loops for row in rows),
        "without_loops": of_speedups(_values([row for row in rows if not row.loops])),
        "num_disturbed": sum(row.disturbed for row in rows),
        "by_kind": {kind: _numbers([row for row in rows if row.kind == kind]) for kind in kinds},
        "computed": {k: statistics.median(row.computed[k] for row in known) for k in ks},
    }


def _best(rows: Sequence[Row], drafter: str, k: int | None) -> dict[str, Any]:
    values = _values(rows, k)
    clean = _values([row for row in rows if not row.loops and not row.disturbed], k)
    median = statistics.median(values)
    return {
        "drafter": drafter,
        "k": k,
        "median_speedup": median,
        "measured": k is None or all(row.k == str(k) for row in rows),
        "interval": interval(values),
        "share_above_1_3": sum(value > THRESHOLD for value in values) / len(values),
        "saving": 1 - 1 / median,
        "by_time_only": k is None and all(row.mean_acceptance_length is None for row in rows),
        "num_other_texts": sum(row.identical is False and not row.fault for row in rows),
        "without": {
            "num_prompts": len(clean),
            "median_speedup": statistics.median(clean) if clean else None,
            "verdict": of_speedups(clean),
        },
    }


def _of_engine(summary: dict[str, Any]) -> dict[str, Any]:
    """The drafter with the highest measured median, at auto or at a fixed k that is computed to be clearly faster."""
    drafter = max(sorted(summary), key=lambda each: summary[each]["median_speedup"] or 0.0)
    numbers, computed = summary[drafter], summary[drafter]["computed"]
    k = max(computed, key=computed.__getitem__, default=AUTO)
    if k == AUTO or computed[k] <= WORTH_A_K * computed[AUTO]:
        return {"drafter": drafter, "k": AUTO, "median_speedup": numbers["median_speedup"], "measured": True}
    return {"drafter": drafter, "k": int(k), "median_speedup": computed[k], "measured": False}


def _no_server(summary: dict[str, Any], target: str) -> str:
    if any(is_served(target, drafter) for drafter in summary):
        return NO_RACE
    raced = ", ".join(map(label, summary))
    return f"No server runs what was raced here ({raced}). Add n-gram to see what a server could do."


def _reason(rows: Sequence[Row], best: dict[str, Any], verdict: str, doubtful: bool) -> str:
    values, (low, high), k = _values(rows, best["k"]), best["interval"], best["k"]
    if len(values) < LEAST:
        return f"A verdict takes at least {LEAST} measured prompts; there are {len(values)}."
    where = {SHIP: "above", DO_NOT_SHIP: "below", UNCLEAR: "on both sides of"}[verdict]
    own = "speculation" if best["drafter"] == SERVER else best["drafter"]
    what = own if k is None else f"at k = {k}, {label(best['drafter'])}"
    first = (
        f"{what[0].upper()}{what[1:]} is {'measured' if best['measured'] else 'computed'}"
        f"{', by time only since its server reports no drafts,' * best['by_time_only']} at "
        f"{best['median_speedup']:.2f}x the speed of plain decoding at the median of {len(values)} prompts; the 95 % "
        f"interval, {low:.2f} to {high:.2f}, lies {where} {THRESHOLD}"
    )
    even = sum(outcome(row, k) == "even" for row in rows)
    second = f"{_counted(rows, 'gains', k)} faster, {even} within the noise, {_counted(rows, 'loses', k)} slower"
    loops, disturbed = sum(row.loops for row in rows), sum(row.disturbed for row in rows)
    if other := best["num_other_texts"]:
        second += f"; {other} of {len(rows)} texts differ from plain decoding's"
    if loops:
        second += f"; {loops} of {len(rows)} texts repeat themselves, which is easy to guess"
    if disturbed:
        second += f"; {disturbed} of {len(rows)} races were disturbed"
    if loops or disturbed:
        without = best["without"]
        median = f"{without['median_speedup']:.2f}x" if without["median_speedup"] else "nothing"
        second += f"; without them: {median}" + (
            f", and the verdict would be: {without['verdict']}" if doubtful else ""
        )
    return f"{first}. {second}."


def _counted(rows: Sequence[Row], which: str, k: int | str | None) -> str:
    """`12 (code 8, prose 4)`; without the kinds if there is one."""
    counts = Counter(row.kind for row in rows if outcome(row, k) == which)
    kinds = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    shown = kinds if len(kinds) <= MOST_KINDS + 1 else kinds[:MOST_KINDS]
    names, rest = [f"{kind} {num}" for kind, num in shown], kinds[len(shown) :]
    names += [f"{len(rest)} more kinds {sum(num for _, num in rest)}"] if rest else []
    inside = f" ({', '.join(names)})" if len({row.kind for row in rows}) > 1 and names else ""
    return f"{sum(num for _, num in kinds)}{inside}"
