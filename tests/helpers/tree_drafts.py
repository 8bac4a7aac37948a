"""A drafter of random trees."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from engine.core.interfaces import Draft, Drafter

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
        at, draw = len(token_ids) - self._num_prompt, self._random
        ids: list[int] = []
        parents: list[int] = []
        depth, right = [0], 0
        for _ in range(draw.randint(0, k)):
            parent = right if draw.random() < 0.5 else draw.randrange(len(depth))
            place = at + depth[parent]
            true = self._text[place] if place < len(self._text) else None
            token = true if true is not None and draw.random() < 0.6 else draw.randrange(self._vocab_size)
            if (parent, token) in zip(parents, ids, strict=True):
                continue
            ids.append(token)
            parents.append(parent)
            depth.append(depth[parent] + 1)
            right = len(ids) if token == true and parent == right else right
        return Draft(tuple(ids), parents=tuple(parents))
