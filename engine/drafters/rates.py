"""What `auto` k knows of drafters: how long their drafts take, how often they are accepted, and so how many tokens pay.
Standard library only."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

PRIOR = 0.75
"""Prior acceptance of a draft that costs something and has no margins."""
FORGET = 0.97
"""How much less each step, or case, weighs than the one after it. Measured (simulated; docs/log.md, 2026-11-22, `auto`
judged by the oracle): 0.94 and 0.99 change nothing. Nor do, here and below, half and double of each."""
PRIOR_DRAFTS = 4.0
"""How many drafts the prior is worth."""
CHAIN_DRAFTS = 8.0
"""How many drafts it is worth that a position is accepted like the one before it."""
NUM_TIMES = 5
"""How many of the last times count at each draft length. Chosen by hand, never measured alone."""
ODDS_AT_0, ODDS_BY_MARGIN, MOST_MARGIN = -1.4, 1.2, 6.0
"""Acceptance of a head's token by its margin (in logits): the logit of its chance at 0, the slope, and up to which
margin. Measured: the maximum likelihood for 15,760 tokens of the default model's EAGLE-3 head, temperatures 0 and 0.8
(docs/log.md, as above)."""
LEARNS = 0.1
"""How far an error moves a `Level`, in logits. Measured: 0.05 to 0.2 predict equally well."""


class DraftTime:
    """Seconds of a draft of n tokens: a line, fixed + n * slope, through the medians of the last times at each
    length."""

    def __init__(self) -> None:
        self._recent: dict[int, deque[float]] = {}
        self._fixed = self._slope = 0.0

    @property
    def is_known(self) -> bool:
        return bool(self._recent)

    def add(self, num: int, seconds: float) -> None:
        """Take in a draft of `num` tokens. Of an even number of times the lower middle one is the median: disturbance
        only slows."""
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
        """If only one length was timed, the best case for others: a shorter draft takes its share, a longer one as
        long."""
        if len(self._recent) == 1 and (known := next(iter(self._recent))):
            return self._fixed * min(1.0, num / known)
        return self._fixed + self._slope * num


class Rate:
    """A share of cases. prior: initial value, worth `weight` cases; forget: how much less each case weighs than the
    next."""

    def __init__(self, prior: float, weight: float, forget: float = FORGET) -> None:
        self._tried, self._kept, self._forget = weight, prior * weight, forget

    def add(self, kept: bool) -> None:
        self._tried = self._forget * self._tried + 1
        self._kept = self._forget * self._kept + kept

    def __call__(self) -> float:
        return self._kept / self._tried


class AcceptanceRates:
    """Conditional acceptance by position in the draft; forgotten exponentially with the number of steps."""

    def __init__(self, prior: float) -> None:
        self._tried, self._kept = [PRIOR_DRAFTS], [prior * PRIOR_DRAFTS]
        self._seen: int | None = None

    def add(self, num: int, num_accepted: int, step: int) -> None:
        """Take in that the first `num_accepted` of `num` tokens held."""
        keep = FORGET ** (1 if self._seen is None else step - self._seen)
        self._seen = step
        more = [0.0] * (num - len(self._tried))
        self._tried = [keep * tried for tried in self._tried] + more
        self._kept = [keep * kept for kept in self._kept] + more
        for i in range(min(num_accepted + 1, num)):
            self._tried[i] += 1
            self._kept[i] += i < num_accepted

    def chances(self) -> Iterator[float]:
        """Position by position, without end; a position with few observations is taken to be like the one before it."""
        chance = self._kept[0] / self._tried[0]
        yield chance
        for kept, tried in zip(self._kept[1:], self._tried[1:], strict=True):
            chance = (chance * CHAIN_DRAFTS + kept) / (CHAIN_DRAFTS + tried)
            yield chance
        while True:
            yield chance


class Level:
    """How far a text's chances lie above average, in logits: what its cases have in common."""

    def __init__(self) -> None:
        self._logits = 0.0

    def __call__(self, logits: float) -> float:
        """The chance in this text, given the average chance in logits."""
        return 1 / (1 + math.exp(-logits - self._logits))

    def add(self, missed: float) -> None:
        """missed: the outcome, 0 or 1, less its predicted chance."""
        self._logits += LEARNS * missed


class LevelRate(Rate):
    """A Rate whose prior moves with the level of its text."""

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
    """Acceptance of a head's tokens by margin: a logistic curve, at the level of the text."""

    def __init__(self) -> None:
        self._level = Level()

    def __call__(self, margin: float) -> float:
        return self._level(ODDS_AT_0 + ODDS_BY_MARGIN * min(margin, MOST_MARGIN))

    def add(self, margin: float, kept: bool) -> None:
        self._level.add(kept - self(margin))


def best_length(chances: Iterable[float], reached: float, costs: Sequence[float], rate: float) -> tuple[float, int]:
    """(value of the best number of further tokens, that number); (0, 0) if none pays. chances: of each if those before
    hold; reached: of getting there; costs: seconds of 1, 2, ... more; rate: the value of a second, in tokens."""
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
