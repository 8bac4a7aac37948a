"""What `auto` k believes of copies and of a head's tokens: priors, then what the race shows. Standard library only.

A prior is a share of cases. The measurement, wherever "measured" stands below: recorded drafts of the default model
(gemma-3-270m) on structured texts and prose; docs/log.md, 2026-11-21, sixth session. It was written down for copies of
4 or more matching tokens alone. The same entry has the gain of all this together, simulated: 6.1 % of tokens per second
on structured texts, over `auto` as it was before.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from .ngram import Copy
from .rates import BY_MARGIN, MARGIN_DRAFTS, MARGIN_FORGET, PRIOR, AcceptanceRates, Rate, bucket

CopyKind = Literal["agreed", "lone", "contested"]
"""Of a copy: two equally long matches go on alike; there is one match; or two part at once."""
LONE = {1: 3, 2: 7}
"""Match length -> how many tokens of a copy are weighed on the word of a single earlier occurrence; all where longer.
Chosen by hand, never measured alone."""
PARTED = 3
"""How many are weighed after the place where two equally long matches part. Chosen by hand, never measured alone."""
ALIKE, LONG = {1: 1, 2: 2, 3: 2}, 4
"""Match length -> the one that it is judged with; LONG where longer. Chosen by hand, never measured alone."""


class CopyPriors(NamedTuple):
    """right: the first token of a copy is. same: the head says it too. despite: it is right where the head says
    another."""

    right: float
    same: float
    despite: float


PRIORS: dict[tuple[CopyKind, int], CopyPriors] = {
    ("agreed", 1): CopyPriors(0.65, 0.55, 0.25),
    ("agreed", 2): CopyPriors(0.85, 0.65, 0.55),
    ("agreed", 4): CopyPriors(0.95, 0.75, 0.8),
    ("lone", 1): CopyPriors(0.3, 0.25, 0.12),
    ("lone", 2): CopyPriors(0.55, 0.4, 0.25),
    ("lone", 4): CopyPriors(0.8, 0.6, 0.5),
    ("contested", 0): CopyPriors(0.2, 0.2, 0.08),
}
"""By kind and match length. Measured: `right` of ("agreed", 4) 0.97, of ("lone", 4) 0.81, of "contested" with matches
of 4 or more 0.2; `despite` of ("lone", 4) 0.58. The rest was chosen by hand."""
CONFIRMED: dict[CopyKind, float] = {"agreed": 0.95, "lone": 0.95, "contested": 0.65}
"""That a copy's first token is right where the head says the same. Measured: 0.94 for a lone match of 4 or more. The
rest was chosen by hand."""
LATER = {"agreed": 0.9, "lone": 0.8, "parted": 0.5}
"""That a later token is right if those before it are: where two matches agree, where there is one, and after the place
where two part. Chosen by hand, never measured alone."""
WEIGHT = 4.0
"""How many cases each of these priors is worth. Chosen by hand, never measured alone."""


class CopyRates(NamedTuple):
    """What was seen of copies of one kind and match length: as in `CopyPriors`; confirmed: right where the head says
    the same."""

    right: Rate
    same: Rate
    despite: Rate
    confirmed: Rate


def _rates(priors: CopyPriors, confirmed: Rate) -> CopyRates:
    right, same, despite = (Rate(prior, WEIGHT) for prior in priors)
    return CopyRates(right, same, despite, confirmed)


class Beliefs:
    """Of one race. by_place: acceptance of the head's tokens by their place in the draft."""

    def __init__(self) -> None:
        confirmed = {kind: Rate(prior, WEIGHT) for kind, prior in CONFIRMED.items()}
        self._copies = {like: _rates(priors, confirmed[like[0]]) for like, priors in PRIORS.items()}
        self._later = {kind: Rate(prior, WEIGHT) for kind, prior in LATER.items()}
        self._by_margin = [Rate(prior, MARGIN_DRAFTS, MARGIN_FORGET) for prior in BY_MARGIN]
        self.by_place = AcceptanceRates(PRIOR)
        self.nothing = Lookup((), self._copies["contested", 0], [])

    def of_margin(self, margin: float) -> Rate:
        """Acceptance of the head's tokens with such a margin, given that all before them in the draft were accepted."""
        return self._by_margin[bucket(margin)]

    def of_copy(self, copy: Copy, size: int) -> Lookup:
        """A copy with what is believed of it. size: how many tokens there is room for."""
        if not copy.token_ids:
            return self.nothing
        agreed, match = copy.num_agreed, ALIKE.get(copy.match, LONG)
        if agreed is None:
            token_ids = copy.token_ids[: min(LONE.get(copy.match, size), size)]
            later = [self._later["lone"]] * (len(token_ids) - 1)
            return Lookup(token_ids, self._copies["lone", match], later, copy.start)
        token_ids = copy.token_ids[: min(max(1, agreed) + PARTED, size)]
        rates = self._copies["agreed", match] if agreed else self._copies["contested", 0]
        later = [self._later["agreed" if i < agreed else "parted"] for i in range(1, len(token_ids))]
        return Lookup(token_ids, rates, later, copy.start)


class Lookup:
    """The tokens of a copy (none: there is none), what was seen of such copies, for each later token what was seen of
    such, and the place in the text that it begins at."""

    def __init__(self, token_ids: tuple[int, ...], rates: CopyRates, later: list[Rate], start: int = 0) -> None:
        self.token_ids, self.rates, self.later, self.start = token_ids, rates, later, start
        chances = {rate: rate() for rate in set(later)}
        self.chances = [chances[rate] for rate in later]
