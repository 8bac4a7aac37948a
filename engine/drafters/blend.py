"""`auto` k over copies and a drafter that says how sure it is: one draft of both. Standard library only.

At each place of a draft three things may come next: nothing, the copy of what followed the longest match of the text
and the draft so far, or another token of the drafter with a model ("the head"), which costs time. A copy is free but
for the rows that verify it, and ends the draft. Whether it is right shows best in whether the head says the same, then
in whether two equally long matches go on alike (the shares are in `beliefs.py`). So before a copy is believed the head
may be asked for a token; the copy follows where they agree, else the likelier of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from operator import add
from typing import Any

from ..interfaces import Draft, MarginDrafter
from .beliefs import Beliefs, Lookup
from .ngram import NgramDrafter
from .rates import DraftTime, Rate, best_length, num_matching

Rates = tuple[Rate, ...]
"""What is told whether a token was right."""


class Blend:
    """One of the parts of an `AutoDrafter`: a step is `begin`, `best`, then `take` or `leave`; the next one starts with
    `learn`.

    One of `copies` and `head` may be None. draft_s: what the head's drafts cost, lookups included. For rules under
    which drafts may depend on what was drafted before."""

    offered: Draft | None = None

    def __init__(
        self,
        copies: NgramDrafter | None,
        head: MarginDrafter | None,
        draft_s: DraftTime,
        step_s: Sequence[float],
        clock: Callable[[], float],
    ) -> None:
        self.draft_s, self._copies, self._head = draft_s, copies, head
        self._step_s, self._clock = step_s, clock
        self._beliefs = Beliefs()
        self.limit, self.spent_s = 0, 0.0
        self._open = OpenDraft(self._beliefs, None, (), 0, draft_s, 0, step_s)

    def begin(self, token_ids: Sequence[int], hidden: Any, k: int) -> None:
        """Look for a copy."""
        self.limit, self.spent_s = min(k, self._head.max_k) if self._head else 0, 0.0
        self._open = OpenDraft(self._beliefs, self._copies, token_ids, k, self.draft_s, self.limit, self._step_s)

    def best(self, rate: float) -> tuple[float, int]:
        """(what the draft is expected to be worth beyond a step without one, in tokens, 1); (0, 0) where none pays.
        rate: what a second is worth."""
        self._open.rate = rate
        worth = self._open.worth()
        return (worth, 1) if worth > 0 else (0.0, 0)

    def take(self, token_ids: Sequence[int], hidden: Any, num: int, rate: float) -> Draft:
        """The draft that pays best; where rate is 0 a token of the head is asked for, to find out."""
        draft = self._open
        if rate and not draft.head_pays():
            draft.end_with_copy()
            self.leave(token_ids, hidden)
        else:
            assert self._head is not None
            started = self._clock()
            self._head.propose_while(token_ids, self._rows(hidden), self.limit if rate else 1, draft.go_on)
            num_asked = len(draft.asked)
            if num_asked:
                self.draft_s.add(num_asked, self._clock() - started)
            self.spent_s = self.draft_s(num_asked) if num_asked else 0.0
        return Draft(tuple(draft.token_ids), copied=draft.copied)

    def leave(self, token_ids: Sequence[int], hidden: Any) -> None:
        """Draft nothing more; the head takes its hidden rows, and a copy that was not wanted is judged all the same."""
        if self._head:
            self._head.propose(token_ids, self._rows(hidden), 0)
        self._open.judge_unused_copy()

    def learn(self, written: Sequence[int], step: int) -> None:
        """Compare what was drafted, or could have been, with what was written."""
        self._open.learn(written, step)

    def _rows(self, hidden: Any) -> Any:
        return hidden if self._head and self._head.hidden_layers else None


class OpenDraft:
    """One step's draft while it is made: tokens of the head, then perhaps a copy, which ends it.

    `token_ids` is the draft so far, `asked` the head's tokens, also one that a copy took the place of. Worths are in
    tokens beyond a step without a draft; `rate` is what a second is worth. limit: how many tokens the head may be asked
    for, k: how long a draft may be."""

    def __init__(
        self,
        beliefs: Beliefs,
        copies: NgramDrafter | None,
        committed: Sequence[int],
        k: int,
        draft_s: DraftTime,
        limit: int,
        step_s: Sequence[float],
    ) -> None:
        self._beliefs, self._copies, self._committed, self._k, self._limit = beliefs, copies, committed, k, limit
        self._chances = list(islice(beliefs.by_place.chances(), limit))
        self._step_s, self._draft_s = step_s, [draft_s(num) if num else 0.0 for num in range(limit + 1)]
        self._both_s = list(map(add, self._draft_s, step_s))
        self.rate = 0.0
        self.token_ids: list[int] = []
        self.asked: list[int] = []
        self.copied: tuple[int, ...] = ()
        self._reached = 1.0  # the chance that the draft so far is right
        self._judged: list[tuple[int, Rates]] = []  # what stands in the draft, or might have followed it
        self._beside: list[tuple[int, int, Rates]] = []  # (place, token) of copies that the head's tokens took over
        self._lookup = self._look()

    def worth(self) -> float:
        """Of the best draft."""
        return max(self._worth_of_copy(self._lookup.rates.right)[0], self._worth_of_asking())

    def head_pays(self) -> bool:
        """Whether it pays better to ask the head for its next token than to end with the copy, or with nothing."""
        worth = self._worth_of_asking()
        return worth > 0 and worth > self._worth_of_copy(self._lookup.rates.right)[0]

    def go_on(self, token_id: int, margin: float) -> bool:
        """Told the head's next token: whether to ask for another."""
        self.asked.append(token_id)
        by_margin = self._beliefs.of_margin(margin)
        if not self._lookup.token_ids:
            return self._append(token_id, by_margin(), (by_margin,))
        if token_id == self._lookup.token_ids[0]:
            return self._agree(token_id, by_margin)
        return self._disagree(token_id, by_margin())

    def end_with_copy(self) -> None:
        """Append as much of the copy as pays."""
        right = self._lookup.rates.right
        self._end(self._worth_of_copy(right)[1], (right,))

    def judge_unused_copy(self) -> None:
        """Where nothing was drafted: see what a copy would have been worth."""
        if not self._judged:
            self._end(0, (self._lookup.rates.right,))

    def learn(self, written: Sequence[int], step: int) -> None:
        """Compare with what was written."""
        num_right = num_matching([token_id for token_id, _ in self._judged], written)
        for i, (_, rates) in enumerate(self._judged[: min(num_right + 1, len(written))]):
            for rate in rates:
                rate.add(i < num_right)
        for place, token_id, rates in self._beside:
            if place <= num_right and place < len(written):
                for rate in rates:
                    rate.add(token_id == written[place])
        if self.asked:
            ids = self.asked[: len(written)]
            self._beliefs.by_place.add(len(ids), num_matching(ids, written), step)

    def _agree(self, token_id: int, by_margin: Rate) -> bool:
        """The head says what the copy does: go on with the rest of the copy, or with the head."""
        rates = self._lookup.rates
        rates.same.add(True)
        chance, judges = rates.confirmed(), (rates.confirmed, rates.right, by_margin)
        worth, length = self._worth_of_copy(rates.confirmed)
        if worth >= self._worth_of_token(chance):
            return self._end(max(1, length), judges)
        return self._append(token_id, chance, judges)

    def _disagree(self, token_id: int, chance: float) -> bool:
        """The head says something else than the copy: take the likelier. chance: that the head is right, by its
        margin."""
        rates = self._lookup.rates
        rates.same.add(False)
        judges = (rates.despite, rates.right)
        chance *= 1 - rates.despite()
        worth, length = self._worth_of_copy(rates.despite)
        if length and worth >= self._worth_of_token(chance):
            return self._end(length, judges)
        self._beside.append((len(self.token_ids), self._lookup.token_ids[0], judges))
        return self._append(token_id, chance, ())

    def _append(self, token_id: int, chance: float, judges: Rates) -> bool:
        """Append the head's token. Whether to ask for another; where not, the copy of what follows is appended as far
        as it pays."""
        self._reached *= chance
        self._judged.append((token_id, judges))
        self.token_ids.append(token_id)
        self._lookup = self._look()
        if self.head_pays():
            return True
        if self._lookup.token_ids:
            self.end_with_copy()
        return False

    def _end(self, num: int, first: Rates) -> bool:
        """End the draft with the copy's first `num` tokens. All that were found are judged, the first by the rates
        `first`. False: the head is asked no more."""
        ids = self._lookup.token_ids
        if num:
            self.copied = len(self.token_ids), self._lookup.start
        self._judged += zip(ids, (first, *((rate,) for rate in self._lookup.later)), strict=False)
        self.token_ids += ids[:num]
        return False

    def _look(self) -> Lookup:
        """The copy that may follow the draft so far."""
        size = self._k - len(self.token_ids)
        if not self._copies or size <= 0:
            return self._beliefs.nothing
        return self._beliefs.of_copy(self._copies.look(self._committed, self.token_ids, size), size)

    def _worth_of_copy(self, first: Rate) -> tuple[float, int]:
        """(worth of ending with the copy, its best length); first: what was seen of first tokens such as its own."""
        ids, num = self._lookup.token_ids, len(self.token_ids)
        if not ids:
            return 0.0, 0
        base_s = self._step_s[num]
        costs = [step_s - base_s for step_s in self._step_s[num + 1 : num + 1 + len(ids)]]
        return best_length((first(), *self._lookup.chances), self._reached, costs, self.rate)

    def _worth_of_token(self, chance: float) -> float:
        """Worth of appending the head's token, which was asked for, and of the tokens that it may say next. chance: of
        that token."""
        num, reached = len(self.token_ids), self._reached * chance
        row_s = self._step_s[num + 1] - self._step_s[num]
        return reached - self.rate * row_s + self._worth_of_more(num + 1, reached, num + 1)

    def _worth_of_more(self, num: int, reached: float, num_paid: int) -> float:
        """Worth of the head's tokens after the first `num`, of which `num_paid` have been asked for; reached: the
        chance of the first."""
        base_s = self._draft_s[num_paid] + self._step_s[num]
        costs = [both_s - base_s for both_s in self._both_s[num + 1 :]]
        return best_length(self._chances[num:], reached, costs, self.rate)[0]

    def _worth_of_asking(self) -> float:
        """Worth of asking the head for the next token, and then of doing what seems best."""
        num = len(self.token_ids)
        if num >= self._limit:
            return 0.0
        if not self._lookup.token_ids:
            return self._worth_of_more(num, self._reached, num)
        rates = self._lookup.rates
        same, asking_s = rates.same(), self._draft_s[num + 1] - self._draft_s[num]
        agreed = self._worth_of_copy(rates.confirmed)[0]
        other = max(self._worth_of_copy(rates.despite)[0], self._worth_of_more(num, self._reached, num + 1))
        return same * agreed + (1 - same) * other - self.rate * asking_s
