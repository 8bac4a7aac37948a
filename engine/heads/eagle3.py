"""EAGLE-3 (Li et al. 2025, "EAGLE-3: Scaling up inference acceleration of large language models via training-time
test"): one decoder layer that drafts token by token from the target's hidden states, then from its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UsageError
from .formats import HeadSpec
from .layers import Attend, Layer, RMSNorm, Rope, check_fc, load_into, matrix
from .vocabulary import check_vocabulary, draft_ids, embedding_of, is_whole


class Eagle3Head(nn.Module):
    """Row i pairs the target's hidden states of token i with the embedding of token i + 1, and its logits are of token
    i + 2.

    spec: its flags. target_size: the target's hidden size. draft_vocab_size: rows of `lm_head`, None where it borrows
    the target's. `own_embedding`: whether it has an embedding of its own of `spec.layers.vocab_size` words; else the
    target lends it. `target_ids` [draft_vocab_size]: the target's id of each draft id, or None where they are equal."""

    target_ids: Tensor | None

    def __init__(
        self,
        spec: HeadSpec,
        target_size: int,
        draft_vocab_size: int | None,
        own_embedding: bool,
        qk_norm: bool = False,
        fc_bias: bool = False,
    ) -> None:
        super().__init__()
        config, num_in = spec.layers, len(spec.hidden_layers)
        size, eps = config.hidden_size, config.rms_norm_eps
        self.spec = spec
        self.fc = nn.Linear(num_in * target_size, size, bias=fc_bias)
        self.layers = nn.ModuleList(
            [Layer(config, 2 * size if i == 0 else size, qk_norm) for i in range(config.num_hidden_layers)]
        )
        self.layers[0].hidden_norm = RMSNorm(size, eps)
        self.norm = RMSNorm(size, eps)
        if draft_vocab_size is not None:
            self.lm_head = nn.Linear(size, draft_vocab_size, bias=False)
        self.embed_tokens = nn.Embedding(config.vocab_size, size) if own_embedding else None
        self.input_norm = RMSNorm(num_in * target_size, eps) if spec.norm_before_fc else None
        if spec.fc_norm:
            self.fc_norm = nn.ModuleList([RMSNorm(target_size, eps) for _ in range(num_in)])
        self.register_buffer("target_ids", None, persistent=False)
        self._lent: list[Any] = []

    def lend(self, embedding: Tensor, lm_head: nn.Module | None = None) -> None:
        """The target's embedding [vocab, hidden], raw rows, and its output layer, for a head without its own."""
        self._lent = [embedding, lm_head]

    def embed(self, token_ids: Tensor) -> Tensor:
        """Raw embedding rows of the target's token ids."""
        return F.embedding(token_ids, self._lent[0] if self.embed_tokens is None else self.embed_tokens.weight)

    def logits(self, out: Tensor) -> Tensor:
        """The second of what `step` returns, [..., hidden] -> [..., draft vocabulary]."""
        return self.lm_head(out) if hasattr(self, "lm_head") else self._lent[1](out)

    def fuse(self, hidden: Tensor) -> Tensor:
        """The target's hidden states [..., layers * target_size] -> [..., hidden]."""
        if self.input_norm is not None:
            hidden = self.input_norm(hidden)
        if self.spec.fc_norm:
            hidden = torch.cat(
                [norm(part) for norm, part in zip(self.fc_norm, hidden.chunk(len(self.fc_norm), -1), strict=True)], -1
            )
        return self.fc(hidden)

    def step(self, embedded: Tensor, hidden: Tensor, rope: Rope, attend: Attend) -> tuple[Tensor, Tensor]:
        """embedded, hidden [B, n, hidden] -> (what is fed back as the next row's hidden, what `lm_head` reads), each
        [B, n, hidden]."""
        first: Any = self.layers[0]
        normed = first.hidden_norm(hidden)
        x = normed if self.spec.norm_before_residual else hidden
        x = x + first.attend(0, torch.cat([first.input_layernorm(embedded), normed], -1), rope, attend)
        x = x + first.mlp(first.post_attention_layernorm(x))
        for index in range(1, len(self.layers)):
            x = self.layers[index](index, x, rope, attend)
        out = self.norm(x)
        return (out if self.spec.norm_output else x), out


def build(spec: HeadSpec, tensors: Mapping[str, Tensor], target_size: int, vocab_size: int) -> Eagle3Head:
    """A head from its tensors, for a target of that hidden size and vocabulary. Raises UsageError naming what does not
    fit."""
    tensors = dict(tensors)
    d2t, t2d = tensors.pop("d2t", None), tensors.pop("t2d", None)
    size = spec.layers.hidden_size
    own, output = matrix(tensors, "embed_tokens.weight"), matrix(tensors, "lm_head.weight")
    check_vocabulary(spec.vocab_size, vocab_size)
    check_fc(matrix(tensors, "fc.weight"), "the EAGLE-3 head", len(spec.hidden_layers), target_size)
    if own is None and size != target_size:
        raise UsageError(
            f"the head has hidden size {size} and no embedding of its own, so it needs a target of that size; this "
            f"one has {target_size}"
        )
    if output is None and (size != target_size or own is not None or not is_whole(spec.draft_vocab_size, vocab_size)):
        raise UsageError("the EAGLE-3 head lacks lm_head.weight")
    if own is not None:
        tensors["embed_tokens.weight"] = own = embedding_of(own, vocab_size)
    target_ids = draft_ids(
        d2t,
        t2d,
        vocab_size if output is None else len(output),
        vocab_size,
        None if output is None else spec.draft_vocab_size,
    )
    if output is not None:
        tensors["lm_head.weight"] = output = output[: vocab_size if target_ids is None else len(target_ids)]
    qk_norm = spec.layers.model_type == "qwen3" or "layers.0.self_attn.q_norm.weight" in tensors
    with torch.device("meta"):  # nothing is drawn only to be replaced
        head = Eagle3Head(
            spec, target_size, None if output is None else len(output), own is not None, qk_norm, "fc.bias" in tensors
        )
        if own is not None:
            head.embed_tokens = nn.Embedding(*own.shape)
    load_into(head, tensors, "the EAGLE-3 head")
    head.target_ids = target_ids
    return head.eval().requires_grad_(False)
