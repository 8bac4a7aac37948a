"""What all draft heads share: what they borrow from their target."""

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

    def lend(self, embedding: Tensor, lm_head: nn.Module | None = None) -> None:
        """Lend the target's embedding [vocab, hidden], raw rows, and output layer to a head without its own."""
        self._lent = [embedding, lm_head]

    def embed(self, token_ids: Tensor) -> Tensor:
        """Embedding rows of the target's token ids: raw, unless the head has a scale."""
        rows = F.embedding(token_ids, self._lent[0] if self.embed_tokens is None else self.embed_tokens.weight)
        return rows if self.spec.embedding_scale == 1 else rows * self.spec.embedding_scale

    def logits(self, out: Tensor) -> Tensor:
        """The forward's output [..., hidden] -> logits [..., draft vocabulary]."""
        logits = self.lm_head(out) if hasattr(self, "lm_head") else self._lent[1](out)
        if self.spec.logit_scale != 1:
            logits = logits * self.spec.logit_scale
        return logits if self.spec.softcap is None else torch.tanh(logits / self.spec.softcap) * self.spec.softcap
