"""`auto` k over copies and a drafter that knows how sure it is: one draft of both. Standard library only.

At each place of a draft three things may come next: nothing, the copy of what followed the longest match of the text
and the draft so far, or another token of the drafter with a model ("the head"), which costs time. A copy costs only the
rows that verify it, and ends the draft. The best evidence for it is that the head agrees, then that two equally long
matches continue alike (the shares are in `beliefs.py`). So before a copy is trusted the head may draft a token; the
copy follows if they agree, else the likelier of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from operator import add, mul
from typing import Any

from ..interfaces import Draft, MarginDrafter
from .beliefs import Beliefs, chance_of_same, when_asked, where_other, where_same
from .ngram import Copy, NgramDrafter
from .rates import DraftTime, num_matching

Judge = Callable[[bool], None]
"""Called with whether a token was right."""


class Blend:
    """One of the parts of an `AutoDrafter`: a step is `begin`, `best`, then `take` or `leave`; the next one starts with
    `learn`.

    One of `copies` and `head` may be None. draft_s: the head's draft times, lookups included. Only for rules under
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
        """(the expected value of the best draft in tokens, compared with a step without one; 1); (0, 0) if none pays.
        rate: the value of a second."""
        self._open.rate = rate
        worth = self._open.worth()
        return (worth, 1) if worth > 0 else (0.0, 0)

    def take(self, token_ids: Sequence[int], hidden: Any, num: int, rate: float) -> Draft:
        """The draft that pays best; at rate 0 a token of the head is drafted in any case, to find out."""
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
        """Draft nothing more; the head takes its hidden rows."""
        if self._head:
            self._head.propose(token_ids, self._rows(hidden), 0)

    def learn(self, written: Sequence[int], step: int) -> None:
        """Compare what was drafted, or could have been, with what was written."""
        self._open.learn(written)

    def _rows(self, hidden: Any) -> Any:
        return hidden if self._head and self._head.hidden_layers else None


class OpenDraft:
    """One step's draft in the making: tokens of the head, then perhaps a copy, which ends it.

    `token_ids` is the draft so far, `asked` all of the head's tokens, also one that a copy replaced. Worths are in
    tokens, compared with a step without a draft; `rate` is the worth of a second. limit: the most tokens the head may
    draft; k: the longest draft."""

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
        self._next = beliefs.next()
        self._next_sums = _sums([self._next] * limit)
        self._step_s, self._draft_s = step_s, [draft_s(num) if num else 0.0 for num in range(limit + 1)]
        self._both_s = list(map(add, self._draft_s, step_s))
        self.rate = 0.0
        self.token_ids: list[int] = []
        self.asked: list[int] = []
        self.copied: tuple[int, ...] = ()
        self._reached = 1.0  # the chance that the draft so far is right
        self._claims: list[tuple[int, Sequence[int], Sequence[Judge]]] = []  # (place, tokens from there on, judges)
        self._look()

    def worth(self) -> float:
        """Worth of the best draft."""
        return max(self._worth_of_copy()[0], self._worth_of_asking())

    def head_pays(self) -> bool:
        """Whether another token of the head pays better than ending with the copy, or here."""
        worth = self._worth_of_asking()
        return worth > 0 and worth > self._worth_of_copy()[0]

    def go_on(self, token_id: int, margin: float) -> bool:
        """Takes the head's next token; returns whether to draft another. A token whose row does not pay is left out,
        and ends the draft."""
        self.asked.append(token_id)
        of_margin = self._beliefs.of_margin
        chance = of_margin(margin)
        self._claims.append((len(self.token_ids), (token_id,), (partial(of_margin.add, margin),)))
        if self._copy_chances:
            if token_id == self._copy.token_ids[0]:
                first = chance = where_same(self._copy_chances[0], chance)
            else:
                first, chance = where_other(self._copy_chances[0], chance)
            worth, length = self._worth_of_copy(first)
            if length and worth >= self._worth_of_token(chance):
                self._end(length)
                return False
        row_s = self._step_s[len(self.token_ids) + 1] - self._step_s[len(self.token_ids)]
        if self._reached * chance <= self.rate * row_s and self._worth_of_token(chance) <= 0:
            return False
        self._reached *= chance
        self.token_ids.append(token_id)
        self._look()
        if self.head_pays():
            return True
        self.end_with_copy()
        return False

    def end_with_copy(self) -> None:
        """Append as much of the copy as pays."""
        self._end(self._worth_of_copy()[1])

    def learn(self, written: Sequence[int]) -> None:
        """Compare with what was written."""
        num_right = num_matching(self.token_ids, written)
        for place, ids, judges in self._claims:
            if place <= num_right:
                for is_right, judge in zip(_fates(ids, written[place:]), judges, strict=False):
                    judge(is_right)
        for is_right in _fates(self.asked, written):
            self._beliefs.next.add(is_right)

    def _end(self, num: int) -> None:
        """Append the first `num` tokens of the copy."""
        if num:
            self.copied = len(self.token_ids), self._copy.start
            self.token_ids += self._copy.token_ids[:num]

    def _look(self) -> None:
        """Find the copy that may follow the draft so far."""
        self._copy = Copy()
        self._copy_chances: list[float] = []
        size = self._k - len(self.token_ids)
        if self._copies and size > 0:
            self._copy = self._copies.look(self._committed, self.token_ids, size)
            rates = self._beliefs.of_copy(self._copy)
            chances = {rate: rate() for rate in set(rates)}
            self._copy_chances = [chances[rate] for rate in rates]
            self._copy_sums = _sums([1.0, *self._copy_chances[1:]])
            self._claims.append((len(self.token_ids), self._copy.token_ids, [rate.add for rate in rates]))

    def _worth_of_copy(self, first: float | None = None) -> tuple[float, int]:
        """(worth of ending with the copy, its best length). first: the chance of its first token, if known better."""
        if not self._copy_chances:
            return 0.0, 0
        num = len(self.token_ids)
        reached = self._reached * (self._copy_chances[0] if first is None else first)
        worths = self._worths(reached, self._copy_sums, self._step_s, num)
        worth = max(worths)
        return (worth, worths.index(worth) + 1) if worth > 0 else (0.0, 0)

    def _worth_of_token(self, chance: float) -> float:
        """Worth of appending the head's token, which is known, and of those that may follow. chance: of that token."""
        num, reached = len(self.token_ids), self._reached * chance
        row_s = self._step_s[num + 1] - self._step_s[num]
        return reached - self.rate * row_s + self._worth_of_more(num + 1, reached)

    def _worth_of_more(self, num: int, reached: float) -> float:
        """Worth of the head's tokens after the first `num`, which are known; reached: the chance of those."""
        return max([0.0, *self._worths(reached, self._next_sums, self._both_s, num)])

    def _worths(self, reached: float, sums: Sequence[float], seconds: Sequence[float], num: int) -> list[float]:
        """Worths of 1, 2, ... tokens after the first `num`. sums: how many are right on average if all before are;
        reached: the chance of that; seconds: of a step by its number of tokens."""
        base_s, rate = seconds[num], self.rate
        return [
            reached * some - rate * (more_s - base_s) for some, more_s in zip(sums, seconds[num + 1 :], strict=False)
        ]

    def _worth_of_asking(self) -> float:
        """Worth of drafting the head's next token, and then doing what seems best. Its margin will be evidence, so two
        cases are weighed: it is sure, or not."""
        num = len(self.token_ids)
        if num >= self._limit:
            return 0.0
        if not self._copy_chances:
            return self._worth_of_more(num, self._reached)
        copy = self._copy_chances[0]
        worth = -self.rate * (self._draft_s[num + 1] - self._draft_s[num])
        for head, share in when_asked(self._next):
            same = chance_of_same(copy, head)
            of_copy, of_head = where_other(copy, head)
            other = max(self._worth_of_copy(of_copy)[0], self._worth_of_token(of_head))
            worth += share * (same * self._worth_of_copy(where_same(copy, head))[0] + (1 - same) * other)
        return worth


def _sums(chances: Sequence[float]) -> list[float]:
    """How many of the first 1, 2, ... tokens are right on average; chances: of each if those before it are."""
    return list(accumulate(accumulate(chances, mul)))


def _fates(ids: Sequence[int], written: Sequence[int]) -> Iterator[bool]:
    """For one token after the other, up to the first wrong one, whether it is right."""
    for token_id, true in zip(ids, written, strict=False):
        yield token_id == true
        if token_id != true:
            return
