"""The speed-up that a race's drafter would still bring if several users shared the device, computed from what its steps
cost at each width. Pure; standard library only.

n users decoding at once need n rows per step; with drafts they need n (d + 1), where d is the mean draft length. Let L
be the tokens per step, T(rows) the seconds of a step that reads the weights once, and `cache` the seconds to read one
further user's cache:

    plain(n) = T(n) + (n - 1) cache        drafted(n) = T(n (d + 1)) + (n - 1) cache + drafting

    speed-up(n) = L plain(n) / drafted(n)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from .breakdown import Compared

MOST_USERS = 64


class Shared(NamedTuple):
    """The speed-up for `num_users`, with all drafts made together in one pass at the cost of one, or in turn, one after
    another. measured: whether steps of that many rows were."""

    num_users: int
    together: float
    in_turn: float
    measured: bool


def shared(
    race: Compared, step_s: Mapping[int, float], cache_s: float | None = None, most_users: int = MOST_USERS
) -> list[Shared]:
    """The speed-up for 1 to most_users users; empty if fewer than two widths were measured.

    step_s: measured seconds of a step, by width.
    cache_s: seconds to read one user's cache; None if unknown, and then left out."""
    if len(step_s) < 2:
        return []
    rows = 1 + sum(step.num_drafted for step in race.lane) / len(race.lane)
    draft_s = sum(step.draft_s for step in race.lane) / len(race.lane)
    by_users = []
    for n in range(1, most_users + 1):
        caches_s = (n - 1) * (cache_s or 0.0)
        plain_s, drafted_s = seconds_at(step_s, n) + caches_s, seconds_at(step_s, n * rows) + caches_s
        gain = race.tokens_per_step * plain_s
        together, in_turn = gain / (drafted_s + draft_s), gain / (drafted_s + n * draft_s)
        by_users.append(Shared(n, together, in_turn, n * rows <= max(step_s)))
    return by_users


def as_raced(by_users: Sequence[Shared], speedup: float) -> list[Shared]:
    """The same, scaled so that one user is the race with its own `speedup`: its steps need not cost what their width
    did before it."""
    return [
        by_user._replace(together=by_user.together * factor, in_turn=by_user.in_turn * factor)
        for factor in (speedup / by_users[0].together if by_users else 1.0,)
        for by_user in by_users
    ]


def stops_paying(by_users: Sequence[Shared]) -> tuple[int | None, int | None]:
    """The number of users from which drafts cost more than they bring, drafted in turn and drafted together; None if
    that is beyond the range."""
    apart = next((by_user.num_users for by_user in by_users if by_user.in_turn < 1), None)
    return apart, next((by_user.num_users for by_user in by_users if by_user.together < 1), None)


def seconds_at(step_s: Mapping[int, float], rows: float) -> float:
    """Seconds of a step of `rows` rows, which need not be whole: linear between the measured widths and beyond the
    widest, and never cheaper for more rows."""
    widths = sorted(step_s)
    costs = list(accumulate((step_s[width] for width in widths), max))
    if rows <= widths[0]:
        return costs[0]
    i = next((i for i, width in enumerate(widths) if width >= rows), len(widths) - 1)
    (low, high), (cheap, dear) = widths[i - 1 : i + 1], costs[i - 1 : i + 1]
    return cheap + (dear - cheap) / (high - low) * (rows - low)
