"""When several users share one device: the speed-up that a race's drafter would still bring, computed from what its
steps cost at each width. Pure; standard library only.

n users who decode at once need n rows a step; with drafts they need n (d + 1), where d is the mean draft. Of a race's L
tokens a step, T(rows) seconds of a step that reads the weights once, and a cache of its own for every user:

    plain(n) = T(n) + (n - 1) cache        drafted(n) = T(n (d + 1)) + (n - 1) cache + drafting

    speed-up(n) = L plain(n) / drafted(n)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from .why import Compared

MOST_USERS = 64


class Shared(NamedTuple):
    """Of so many users: the speed-up if all drafts are made in one pass, at the cost of one; if they are made one after
    the other; and whether a step of so many rows was measured."""

    num_users: int
    together: float
    in_turn: float
    measured: bool


def shared(
    race: Compared, step_s: Mapping[int, float], cache_s: float | None = None, most_users: int = MOST_USERS
) -> list[Shared]:
    """The speed-up for 1 to most_users users. step_s: seconds of a step by its width, as measured. cache_s: of reading
    one user's cache; None: not known, and left out. Empty where fewer than two widths were measured."""
    if len(step_s) < 2:
        return []
    rows = 1 + sum(step.num_drafted for step in race.lane) / len(race.lane)
    draft_s = sum(step.draft_s for step in race.lane) / len(race.lane)
    found = []
    for n in range(1, most_users + 1):
        caches_s = (n - 1) * (cache_s or 0.0)
        plain_s, drafted_s = seconds_at(step_s, n) + caches_s, seconds_at(step_s, n * rows) + caches_s
        gain = race.tokens_per_step * plain_s
        found.append(Shared(n, gain / (drafted_s + draft_s), gain / (drafted_s + n * draft_s), n * rows <= max(step_s)))
    return found


def stops_paying(told: Sequence[Shared]) -> tuple[int | None, int | None]:
    """From how many users on drafts cost more than they bring: drafted in turn, and drafted together; None: beyond."""
    apart = next((each.num_users for each in told if each.in_turn < 1), None)
    return apart, next((each.num_users for each in told if each.together < 1), None)


def seconds_at(step_s: Mapping[int, float], rows: float) -> float:
    """Seconds of a step of so many rows, which need not be whole: on the lines between the measured widths, a wider
    one never cheaper than a narrower; beyond the widest, on the last line."""
    widths = sorted(step_s)
    costs = list(accumulate((step_s[width] for width in widths), max))
    if rows <= widths[0]:
        return costs[0]
    i = next((i for i, width in enumerate(widths) if width >= rows), len(widths) - 1)
    (low, high), (cheap, dear) = widths[i - 1 : i + 1], costs[i - 1 : i + 1]
    return cheap + (dear - cheap) / (high - low) * (rows - low)
