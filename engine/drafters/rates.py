"""What `auto` k knows of drafters: how long their drafts take, how often they are accepted, and so how many tokens pay.
Standard library only."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

PRIOR = 0.75
"""Acceptance of a draft that costs something, before anything was seen, where no margin is told."""
FORGET = 0.97
"""What a draft's fate weighs a step, or a case, later. Measured (simulated; docs/log.md, 2026-11-22, `auto` judged by
the oracle): 0.94 and 0.99 change nothing. So do, here and below, half and double of each."""
PRIOR_DRAFTS = 4.0
"""How many drafts the belief before anything was seen is worth."""
CHAIN_DRAFTS = 8.0
"""How many drafts the belief is worth that a position is accepted as the one before it."""
NUM_TIMES = 5
"""How many of the last times count at each length of a draft. Chosen by hand, never measured alone."""
ODDS_AT_0, ODDS_BY_MARGIN, MOST_MARGIN = -1.4, 1.2, 6.0
"""Acceptance of a head's token by the margin (in logits) with which it was picked: the logit of its chance at 0, how it
grows, and up to where. Measured: the likeliest for 15,760 tokens of the default model's EAGLE-3 head, temperatures 0
and 0.8 (docs/log.md, as above)."""
LEARNS = 0.1
"""By how much what was missed moves a `Level`, in logits. Measured: 0.05 to 0.2 predict alike."""


class DraftTime:
    """Seconds that a draft of n tokens takes: a line, fixed + n * slope, through the medians of the last times measured
    at each length."""

    def __init__(self) -> None:
        self._recent: dict[int, deque[float]] = {}
        self._fixed = self._slope = 0.0

    @property
    def is_known(self) -> bool:
        return bool(self._recent)

    def add(self, num: int, seconds: float) -> None:
        """Take in a draft of `num` tokens. Of an even number of times the lower middle one is the median: what disturbs
        makes slower."""
        self._recent.setdefault(num, deque(maxlen=NUM_TIMES)).append(seconds)
        points = [(n, sorted(times)[(len(times) - 1) // 2], len(times)) for n, times in self._recent.items()]
        total = sum(weight for _, _, weight in points)
        mean_n = sum(n * weight for n, _, weight in points) / total
        mean_s = sum(s * weight for _, s, weight in points) / total
        spread = sum(weight * (n - mean_n) ** 2 for n, _, weight in points)
        slope = sum(weight * (n - mean_n) * (s - mean_s) for n, s, weight in points) / spread if spread else 0.0
        self._slope = min(max(slope, 0.0), mean_s / mean_n if mean_n else 0.0)
        self._fixed = mean_s - self._slope * mean_n

    def __call__(self, num: int) -> float:
        """Where one length alone was timed, the best that may be hoped of the others: a shorter one takes its share, a
        longer one as long."""
        if len(self._recent) == 1 and (known := next(iter(self._recent))):
            return self._fixed * min(1.0, num / known)
        return self._fixed + self._slope * num


class Rate:
    """A share of cases. prior: before anything was seen, worth `weight` cases; forget: what a case weighs one case
    later."""

    def __init__(self, prior: float, weight: float, forget: float = FORGET) -> None:
        self._tried, self._kept, self._forget = weight, prior * weight, forget

    def add(self, kept: bool) -> None:
        self._tried = self._forget * self._tried + 1
        self._kept = self._forget * self._kept + kept

    def __call__(self) -> float:
        return self._kept / self._tried


class AcceptanceRates:
    """Conditional acceptance by position in the draft; what lies steps back is forgotten exponentially, where nothing
    was seen since it stands."""

    def __init__(self, prior: float) -> None:
        self._tried, self._kept = [PRIOR_DRAFTS], [prior * PRIOR_DRAFTS]
        self._seen: int | None = None

    def add(self, num: int, num_accepted: int, step: int) -> None:
        """Take in that of `num` tokens the first `num_accepted` held."""
        keep = FORGET ** (1 if self._seen is None else step - self._seen)
        self._seen = step
        more = [0.0] * (num - len(self._tried))
        self._tried = [keep * tried for tried in self._tried] + more
        self._kept = [keep * kept for kept in self._kept] + more
        for i in range(min(num_accepted + 1, num)):
            self._tried[i] += 1
            self._kept[i] += i < num_accepted

    def chances(self) -> Iterator[float]:
        """Position by position, without end; where little was seen of a position, as the one before it."""
        chance = self._kept[0] / self._tried[0]
        yield chance
        for kept, tried in zip(self._kept[1:], self._tried[1:], strict=True):
            chance = (chance * CHAIN_DRAFTS + kept) / (CHAIN_DRAFTS + tried)
            yield chance
        while True:
            yield chance


class Level:
    """How far a text's chances lie above those of all texts, in logits: what its cases have in common."""

    def __init__(self) -> None:
        self._logits = 0.0

    def __call__(self, logits: float) -> float:
        """The chance in this text of what has a chance of so many logits in all."""
        return 1 / (1 + math.exp(-logits - self._logits))

    def add(self, missed: float) -> None:
        """missed: what happened, 0 or 1, less the chance that it was given."""
        self._logits += LEARNS * missed


class LevelRate(Rate):
    """One whose prior moves with the level of its text."""

    def __init__(self, prior: float, weight: float, level: Level) -> None:
        super().__init__(prior, weight)
        self._prior, self._weight, self._level = prior, weight, level
        self._logits = math.log(prior / (1 - prior))

    def add(self, kept: bool) -> None:
        self._level.add(kept - self())
        self._weight *= self._forget
        super().add(kept)

    def __call__(self) -> float:
        return (self._kept + self._weight * (self._level(self._logits) - self._prior)) / self._tried


class MarginOdds:
    """Acceptance of a head's tokens by their margins: a logistic curve, at the level of the text."""

    def __init__(self) -> None:
        self._level = Level()

    def __call__(self, margin: float) -> float:
        return self._level(ODDS_AT_0 + ODDS_BY_MARGIN * min(margin, MOST_MARGIN))

    def add(self, margin: float, kept: bool) -> None:
        self._level.add(kept - self(margin))


def best_length(chances: Iterable[float], reached: float, costs: Sequence[float], rate: float) -> tuple[float, int]:
    """Of drafting m more tokens, whose chances these are given that the ones before hold: (the most that one m is
    worth, in tokens, that m); (0, 0) where none pays. costs: seconds of 1, 2, ... more; reached: the chance of getting
    there; rate: what a second is worth, in tokens."""
    value, num, expected = 0.0, 0, 0.0
    for m, (chance, cost) in enumerate(zip(chances, costs, strict=False), 1):
        reached *= chance
        expected += reached
        if (worth := expected - rate * cost) > value:
            value, num = worth, m
    return value, num


def num_matching(ids: Sequence[int], written: Sequence[int]) -> int:
    """How many of the first tokens are the same."""
    pairs = zip(ids, written, strict=False)
    return next((i for i, pair in enumerate(pairs) if pair[0] != pair[1]), min(len(ids), len(written)))
