"""What a study of servers says, in sentences that page and command line share. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

NOISE, WAIT_NOISE = 1.03, 1.1
"""Smaller ratios, of a level's rates and of its 95th percentiles, are chance."""
WORDS = {
    1: ("more output tokens a second than {}", "more"),
    0: ("as many output tokens a second as {} (within 3 %)", "as many (within 3 %)"),
    -1: ("fewer output tokens a second than {}", "fewer"),
}
"""Rank -> its words in a sentence, at its first place and at later ones."""
OTHER_TEXTS = (
    "The same text means the same characters. Batches change how a server rounds, so under load texts that differ at "
    "temperature 0 are usual for bfloat16, and by themselves no fault; above temperature 0 each server uses its own "
    "random numbers."
)
Level = Mapping[str, Any]


def says(levels: Sequence[Level], lanes: Sequence[str]) -> list[str]:
    """Each lane against the first one: the verdict on output tokens per second, their ratios, the wait for the first
    text where it ranks the lanes otherwise, and whether the texts are the same."""
    of = {(level["lane"], level["concurrency"]): level for level in levels}
    users, found = sorted({num for _, num in of}), list[str]()
    for other in lanes[1:]:
        both = {num: (of.get((lanes[0], num)), of.get((other, num))) for num in users}
        found += _against(lanes[0], other, {num: (a, b) for num, (a, b) in both.items() if a and b})
    return found


def _against(first: str, other: str, pairs: Mapping[int, tuple[Level, Level]]) -> Iterator[str]:
    gains = _gains(pairs, "output_tokens_per_s")
    if not gains:
        yield f"{other} and {first}: no level was answered by both."
        return
    ranks = {num: _rank(gain, NOISE) for num, gain in gains.items()}
    runs = [(rank, list(its)) for rank, its in groupby(gains, ranks.__getitem__)]
    parts = [f"{WORDS[rank][i > 0].format(first)} {_where(runs, i)}" for i, (rank, _) in enumerate(runs)]
    yield f"{other} writes {', '.join(parts)}."
    ratios = {num: f"{gain:.2f}x" for num, gain in gains.items()}
    yield f"Output tokens a second, {other} / {first}: {_by_users(ratios)}."
    sooner = {num: _rank(1 / gain, WAIT_NOISE) for num, gain in _gains(pairs, "ttft_p95_s").items()}
    if waits := {
        num: " against ".join(f"{its['ttft_p95_s']:.3f} s" for its in reversed(pairs[num]))
        for num, rank in ranks.items()
        if sooner.get(num, 0) not in (0, rank)
    }:
        yield f"The wait for the first text (TTFT P95) says otherwise, {other} against {first}: {_by_users(waits)}."
    same = {num: its for num, (_, its) in pairs.items() if its.get("num_compared")}
    if same:
        counts = {num: f"{its['num_same_text']} of {its['num_compared']}" for num, its in same.items()}
        rest = ", ".join(str(num) for num in pairs if num not in same)
        yield f"Same text: {_by_users(counts)}{'; not compared with ' if rest else ''}{rest}."
        if any(its["num_same_text"] < its["num_compared"] for its in same.values()):
            yield OTHER_TEXTS


def _gains(pairs: Mapping[int, tuple[Level, Level]], metric: str) -> dict[int, float]:
    """By number of users, the second lane's value over the first one's, where both have one."""
    return {num: b[metric] / a[metric] for num, (a, b) in pairs.items() if a[metric] and b[metric]}


def _rank(gain: float, noise: float) -> int:
    return (gain > noise) - (gain < 1 / noise)


def _where(runs: Sequence[tuple[int, list[int]]], i: int) -> str:
    """At which numbers of users the i-th run of equal ranks is."""
    its = runs[i][1]
    if len(runs) == 1 and len(its) > 1:
        return "at every number of users"
    if len(runs) == 2 and len(its) > 1:
        return f"from {its[0]} on" if i else f"up to {its[-1]} users"
    *most, last = map(str, its)
    numbers = f"{', '.join(most)} and {last}" if most else last
    return f"with {numbers}{'' if i else ' user' if its == [1] else ' users'}"


def _by_users(values: Mapping[int, str]) -> str:
    """`1.41x with 1 user, 1.20x with 2`."""
    first, *rest = (f"{value} with {num}" for num, value in values.items())
    return ", ".join([f"{first} user{'' if next(iter(values)) == 1 else 's'}", *rest])
