"""What a million tokens cost on a machine of a given price, from a race's own speeds. The formula is
`engine.metrics.cost_per_million`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import UsageError
from engine.events import LaneEvent
from engine.metrics import cost_per_million, lane_metrics
from engine.spec import BASELINE, PLAIN, SPECULATIVE

MAX_DOLLARS = 1_000_000.0
LANES = (PLAIN, BASELINE, SPECULATIVE)


@dataclass(frozen=True)
class Cost:
    """Dollars for a million tokens in one lane; None where the lane has no speed."""

    lane: str
    dollars: float | None


def check_dollars(value: object) -> float:
    """A price per hour. Raises UsageError naming the limits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_DOLLARS:
        raise UsageError(
            f"the price must be a number from 0 to {MAX_DOLLARS:.0f} dollars an hour, not {str(value)[:40]!r}"
        )
    return float(value)


def costs(events: Sequence[LaneEvent], dollars_per_hour: float) -> tuple[Cost, ...]:
    """The cost of a million tokens in each lane of a race, alone on that machine."""
    return tuple(
        Cost(lane, cost_per_million(lane_metrics(events, lane).tokens_per_s, dollars_per_hour)) for lane in LANES
    )


def saving(found: Sequence[Cost]) -> float | None:
    """The share by which the speculative lane is cheaper than the cheapest plain decoding (negative: dearer); None
    where either has no cost."""
    by_lane = {cost.lane: cost.dollars for cost in found if cost.dollars is not None}
    plain, speculative = by_lane.get(PLAIN), by_lane.get(SPECULATIVE)
    cheapest = None if plain is None else min(plain, by_lane.get(BASELINE, plain))
    return 1 - speculative / cheapest if cheapest and speculative is not None else None


def amount(dollars: float | None) -> str:
    """Dollars with as many digits as mean something."""
    if dollars is None:
        return "–"
    return f"${dollars:,.2f}" if dollars >= 0.1 or dollars == 0 else f"${dollars:.2g}"
