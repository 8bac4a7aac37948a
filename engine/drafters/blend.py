"""`auto` k over copies and a drafter that goes token by token: one draft of both. Standard library only.

At each place of a draft three things may come next: nothing, the copy of what followed the longest match of the text and the draft so far, or another token
of the drafter with a model ("the head"), which costs time. A copy is free but for the rows that verify it, and ends the draft. Whether it is right shows best
in whether the head says the same, then in whether two equally long matches go on alike: seen on recorded text (structured and prose), the
first token of a copy of 4 or more matching tokens held in 0.97 of cases where two such matches agreed, in 0.81 where there was one, and in 0.2 where two
parted at once; of lone ones in 0.94 where the head said the same, in 0.58 where it did not. So before a copy is believed the head may be asked for a
token, and what follows is the copy where they agree, else the likelier of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from operator import add
from typing import Any

from ..interfaces import Draft
from .ngram import Copy
from .rates import PRIOR, AcceptanceRates, DraftTime, MarginRates, Rate, best_length, num_matching

LONE = {1: 3, 2: 7}
"""Match length -> how many tokens of a copy are weighed on the word of a single earlier occurrence; all where longer."""
PARTED = 3
"""How many are weighed after the place where two equally long matches part."""
LENGTHS = (4, 2, 1)
"""Match lengths that are told apart, each with those up to the next longer."""
Like = tuple[str, int]
FIRST: dict[Like, tuple[float, float, float]] = {
    ("agreed", 1): (0.65, 0.55, 0.25),
    ("agreed", 2): (0.85, 0.65, 0.55),
    ("agreed", 4): (0.95, 0.75, 0.8),
    ("lone", 1): (0.3, 0.25, 0.12),
    ("lone", 2): (0.55, 0.4, 0.25),
    ("lone", 4): (0.8, 0.6, 0.5),
    ("contested", 0): (0.2, 0.2, 0.08),
}
"""Of copies by their like, before anything was seen: that the first token is right; that the head says the same; that it is right where the head does not."""
SAME = {"agreed": 0.95, "lone": 0.95, "contested": 0.65}
"""That a copy's first token is right where the head says the same."""
LATER = {"agreed": 0.9, "lone": 0.8, "parted": 0.5}
"""That a later token is right if those before it are: where two matches agree, where there is one, and after the place where two part."""
WEIGHT = 4.0
"""How many copies these beliefs are worth."""
Judge = Callable[[bool], None]


class _Lookup:
    """A copy, and what is believed of it. size: how many tokens there is room for."""

    def __init__(self, copy: Copy, size: int, later: dict[str, Rate]) -> None:
        agreed = copy.num_agreed
        num = LONE.get(copy.match, size) if agreed is None else max(1, agreed) + PARTED
        self.token_ids = copy.token_ids[: min(num, size)]
        self.kind = "lone" if agreed is None else "agreed" if agreed else "contested"
        self.like: Like = (self.kind, 0 if self.kind == "contested" else next((n for n in LENGTHS if copy.match >= n), 1))
        self.later = [later["lone" if agreed is None else "agreed" if i < agreed else "parted"] for i in range(1, len(self.token_ids))]
        self.chances = [rate() for rate in self.later]


class Blend:
    """One of the parts of an `AutoDrafter`: a step is `begin`, `best`, then `take` or `leave`; the next one starts with `learn`.

    copies: an `NgramDrafter`; head: a drafter with `propose_while`; one of them may be None. draft_s: what the head's drafts cost, lookups included.
    For rules under which drafts may depend on what was drafted before."""

    offered: Draft | None = None

    def __init__(self, copies: Any, head: Any, draft_s: DraftTime, step_s: Sequence[float], clock: Callable[[], float]) -> None:
        self.draft_s, self._copies, self._head = draft_s, copies, head
        self._step_s, self._clock = step_s, clock
        self._alone, self._same, self._despite = ({like: Rate(beliefs[i], WEIGHT) for like, beliefs in FIRST.items()} for i in range(3))
        self._both = {kind: Rate(belief, WEIGHT) for kind, belief in SAME.items()}
        self._later = {kind: Rate(belief, WEIGHT) for kind, belief in LATER.items()}
        self._nothing = _Lookup(Copy(), 0, self._later)
        self._sure, self._by_place = MarginRates(), AcceptanceRates(PRIOR)
        self.limit = 0
        self.spent_s = self._rate = 0.0
        self._asked: list[int] = []
        self._judged: list[tuple[int, tuple[Judge, ...]]] = []
        self._beside: list[tuple[int, int, Judge]] = []

    def begin(self, token_ids: Sequence[int], hidden: Any, k: int) -> None:
        """Look for a copy."""
        self.limit = min(k, self._head.max_k) if self._head else 0
        self.spent_s = 0.0
        self._token_ids, self._k = token_ids, k
        self._asked, self._judged, self._beside = [], [], []
        self._draft: list[int] = []
        self._reached = 1.0
        self._chances = list(islice(self._by_place.chances(), self.limit))
        self._draft_s = [self.draft_s(num) if num else 0.0 for num in range(self.limit + 1)]
        self._whole_s = list(map(add, self._draft_s, self._step_s))
        self._lookup = self._look()

    def best(self, rate: float) -> tuple[float, int]:
        """(what the draft is expected to be worth beyond a step without one, in tokens, 1); (0, 0) where none pays. rate: what a second is worth."""
        self._rate = rate
        worth = max(self._copied()[0], self._worth_asking())
        return (worth, 1) if worth > 0 else (0.0, 0)

    def take(self, token_ids: Sequence[int], hidden: Any, num: int, rate: float) -> Draft:
        """The draft that pays best; where rate is 0 a token of the head is asked for, to find out."""
        if rate and not self._ask_next():
            self._copy(self._copied()[1], self._alone[self._lookup.like].add)
            self.leave(token_ids, hidden)
        else:
            started = self._clock()
            self._head.propose_while(token_ids, self._rows(hidden), self.limit if rate else 1, self._go_on)
            if self._asked:
                self.draft_s.add(len(self._asked), self._clock() - started)
            self.spent_s = self.draft_s(len(self._asked)) if self._asked else 0.0
        return Draft(tuple(self._draft))

    def leave(self, token_ids: Sequence[int], hidden: Any) -> None:
        """Draft nothing more; the head takes its hidden rows, and a copy that was not wanted is judged all the same."""
        if self._head:
            self._head.propose(token_ids, self._rows(hidden), 0)
        if not self._judged and self._lookup.token_ids:
            self._copy(0, self._alone[self._lookup.like].add)

    def learn(self, written: Sequence[int], step: int) -> None:
        """Compare what was drafted, or could have been, with what was written."""
        num_right = num_matching([token_id for token_id, _ in self._judged], written)
        for i, (_, judges) in enumerate(self._judged[: min(num_right + 1, len(written))]):
            for judge in judges:
                judge(i < num_right)
        for place, token_id, judge in self._beside:
            if place <= num_right and place < len(written):
                judge(token_id == written[place])
        if self._asked:
            ids = self._asked[: len(written)]
            self._by_place.add(len(ids), num_matching(ids, written), step)

    def _look(self) -> _Lookup:
        size = self._k - len(self._draft)
        if not self._copies or size <= 0:
            return self._nothing
        return _Lookup(self._copies.look(self._token_ids, self._draft, size), size, self._later)

    def _copied(self, first: float | None = None) -> tuple[float, int]:
        """(worth of the copy from here on, its best length); first: the chance of its first token where it is known better."""
        ids, num = self._lookup.token_ids, len(self._draft)
        if not ids:
            return 0.0, 0
        costs = [step_s - self._step_s[num] for step_s in self._step_s[num + 1 : num + 1 + len(ids)]]
        return best_length((self._alone[self._lookup.like]() if first is None else first, *self._lookup.chances), self._reached, costs, self._rate)

    def _more(self, num: int, reached: float, num_paid: int) -> float:
        """What the head's tokens are worth after the first `num`, of which `num_paid` have been asked for."""
        base = self._draft_s[num_paid] + self._step_s[num]
        costs = [whole_s - base for whole_s in self._whole_s[num + 1 :]]
        return best_length(self._chances[num:], reached, costs, self._rate)[0]

    def _worth_asking(self) -> float:
        """What it is worth to ask the head for the next token, and then to do what seems best."""
        num = len(self._draft)
        if num >= self.limit:
            return 0.0
        if not self._lookup.token_ids:
            return self._more(num, self._reached, num)
        like = self._lookup.like
        same = self._same[like]()
        otherwise = max(self._copied(self._despite[like]())[0], self._more(num, self._reached, num + 1))
        return same * self._copied(self._both[self._lookup.kind]())[0] + (1 - same) * otherwise - self._rate * (self._draft_s[num + 1] - self._draft_s[num])

    def _ask_next(self) -> bool:
        worth = self._worth_asking()
        return worth > 0 and worth > self._copied()[0]

    def _go_on(self, token_id: int, margin: float) -> bool:
        """Told the head's next token: whether to ask for another."""
        self._asked.append(token_id)
        num, lookup, like = len(self._draft), self._lookup, self._lookup.like
        chance = self._sure.chance(margin)
        judges: tuple[Judge, ...] = (lambda kept: self._sure.add(margin, kept),)
        if lookup.token_ids:
            same = token_id == lookup.token_ids[0]
            self._same[like].add(same)
            if same:
                chance = copied = self._both[lookup.kind]()
                judges = (self._both[lookup.kind].add, self._alone[like].add, *judges)
            else:
                copied = self._despite[like]()
                chance *= 1 - copied
                judges = (self._despite[like].add, self._alone[like].add)
            worth, length = self._copied(copied)
            ahead = self._reached * chance
            if worth >= ahead - self._rate * (self._step_s[num + 1] - self._step_s[num]) + self._more(num + 1, ahead, num + 1) and (length or same):
                self._copy(max(1, length), *judges)
                return False
            if not same:
                self._beside += ((num, lookup.token_ids[0], judge) for judge in judges)
                judges = ()
        self._reached *= chance
        self._judged.append((token_id, judges))
        self._draft.append(token_id)
        self._lookup = self._look()
        if self._ask_next():
            return True
        if self._lookup.token_ids:
            self._copy(self._copied()[1], self._alone[self._lookup.like].add)
        return False

    def _copy(self, num: int, *first: Judge) -> None:
        """End the draft with the copy's first `num` tokens. All that were found are judged."""
        ids = self._lookup.token_ids
        self._judged += zip(ids, (first, *((rate.add,) for rate in self._lookup.later)), strict=False)
        self._draft += ids[:num]

    def _rows(self, hidden: Any) -> Any:
        return hidden if self._head.hidden_layers else None
