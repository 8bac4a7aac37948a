"""The rows of a bench's report: medians and quartiles over prompts and repeats, and ratios against the peers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..analysis.metrics import percentile, ratio
from .lanes import Sample
from .prompts import KINDS

SCHEMA = 1
FORMAT = "photofinish-bench"


def rows(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """One row for every name and kind, kinds in the order of KINDS and names in theirs: medians and quartiles over
    prompts and repeats. Nothing that could never be timed."""
    found = []
    for kind in KINDS:
        for name in dict.fromkeys(s.name for s in samples):
            group = [s for s in samples if s.name == name and s.kind == kind]
            rates = [s.tokens_per_s for s in group if s.tokens_per_s is not None]
            if not rates:
                continue
            gains = [s.speedup_vs_plain for s in group if s.speedup_vs_plain is not None]
            judged = [s.identical for s in group if s.identical is not None]
            shares = [s.oracle_share for s in group if s.oracle_share is not None]
            found.append(
                {
                    "name": name,
                    "kind": kind,
                    **_spread(rates, "tokens_per_s"),
                    "speedup_vs_plain": percentile(gains, 0.5),
                    "identical": all(judged) if judged else None,
                    "synthetic": any(s.synthetic for s in group),
                    "num_runs": len(rates),
                    "num_tokens": sum(s.num_tokens for s in group),
                    "oracle_share": percentile(shares, 0.5),
                }
            )
    return found


def against_peers(samples: Sequence[Sample], pairs: Iterable[tuple[str, Sequence[str]]]) -> list[dict[str, Any]]:
    """Tokens per second of a lane over those of a peer on the same prompt in the same round, medians and quartiles by
    kind. pairs: a lane, and its peers, of which the one with the highest overall median counts."""
    rates = {(s.name, s.prompt, s.repeat): s.tokens_per_s for s in samples}
    found = []
    for lane, peers in pairs:
        medians = {
            peer: percentile([s.tokens_per_s for s in samples if s.name == peer and s.tokens_per_s is not None], 0.5)
            for peer in peers
        }
        known = {peer: value for peer, value in medians.items() if value is not None}
        if not known:
            continue
        best = max(known, key=lambda peer: known[peer])
        for kind in KINDS:
            own = [s for s in samples if s.name == lane and s.kind == kind]
            ratios = [r for s in own if (r := ratio(s.tokens_per_s, rates.get((best, s.prompt, s.repeat)))) is not None]
            if ratios:
                found.append({"name": lane, "peer": best, "kind": kind, **_spread(ratios, "ratio")})
    return found


def _spread(values: Sequence[float], name: str) -> dict[str, float | None]:
    return {name: percentile(values, 0.5), "p25": percentile(values, 0.25), "p75": percentile(values, 0.75)}
