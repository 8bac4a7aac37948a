"""A drafter of random trees."""

import random
from collections.abc import Sequence
from typing import Any

import torch

from engine.core.interfaces import Draft, Drafter
from tests.helpers.races import a_tree

LAYERS = (1, 3)


class TreeDrafter(Drafter):
    """Trees drawn by chance, most of them with a right path in them."""

    hidden_layers = LAYERS

    def __init__(self, text: Sequence[int], seed: int, vocab_size: int) -> None:
        self._text, self._random, self._vocab_size = text, random.Random(seed), vocab_size
        self.hidden: list[torch.Tensor] = []

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self._num_prompt = len(prompt_ids)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        if hidden is not None:
            self.hidden.append(hidden.clone())
        left = self._text[len(token_ids) - self._num_prompt :]
        ids, parents = a_tree(self._random, self._random.randint(0, k), left, self._vocab_size)
        return Draft(tuple(ids), parents=tuple(parents))
