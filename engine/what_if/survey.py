"""A lane that finds out what drafts and steps cost: it drafts another number of tokens at each step. Standard library
only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..interfaces import Draft, Drafter


class SurveyDrafter(Drafter):
    """Asks `drafter` for 1, 2, ... tokens in turn, up to as many as it is asked for, then begins again. The lane writes
    the same tokens as every other."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter, self._num_asked = drafter, 0
        self.hidden_layers, self.max_k, self.synthetic = drafter.hidden_layers, drafter.max_k, drafter.synthetic

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self._num_asked = 0
        self._drafter.prefill(prompt_ids, hidden)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        """See `interfaces.Drafter`."""
        if k == 0:
            return self._drafter.propose(token_ids, hidden, 0)
        self._num_asked += 1
        return self._drafter.propose(token_ids, hidden, (self._num_asked - 1) % min(k, self.max_k) + 1)
