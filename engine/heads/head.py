"""What all draft heads share: what they borrow from their target."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .head_spec import HeadSpec


class Head(nn.Module):
    """spec: its flags. `target_ids` [draft vocabulary]: the target's id of each draft id, or None if they are equal. A
    head without `lm_head` or `embed_tokens` borrows the target's."""

    target_ids: Tensor | None
    embed_tokens: nn.Embedding | None
    lm_head: nn.Linear

    def __init__(self, spec: HeadSpec) -> None:
        super().__init__()
        self.spec, self.embed_tokens = spec, None
        self.register_buffer("target_ids", None, persistent=False)
        self._lent: list[Any] = []

    def lend(self, embedding: Tensor, output: Callable[[], nn.Module] | None = None) -> None:
        """Lend the target's embedding [vocab, hidden], raw rows, and output layer to a head without its own. output:
        asked at each use, since a target that goes down a rung gets another."""
        self._lent = [embedding, output]

    @property
    def embedding(self) -> Tensor:
        """The matrix [vocab, hidden] of raw rows."""
        return self._lent[0] if self.embed_tokens is None else self.embed_tokens.weight

    @property
    def output(self) -> nn.Module:
        """The output layer, as it is now."""
        return self.lm_head if hasattr(self, "lm_head") else self._lent[1]()

    def embed(self, token_ids: Tensor) -> Tensor:
        """Embedding rows of the target's token ids: raw, unless the head has a scale."""
        rows = F.embedding(token_ids, self.embedding)
        return rows if self.spec.embedding_scale == 1 else rows * self.spec.embedding_scale

    def logits(self, out: Tensor) -> Tensor:
        """The forward's output [..., hidden] -> logits [..., draft vocabulary]."""
        return self.capped(self.output(out))

    def capped(self, logits: Tensor) -> Tensor:
        """What the output layer gives, scaled and capped as the head was trained."""
        if self.spec.logit_scale != 1:
            logits = logits * self.spec.logit_scale
        return logits if self.spec.softcap is None else torch.tanh(logits / self.spec.softcap) * self.spec.softcap
