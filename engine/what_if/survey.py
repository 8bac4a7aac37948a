"""A lane that times drafts and steps by drafting a different number of tokens at each step. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.interfaces import Draft, Drafter


class SurveyDrafter(Drafter):
    """Asks `drafter` for 1, 2, ... tokens in turn, up to the k it is called with, then starts over. The lane writes the
    same tokens as any other."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter, self._num_asked = drafter, 0
        self.hidden_layers, self.max_k, self.synthetic = drafter.hidden_layers, drafter.max_k, drafter.synthetic

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self._num_asked = 0
        self._drafter.prefill(prompt_ids, hidden)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        if k == 0:
            return self._drafter.propose(token_ids, hidden, 0)
        self._num_asked += 1
        return self._drafter.propose(token_ids, hidden, (self._num_asked - 1) % min(k, self.max_k) + 1)
