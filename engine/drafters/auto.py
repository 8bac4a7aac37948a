"""`auto` k: how many tokens to draft, decided step by step from measured costs and a running estimate of acceptance.
Standard library only.

A step that drafts m tokens commits E(m) = 1 + a1 + a1 a2 + ... on average (a: conditional acceptance by position in the
draft) and takes D(m) + V(m) seconds: the draft, and the verification at the width that holds m + 1. A second is worth
`rate` tokens, which is what the lane achieves; so the m is taken that maximises E(m) - rate * (D(m) + V(m)). In the
long run that maximises tokens per second (Dinkelbach 1967), also where one step has better chances than the next.

Copies and a drafter that knows how sure it is of each token (`MarginDrafter`) make one draft together (`blend.py`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from ..interfaces import Draft, Drafter, MarginDrafter
from .blend import Blend
from .ngram import NgramDrafter
from .rates import PRIOR, AcceptanceRates, DraftTime, best_length, num_matching

PRIOR_OFFERED = 0.9
"""Prior acceptance of a draft that costs nothing. Measured (simulated with the default model,
gemma-3-270m; docs/log.md, 2026-11-21, fifth session): at 0.75, 0.6 and 0.5 the hybrid lost 1.4 to 3 %."""
RATE_STEPS, RATE_PRIOR, RATE_TOKENS = 64, 8, 2
"""Steps over which the achieved rate is averaged; how many it starts from, each as long as one without a draft, and of
how many tokens. Measured (simulated; docs/log.md, 2026-11-22, `auto` judged by the oracle): 32 and 200 steps, a start
from 2 or 4, change nothing; a start from 1 token a step loses 0.3 % (median)."""
EXPLORE = 0.01
"""Share of the time that may be spent on finding out whether drafting has begun to pay. Chosen by hand, never measured
alone; so are the next two."""
CHEAP = 0.02
"""A drafter whose longest draft takes less than this share of a step always drafts it, and the draft is cut to what
pays."""
CALIBRATIONS = 2
"""How often a short and a long draft are timed before the race."""


class AutoDrafter(Drafter):
    """Drafts with `drafter` as many tokens as pay, or none. If a hybrid's parts cannot make one draft together, each is
    judged by itself, and the part drafts whose draft is worth most.

    step_s: seconds of the target's step that verifies 0, 1, ... drafted tokens; its length limits a draft. Every part
        sees every commit and takes its hidden rows at every call.
    by_margin: whether a draft may depend on its own earlier tokens, and on how sure the drafter was. If not (rule
        `rejection`), its length depends on the committed tokens, on time, and on how many tokens were proposed, never
        on which: that would bias the output.
    """

    def __init__(
        self,
        drafter: Drafter,
        step_s: Sequence[float],
        clock: Callable[[], float] = time.perf_counter,
        by_margin: bool = True,
    ) -> None:
        self.drafters = drafter.parts or (drafter,)
        self.hidden_layers, self.synthetic, self.memory = drafter.hidden_layers, drafter.synthetic, drafter.memory
        self._step_s, self._clock, self.by_margin = tuple(step_s), clock, by_margin
        self.draft_s = tuple(DraftTime() for _ in self.drafters)
        """The last measured cost of each one's drafts."""
        self._start(0)

    def calibrate(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        """Time a short and a long draft of each part, before the race. Arguments: see `prefill`. Raises whatever a
        drafter raises."""
        for drafter, draft_s in zip(self.drafters, self.draft_s, strict=True):
            for num in (len(self._step_s) - 1, 1) * CALIBRATIONS:
                drafter.prefill(prompt_ids, _rows(drafter, hidden))
                started = self._clock()
                draft = drafter.propose(prompt_ids, None, min(num, drafter.max_k))
                draft_s.add(len(draft), self._clock() - started)

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        """See `interfaces.Drafter`. Forgets what it learned about acceptance, but not what drafts cost."""
        self._start(len(prompt_ids))
        for drafter in self.drafters:
            drafter.prefill(prompt_ids, _rows(drafter, hidden))

    def _start(self, num_tokens: int) -> None:
        self._parts = self._blended() or [
            _Part(*known, self._step_s, self._clock) for known in zip(self.drafters, self.draft_s, strict=True)
        ]
        self._num_tokens, self._num_steps = num_tokens, 0
        self._written, self._time_s = float(RATE_PRIOR * RATE_TOKENS), RATE_PRIOR * self._step_s[0]
        self._last_s = self._step_s[0]
        self._credit_s = 0.0
        self._probing = False

    def _blended(self) -> list[_Part | Blend]:
        """The parts as one, if they can draft together: at most one of each kind, and copies that cost next to
        nothing."""
        known = list(zip(self.drafters, self.draft_s, strict=True))
        copies = [(drafter, draft_s) for drafter, draft_s in known if isinstance(drafter, NgramDrafter)]
        heads = [(drafter, draft_s) for drafter, draft_s in known if isinstance(drafter, MarginDrafter)]
        if not self.by_margin or len(copies) > 1 or len(heads) > 1 or len(copies) + len(heads) < len(known):
            return []
        if any(draft_s.is_known and draft_s(len(self._step_s) - 1) > CHEAP * self._step_s[0] for _, draft_s in copies):
            return []
        head, draft_s = heads[0] if heads else (None, DraftTime())
        return [Blend(copies[0][0] if copies else None, head, draft_s, self._step_s, self._clock)]

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        """See `interfaces.Drafter`; k is the most that may be drafted."""
        self._learn(token_ids)
        k = min(k, len(self._step_s) - 1)
        rate = self._written / self._time_s
        value, num, chosen = 0.0, 0, None
        for part in self._parts:
            part.begin(token_ids, hidden, k)
            part_value, part_num = part.best(rate)
            if part_value > value:
                value, num, chosen = part_value, part_num, part
        if chosen is None and k:
            chosen, num = self._probe(), 1
        draft, self._last_s = Draft(), self._step_s[0]
        for part in self._parts:
            if part is chosen:
                draft = part.take(token_ids, hidden, num, 0.0 if self._probing else rate)
                self._last_s = part.spent_s + self._step_s[len(draft)]
            else:
                part.leave(token_ids, hidden)
        return draft

    def _probe(self) -> _Part | Blend | None:
        """The part that drafts one token although that does not pay, if the time for finding out allows it."""
        for part in self._parts:
            cost = part.draft_s(1) + self._step_s[1] - self._step_s[0]
            if part.limit and part.offered is None and cost <= self._credit_s:
                self._credit_s -= cost
                self._probing = True
                return part
        return None

    def _learn(self, token_ids: Sequence[int]) -> None:
        """Take in what the last step committed: the accepted tokens of its draft, then one of the target's own."""
        written = token_ids[self._num_tokens :]
        self._num_tokens = len(token_ids)
        if not written:
            return
        self._num_steps += 1
        for part in self._parts:
            part.learn(written, self._num_steps)
        keep = 1 - 1 / RATE_STEPS
        self._written = keep * self._written + len(written)
        self._time_s = keep * self._time_s + self._last_s
        self._credit_s += EXPLORE * self._step_s[0]
        if self._probing:
            self._credit_s += (len(written) - 1) * self._time_s / self._written
            self._probing = False


class _Part:
    """A drafter with its costs and acceptance. A step is `begin`, `best`, then `take` or `leave`; the next one starts
    with `learn`."""

    def __init__(
        self, drafter: Drafter, draft_s: DraftTime, step_s: Sequence[float], clock: Callable[[], float]
    ) -> None:
        self.drafter, self.draft_s = drafter, draft_s
        self._step_s, self._clock = step_s, clock
        self._by_length: dict[int, AcceptanceRates] = {}
        self._when_asked = AcceptanceRates(PRIOR)
        self._rates = self._when_asked
        self._taken = self.limit = 0
        self.spent_s = 0.0
        self.offered: Draft | None = None
        """This step's draft if it was made before it was known to pay: a cheap one."""
        self._draft: Draft | None = None

    def begin(self, token_ids: Sequence[int], hidden: Any, k: int) -> None:
        """Find out how many tokens there are to choose from. The length of a cheap draft shows how far its drafter
        trusts it, so acceptance is kept by length."""
        self.limit, self._taken = min(k, self.drafter.max_k), 0
        self.offered = self._draft = None
        self._rates = self._when_asked
        if self.limit and self.draft_s.is_known and self.draft_s(self.limit) <= CHEAP * self._step_s[0]:
            self.offered = self._ask(token_ids, hidden, self.limit)
            self.limit = len(self.offered)
            self._rates = self._by_length.setdefault(self.limit.bit_length(), AcceptanceRates(PRIOR_OFFERED))

    def best(self, rate: float) -> tuple[float, int]:
        """(value of the best draft in tokens, compared with a step without one; its length); (0, 0) if none pays."""
        draft_s = [0.0 if self.offered is not None else self.draft_s(m) for m in range(1, self.limit + 1)]
        costs = [more + step_s - self._step_s[0] for more, step_s in zip(draft_s, self._step_s[1:], strict=False)]
        return best_length(islice(self._rates.chances(), self.limit), 1.0, costs, rate)

    def take(self, token_ids: Sequence[int], hidden: Any, num: int, rate: float) -> Draft:
        """A draft of at most `num` tokens."""
        draft = self._ask(token_ids, hidden, num) if self.offered is None else self.offered
        self._taken = min(num, len(draft))
        self.spent_s = self.draft_s(self._taken)
        return draft.first(self._taken)

    def leave(self, token_ids: Sequence[int], hidden: Any) -> None:
        """Draft nothing; take the hidden rows."""
        if self.offered is None:
            self.drafter.propose(token_ids, _rows(self.drafter, hidden), 0)

    def learn(self, written: Sequence[int], step: int) -> None:
        """Compare the last draft with what was written. A deterministic one is also judged beyond where it was cut."""
        if self._draft is None:
            return
        if self._draft.logits is None:
            ids = self._draft.token_ids[: len(written)]
            self._rates.add(len(ids), num_matching(ids, written), step)
        else:
            self._rates.add(self._taken, min(len(written) - 1, self._taken), step)

    def _ask(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        started = self._clock()
        draft = self._draft = self.drafter.propose(token_ids, _rows(self.drafter, hidden), k)
        self.draft_s.add(len(draft), self._clock() - started)
        return draft


def _rows(drafter: Drafter, hidden: Any) -> Any:
    return hidden if drafter.hidden_layers else None
