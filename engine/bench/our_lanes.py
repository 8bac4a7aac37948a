"""Our side of a bench: one race with every lane on the fair clock, the cost of a bare step at each width, and the rows
of the report: medians and quartiles over prompts and repeats, and ratios against the peers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..analysis.metrics import lane_metrics, percentile, ratio, speedup
from ..analysis.roofline import Roofline
from ..core.errors import RaceError
from ..core.events import steps
from ..core.spec import AUTO, BASELINE, PLAIN, LaneSpec, lanes_of
from ..drafters import parse
from ..hardware.bandwidth import roofline_figures
from ..runner.target import StaticTarget
from ..session.run_prompts import Raced
from .bench_prompts import KINDS

if TYPE_CHECKING:
    from ..runner.prepared import Prepared

CURVE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # widths of the verify-cost curve
DEFAULT_K = 7
DRAFT_MODEL = "draft_model"


@dataclass(frozen=True)
class Sample:
    """One lane or peer on one prompt, once.

    tokens_per_s: None if nothing could be timed.
    speedup_vs_plain: seconds per token of the plain lane of the same prompt and repeat over its own; for a drafting
        lane, of the baseline if that was faster.
    identical: to the baseline of the same race; None for the plain lane and peers, and if it was not compared.
    """

    name: str
    kind: str
    prompt: str
    repeat: int
    num_tokens: int
    tokens_per_s: float | None
    speedup_vs_plain: float | None
    identical: bool | None = None
    synthetic: bool = False


@dataclass(frozen=True)
class OurRace:
    """The figures of one race.

    plain_step_s: the median step of the plain lane.
    faults: of lanes that failed, or wrote other tokens than the baseline at exact widths.
    differences: other tokens at widths that promise nothing.
    """

    samples: dict[str, Sample]
    plain_step_s: float
    cache_length: int
    exact: bool
    disturbed: bool
    faults: tuple[str, ...]
    differences: tuple[str, ...]


def k_of(drafter: str, k: int | str | None) -> int | str:
    """A lane's k: as given, else DEFAULT_K, or `auto` for a draft model, whose step costs a good part of the target's
    and whose peer also stops when unsure."""
    return k or (AUTO if parse(drafter)[0] == DRAFT_MODEL else DEFAULT_K)


def lane_specs(drafters: Sequence[str], k: int | str | None) -> tuple[LaneSpec, ...]:
    """The lanes of a race: plain, baseline, and one per drafter, named after it, at its `k_of`."""
    return lanes_of((drafter, drafter, k_of(drafter, k)) for drafter in drafters)


def figures_of(raced: Raced) -> OurRace:
    """Raises RaceError if there was no plain lane; lanes that failed are in `faults`."""
    race, events, entry, lanes = raced.race, raced.events, raced.entry, raced.race.lanes
    if PLAIN not in lanes:
        raise RaceError("there is not enough memory for the plain lane, which all others are compared with")
    numbers = {lane: lane_metrics(events, lane) for lane in lanes}
    gains = {lane: speedup(steps(events, PLAIN), steps(events, lane)) for lane in (PLAIN, BASELINE)} | raced.gains
    identical = {lane: raced.is_identical(lane) for lane in raced.gains}
    identical[BASELINE] = BASELINE not in raced.failed or None

    def sample(lane: str) -> Sample:
        own, synthetic = numbers[lane], lanes[lane].drafter.synthetic
        run = (lane, entry.kind, entry.name, raced.repeat, own.num_tokens, own.tokens_per_s)
        return Sample(*run, gains[lane], identical.get(lane), synthetic)

    exact = race.widths.plan.exact
    return OurRace(
        samples={lane: sample(lane) for lane in lanes},
        plain_step_s=numbers[PLAIN].itl_p50_s or 0.0,
        cache_length=race.widths.length,
        exact=exact,
        disturbed=raced.is_disturbed,
        faults=tuple(filter(None, map(raced.fault, lanes))),
        differences=() if exact else tuple(filter(None, map(raced.difference, raced.gains))),
    )


def step_curve(prepared: Prepared, length: int, position: int, rounds: int) -> dict[int, float]:
    """Median seconds of a bare step (forward and waiting for it; no sampling) at every width of CURVE, over a cache of
    `length` columns of which `position` are live: interleaved, after an untimed round."""
    return StaticTarget(prepared, length, CURVE).time_widths(rounds, min(position, length - max(CURVE)))


def roofline(prepared: Prepared, length: int, step_s: float) -> dict[str, Any] | None:
    """Bytes that a plain step with `length` live tokens must read, over its time, as a share of the bandwidth measured
    here (above 1: part of them came out of a cache). None if there is no room to measure it."""
    figures = roofline_figures(prepared, length)
    if figures is None:
        return None
    share = Roofline(step_s, figures["bytes_per_step"], figures["bandwidth_bytes_per_s"]).share
    return {"step_s": step_s, **figures, "share": share}


def rows(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """One row for every name and kind, kinds in the order of KINDS and names in theirs: medians and quartiles over
    prompts and repeats. Nothing that could never be timed."""
    table = []
    for kind in KINDS:
        for name in dict.fromkeys(s.name for s in samples):
            group = [s for s in samples if s.name == name and s.kind == kind]
            rates = [s.tokens_per_s for s in group if s.tokens_per_s is not None]
            if not rates:
                continue
            gains = [s.speedup_vs_plain for s in group if s.speedup_vs_plain is not None]
            judged = [s.identical for s in group if s.identical is not None]
            row = {
                "name": name,
                "kind": kind,
                **_spread(rates, "tokens_per_s"),
                "speedup_vs_plain": percentile(gains, 0.5),
                "identical": all(judged) if judged else None,
                "synthetic": any(s.synthetic for s in group),
                "num_runs": len(rates),
                "num_tokens": sum(s.num_tokens for s in group),
            }
            table.append(row)
    return table


def against_peers(samples: Sequence[Sample], pairs: Iterable[tuple[str, Sequence[str]]]) -> list[dict[str, Any]]:
    """Tokens per second of a lane over those of a peer on the same prompt in the same round, medians and quartiles by
    kind. pairs: a lane, and its peers, of which the one with the highest overall median counts."""
    rates = {(s.name, s.prompt, s.repeat): s.tokens_per_s for s in samples}
    table = []
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
                table.append({"name": lane, "peer": best, "kind": kind, **_spread(ratios, "ratio")})
    return table


def _spread(values: Sequence[float], name: str) -> dict[str, float | None]:
    return {name: percentile(values, 0.5), "p25": percentile(values, 0.25), "p75": percentile(values, 0.75)}
