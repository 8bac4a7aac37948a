"""k "auto" without a tree: a draft's length from measured costs and a running average of acceptance. For drafters that
cannot rate tokens, and for rules that weigh drafts by their logits. Standard library only.

The length depends on the committed tokens, on time, and on how many tokens were proposed, never on which: that would
bias the output under rule `rejection`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..core.interfaces import Draft, Drafter
from .pace import Pace, SizeTime

PRIOR, PRIOR_TOKENS = 0.75, 4.0  # prior acceptance of a token, and how many tokens it is worth
FORGET = 0.97  # how much less each draft weighs than the one after it
PATIENCE = 32  # steps without a draft before a token is drafted to find out whether it pays by now
CALIBRATIONS = 2  # how often a short and a long draft are timed before the race


class ByRateDrafter(Drafter):
    """Drafts with `drafter` as many tokens as pay, or none. step_s: seconds of the target's step that verifies 0, 1,
    ... drafted tokens; its length limits a draft."""

    def __init__(
        self, drafter: Drafter, step_s: Sequence[float], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.drafter = drafter
        self.hidden_layers, self.synthetic, self.memory = drafter.hidden_layers, drafter.synthetic, drafter.memory
        self._step_s, self._clock = tuple(step_s), clock
        self.draft_s = SizeTime()
        self._start(0)

    def calibrate(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        """Time a short and a long draft, before the race. Arguments: see `prefill`. Raises whatever the drafter
        raises."""
        for num in (len(self._step_s) - 1, 1) * CALIBRATIONS:
            self.drafter.prefill(prompt_ids, hidden)
            self._draft(prompt_ids, None, num)

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        """See `interfaces.Drafter`. Forgets what it learned about acceptance, but not what drafts cost."""
        self._start(len(prompt_ids))
        self.drafter.prefill(prompt_ids, hidden)

    def _start(self, num_tokens: int) -> None:
        self._pace = Pace(self._step_s)
        self._tried, self._kept = PRIOR_TOKENS, PRIOR * PRIOR_TOKENS
        self._num_tokens, self._num_drafted, self._num_idle, self._last_s = num_tokens, 0, 0, 0.0

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        """See `interfaces.Drafter`; k is an upper limit."""
        self._learn(len(token_ids) - self._num_tokens)
        self._num_tokens = len(token_ids)
        k = min(k, len(self._step_s) - 1, self.drafter.max_k)
        num = self._best_length(k) or min(k, int(self._num_idle >= PATIENCE))
        draft = self._draft(token_ids, hidden, num)
        self._num_drafted, self._num_idle = len(draft), 0 if num else self._num_idle + 1
        self._last_s = (self.draft_s(len(draft)) if num else 0.0) + self._step_s[len(draft)]
        return draft

    def _draft(self, token_ids: Sequence[int], hidden: Any, num: int) -> Draft:
        started = self._clock()
        draft = self.drafter.propose(token_ids, hidden, min(num, self.drafter.max_k))
        if num:
            self.draft_s.add(len(draft), self._clock() - started)
        return draft

    def _best_length(self, k: int) -> int:
        """The length up to k that is worth most; 0 if none pays."""
        best, length, expected, reached = 0.0, 0, 0.0, 1.0
        for num in range(1, k + 1):
            reached *= self._kept / self._tried
            expected += reached
            worth = expected - self._pace.rate * (self.draft_s(num) + self._step_s[num] - self._step_s[0])
            if worth > best:
                best, length = worth, num
        return length

    def _learn(self, num_written: int) -> None:
        """Take in how many tokens the last step committed: those accepted, then one of the target's own."""
        if not num_written:
            return
        num_kept = min(num_written - 1, self._num_drafted)
        self._tried = FORGET * self._tried + min(num_kept + 1, self._num_drafted)
        self._kept = FORGET * self._kept + num_kept
        self._pace.add(num_written, self._last_s)
