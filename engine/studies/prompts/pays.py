"""The verdict over the rows of a study: whether to ship the best drafter that a server can run, at its best fixed k.
Standard library only.

Deterministic: the bootstrap draws from a generator with a fixed seed, over sorted speed-ups, so the order of the rows
does not matter."""

import random
import statistics
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from ...analysis.metrics import grouped, percentile
from ...analysis.verdict_words import THRESHOLD
from ...core.spec import AUTO
from ...drafters.served import is_served
from .pays_words import LEAST, NO_RACE, is_lane, no_server, peer_says, reason, says
from .rows import Row, gain_at, outcome

SHIP, DO_NOT_SHIP, UNCLEAR = "ship", "do not ship", "unclear"
RESAMPLES, SEED = 5000, 0


def report(rows: Sequence[Row], target: str, temperature: float | None = None) -> dict[str, Any]:
    """What --json shows of at least one row, besides the rows. Rows without a speed-up do not count.

    best: what the verdict is about: a drafter that a server can run for this target, at its best fixed k, or a lane
        that was measured on a server, whose k is None. None if no row has either. median_speedup is computed, or
        measured if the rows were raced at that k; saving is the share of machine time that it saves at the median
        prompt; without: the verdict on the prompts whose text does not loop and whose race was not disturbed;
        num_other_texts: of num_compared prompts those on which its text differs from plain decoding's; by_time_only:
        its server reported nothing about drafts.
    engine: the fastest that only this engine can do, if it is faster than `best`, else None.
    doubtful: the verdict would change without loops and disturbed races.
    peers: of each way that transformers did it (see `Row.peers`) its median speed, in how many of the prompts it wrote
        the same tokens and how many could be compared, what went wrong first, and all that in a sentence.
    says, reason: all this in sentences, see `pays_words`; temperature: of the answers, None if it is not known."""
    judged = _judged(rows, target)
    return {**judged, "peers": _peers(rows), "says": says(judged, rows, temperature)}


def _peers(rows: Sequence[Row]) -> list[dict[str, Any]]:
    prompts = {row.line: row.peers for row in rows}.values()  # the same in each row of a prompt
    judged = []
    for name, peers in grouped((peer["name"], peer) for peer in chain.from_iterable(prompts)).items():
        speeds, same = [p["speed"] for p in peers if p["speed"]], [p["same"] for p in peers]
        peer = {
            "name": name,
            "num_prompts": len(peers),
            "num_timed": len(speeds),
            "median_speed": percentile(speeds, 0.5),
            "num_same": same.count(True),
            "num_compared": len(same) - same.count(None),
            "fault": next((p["fault"] for p in peers if p["fault"]), ""),
        }
        judged.append({**peer, "says": peer_says(peer)})
    return judged


def _judged(rows: Sequence[Row], target: str) -> dict[str, Any]:
    drafters = list(dict.fromkeys(row.drafter for row in rows))
    rows_of = {drafter: [row for row in rows if row.drafter == drafter] for drafter in drafters}
    summary = {drafter: _summary(rows_of[drafter]) for drafter in drafters}
    fixed = [
        (median, -int(k), drafter)
        for drafter in drafters
        if not is_lane(drafter) and is_served(target, drafter)
        for k, median in summary[drafter]["computed"].items()
        if k != AUTO and median > 0
    ]
    fixed += [(summary[lane]["median_speedup"] or 0.0, 0, lane) for lane in drafters if is_lane(lane)]
    medians = {name: summary[name]["median_speedup"] for name in sorted(summary) if not is_lane(name)}
    fastest = max(medians, key=lambda name: medians[name] or 0.0, default="")
    engine = {"drafter": fastest, "k": AUTO, "median_speedup": medians[fastest], "measured": True} if fastest else None
    judged: dict[str, Any] = {"summary": summary, "best": None, "engine": engine, "verdict": UNCLEAR, "doubtful": False}
    if not fixed:
        return judged | {"reason": no_server(drafters, target)}
    median, minus_k, drafter = max(fixed)
    if not median:
        return judged | {"reason": NO_RACE}
    best = _best(rows_of[drafter], drafter, -minus_k or None)
    if engine and engine["median_speedup"] is not None and engine["median_speedup"] <= best["median_speedup"]:
        judged["engine"] = None
    values, without = _values(rows_of[drafter], best["k"]), best["without"]
    verdict = of_speedups(values)
    doubtful = without["num_prompts"] < len(values) and without["verdict"] != verdict
    why = reason(rows_of[drafter], best, verdict, doubtful)
    return judged | {"best": best, "verdict": verdict, "doubtful": doubtful, "reason": why}


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


def _values(rows: Sequence[Row], k: int | str | None = AUTO) -> list[float]:
    return [gain for row in rows if (gain := gain_at(row, k))]


def _mean(values: Sequence[float | None]) -> float | None:
    """Over the prompts that have a value."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _numbers(rows: Sequence[Row]) -> dict[str, Any]:
    values, outcomes = _values(rows), Counter(map(outcome, rows))
    return {
        "median_speedup": percentile(values, 0.5),
        "p25": percentile(values, 0.25),
        "p75": percentile(values, 0.75),
        "mean_acceptance_length": _mean([row.mean_acceptance_length for row in rows]),
        "acceptance_rate": _mean([row.acceptance_rate for row in rows]),
        "num_prompts": len(values),
        "num_gain": outcomes["gains"],
        "num_lose": outcomes["loses"],
    }


def _summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The summary of one drafter. computed: the median speed-up of each k computed on every prompt whose race did
    not fail."""
    kinds = dict.fromkeys(row.kind for row in rows)
    known = [row for row in rows if row.computed and not row.fault]
    ks = [k for k in (known[0].computed if known else ()) if all(k in row.computed for row in known)]
    return {
        **_numbers(rows),
        "interval": interval(values) if (values := _values(rows)) else None,
        "by_kind": {kind: _numbers([row for row in rows if row.kind == kind]) for kind in kinds},
        "computed": {k: statistics.median(row.computed[k] for row in known) for k in ks},
    }


def _best(rows: Sequence[Row], drafter: str, k: int | None) -> dict[str, Any]:
    values, alike = _values(rows, k), [row.identical for row in rows if not row.fault]
    clean = _values([row for row in rows if not row.loops and not row.disturbed], k)
    median = statistics.median(values)
    return {
        "drafter": drafter,
        "k": k,
        "num_prompts": len(values),
        "median_speedup": median,
        "measured": k is None or all(row.k == str(k) for row in rows),
        "interval": interval(values),
        "saving": 1 - 1 / median,
        "by_time_only": k is None and all(row.mean_acceptance_length is None for row in rows),
        "num_other_texts": alike.count(False),
        "num_compared": len(alike) - alike.count(None),
        "without": {
            "num_prompts": len(clean),
            "median_speedup": statistics.median(clean) if clean else None,
            "verdict": of_speedups(clean),
        },
    }
