"""Do two sets of sampled answers come from the same distribution? Exact, for any sizes. Standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

MIN_COUNT = 8  # a symbol seen less often in both sets together is counted with the other rare ones
RARE, END = "one of the rare ones", "the end"


@dataclass(frozen=True)
class Cell:
    """How many answers of each set have `symbol` at `position` (from 0). chance: the two-sided chance of a difference
    this large between two sets of the same distribution, by Fisher's exact test."""

    position: int
    symbol: Any
    counts: tuple[int, int]
    chance: float


def cells(one: Sequence[Sequence[Any]], another: Sequence[Sequence[Any]]) -> Iterator[Cell]:
    """A cell for each frequent symbol at each position, and one for all rare ones. Which symbols are frequent depends
    on both sets together, so the chance of each cell stays exact."""
    for position in range(max(map(len, [*one, *another]), default=0)):
        first, second = (Counter(_at(answer, position) for answer in answers) for answers in (one, another))
        both = first + second
        rare = [symbol for symbol, num in both.items() if num < MIN_COUNT]
        groups = [(symbol, [symbol]) for symbol in both if symbol not in rare] + ([(RARE, rare)] if rare else [])
        if len(groups) < 2:
            continue
        for symbol, group in groups:
            counts = sum(first[member] for member in group), sum(second[member] for member in group)
            yield Cell(position, symbol, counts, fisher(*counts, len(one), len(another)))


def fisher(a: int, b: int, num_one: int, num_other: int) -> float:
    """The two-sided chance that a of num_one and b of num_other differ this much: twice the smaller tail of the
    hypergeometric distribution."""
    num, total = a + b, comb(num_one + num_other, a + b)
    low = sum(comb(num_one, i) * comb(num_other, num - i) for i in range(max(0, num - num_other), a + 1)) / total
    high = sum(comb(num_one, i) * comb(num_other, num - i) for i in range(a, min(num, num_one) + 1)) / total
    return min(1.0, 2 * min(low, high))


def _at(answer: Sequence[Any], position: int) -> Any:
    return answer[position] if position < len(answer) else END
