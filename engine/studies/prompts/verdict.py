"""The verdict over the rows of a study: medians, the best drafter and k, and whether to ship. Standard library only.

Deterministic: the bootstrap draws from a generator with a fixed seed, over sorted speed-ups, so the order of the rows
does not matter."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...analysis.metrics import is_noise, percentile
from ...spec import AUTO
from .rows import Row

THRESHOLD = 1.3
"""The median speed-up that justifies another model, its memory and its configuration."""
SHIP, DO_NOT_SHIP, UNCLEAR = "ship", "do not ship", "unclear"
LEAST = 3
"""Prompts needed for a verdict."""
WORTH_A_K = 1.02
"""A fixed k is recommended over auto if it is computed to be this many times as fast as simulated auto."""
RESAMPLES, SEED = 5000, 0
MOST_KINDS = 4


def report(rows: Sequence[Row]) -> dict[str, Any]:
    """`summary`, `best`, `verdict` and `reason` of --json, from at least one row. Rows without a speed-up do not
    count."""
    drafters = list(dict.fromkeys(row.drafter for row in rows))
    summary = {drafter: _summary([row for row in rows if row.drafter == drafter]) for drafter in drafters}
    winner = max(sorted(drafters), key=lambda drafter: summary[drafter]["median_speedup"] or 0.0)
    best = {"drafter": winner, **_best_k(summary[winner])}
    verdict, reason = _judged([row for row in rows if row.drafter == winner], summary[winner], best)
    return {"summary": summary, "best": best, "verdict": verdict, "reason": reason}


def of_speedups(values: Sequence[float]) -> str:
    """The verdict on speed-ups alone: where the interval of their median lies."""
    if len(values) < LEAST:
        return UNCLEAR
    low, high = interval(values)
    return SHIP if low > THRESHOLD else DO_NOT_SHIP if high < THRESHOLD else UNCLEAR


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median of at least one value, by the percentile bootstrap (Efron 1979)."""
    rng, ordered = random.Random(SEED), sorted(values)
    medians = sorted(statistics.median(rng.choices(ordered, k=len(ordered))) for _ in range(RESAMPLES))
    return medians[round(0.025 * RESAMPLES)], medians[round(0.975 * RESAMPLES) - 1]


def outcome(row: Row) -> str:
    """One of "gains", "loses" and "even" (the speed-up is indistinguishable from 1)."""
    if row.speedup is None or is_noise(row.speedup, row.noise):
        return "even"
    return "gains" if row.speedup > 1 else "loses"


def _values(rows: Sequence[Row]) -> list[float]:
    return [row.speedup for row in rows if row.speedup]


def _numbers(rows: Sequence[Row]) -> dict[str, Any]:
    values, outcomes = _values(rows), Counter(map(outcome, rows))
    return {
        "median_speedup": percentile(values, 0.5),
        "p25": percentile(values, 0.25),
        "p75": percentile(values, 0.75),
        "share_above_1_3": sum(value > THRESHOLD for value in values) / len(values) if values else None,
        "num_prompts": len(values),
        "num_gain": outcomes["gains"],
        "num_lose": outcomes["loses"],
    }


def _summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The summary of one drafter. computed: the median speed-up of each k that was computed on every prompt.
    without_loops: the verdict on prompts whose texts do not loop."""
    kinds = dict.fromkeys(row.kind for row in rows)
    ks = [k for k in (rows[0].computed if rows else ()) if all(k in row.computed for row in rows)]
    return {
        **_numbers(rows),
        "interval": interval(values) if (values := _values(rows)) else None,
        "num_loops": sum(row.loops for row in rows),
        "without_loops": of_speedups(_values([row for row in rows if not row.loops])),
        "num_disturbed": sum(row.disturbed for row in rows),
        "by_kind": {kind: _numbers([row for row in rows if row.kind == kind]) for kind in kinds},
        "computed": {k: statistics.median(row.computed[k] for row in rows) for k in ks},
    }


def _best_k(numbers: dict[str, Any]) -> dict[str, Any]:
    """auto, as measured; or the fixed k that is computed to be clearly faster at the same costs."""
    computed = numbers["computed"]
    k = max(computed, key=computed.__getitem__, default=AUTO)
    if k == AUTO or computed[k] <= WORTH_A_K * computed[AUTO]:
        return {"k": AUTO, "median_speedup": numbers["median_speedup"], "measured": True}
    return {"k": int(k), "median_speedup": computed[k], "measured": False}


def _judged(rows: Sequence[Row], numbers: dict[str, Any], best: dict[str, Any]) -> tuple[str, str]:
    """The verdict and its reason, from the measured rows of the best drafter."""
    values = _values(rows)
    if len(values) < LEAST:
        return UNCLEAR, f"A verdict takes at least {LEAST} measured prompts; there are {len(values)}."
    verdict, (low, high) = of_speedups(values), numbers["interval"]
    where = {SHIP: "above", DO_NOT_SHIP: "below", UNCLEAR: "on both sides of"}[verdict]
    first = (
        f"{best['drafter']} at k auto was measured at {numbers['median_speedup']:.2f}x the speed of plain decoding at "
        f"the median of {len(values)} prompts; the 95 % interval, {low:.2f} to {high:.2f}, lies {where} {THRESHOLD}"
    )
    if not best["measured"]:
        first += f" (k = {best['k']} is computed to reach {best['median_speedup']:.2f}x)"
    second = f"{_told(rows, 'gains')}, {_told(rows, 'loses')}"
    if loops := numbers["num_loops"]:
        without = numbers["without_loops"]
        second += f"; {loops} of {len(rows)} texts repeat themselves, which is easy to guess"
        if without != verdict:
            second += f", and without them the verdict would be: {without}"
    return verdict, f"{first}. {second}."


def _told(rows: Sequence[Row], which: str) -> str:
    """`12 gain (code 8, prose 4)`"""
    counts = Counter(row.kind for row in rows if outcome(row) == which)
    kinds = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    shown = kinds if len(kinds) <= MOST_KINDS + 1 else kinds[:MOST_KINDS]
    names, rest = [f"{kind} {num}" for kind, num in shown], kinds[len(shown) :]
    names += [f"{len(rest)} more kinds {sum(num for _, num in rest)}"] if rest else []
    inside = f" ({', '.join(names)})" if names else ""
    return f"{sum(num for _, num in kinds)} {which.removesuffix('s')}{inside}"
