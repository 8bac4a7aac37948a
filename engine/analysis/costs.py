"""What a race's steps and drafts cost, by size, estimated from its own steps. Standard library only.

The cost of a size is the mean of its times, each capped at CUT times their median, so that one hiccup does not dominate
a sum over steps. Means that fall with growing size are pooled (isotonic regression): a larger size never costs less. A
size without times is interpolated between its neighbours, or scaled from the nearest, along a `shape`: for widths the
untimed seconds before the race, for drafts their length. Readers of a file compute its `verify_costs` again
(`recordings/times.py`), so a new rule for them must not cast doubt on files made by this one.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ..core.events import Step
from .metrics import grouped

CUT = 3.0
Times = Mapping[int, Sequence[float]]  # seconds by size


@dataclass(frozen=True)
class Costs:
    """Seconds; neither ever falls with its index.

    verify_s: a step without its draft, by number of drafted tokens; one entry more than the longest draft has tokens.
    draft_s: by table, a draft by its length."""

    verify_s: tuple[float, ...]
    draft_s: Mapping[str, tuple[float, ...]]


def verify_costs(steps: Iterable[Step], step_s: Mapping[int, float]) -> tuple[float, ...]:
    """`Costs.verify_s` from a race's steps. step_s: untimed seconds of a step at each width that exact lanes may use;
    steps of other widths are left out."""
    times = grouped((step.width, step.verify_s) for step in steps if step.width is not None and step.width in step_s)
    by_width = filled(times, step_s)
    return tuple(by_width[min(width for width in step_s if width > num)] for num in range(max(step_s)))


def draft_costs(times: Times, longest: int, in_proportion: bool) -> tuple[float, ...]:
    """Seconds of a draft of 0 to `longest` tokens; 0 if no times are known, so that the oracle stays a bound.
    in_proportion: an untimed length costs in proportion to its tokens; otherwise as much as any other, like a block."""
    if not times:
        return (0.0,) * (longest + 1)
    return tuple(filled(times, {n: n if in_proportion else min(n, 1) for n in range(longest + 1)}).values())


def filled(times: Times, shape: Mapping[int, float]) -> dict[int, float]:
    """Seconds of every size of `shape`, never falling; the shape's own if nothing was timed."""
    sizes = sorted(shape)
    rising = dict(zip(sizes, accumulate((shape[size] for size in sizes), max), strict=True))
    known = _rising({size: times[size] for size in sizes if times.get(size)})
    if not known:
        return rising
    between = accumulate((_at(size, known, rising) for size in sizes), max)  # interpolation may round up past the next
    return dict(zip(sizes, between, strict=True))


def _rising(times: Times) -> dict[int, float]:
    """Means by size, pooled where they fall."""
    pools: list[tuple[float, int, list[int]]] = []
    for size, values in times.items():
        mean, num, together = _mean(values), len(values), [size]
        while pools and pools[-1][0] > mean:
            before, num_before, sizes = pools.pop()
            mean = statistics.fmean((before, mean), (num_before, num))
            num, together = num_before + num, sizes + together
        pools.append((mean, num, together))
    return {size: mean for mean, _, together in pools for size in together}


def _mean(values: Sequence[float]) -> float:
    most = CUT * statistics.median(values)
    return statistics.fmean(min(value, most) for value in values)


def _at(size: int, known: Mapping[int, float], shape: Mapping[int, float]) -> float:
    for low, high in pairwise(known):
        if low <= size <= high:
            room = shape[high] - shape[low]
            return known[low] + (known[high] - known[low]) * ((shape[size] - shape[low]) / room if room else 0.0)
    nearest = min(known, key=lambda timed: abs(timed - size))
    return known[nearest] * (shape[size] / shape[nearest] if shape[nearest] else 1.0)
