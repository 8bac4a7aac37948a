"""DFlash (Chen et al. 2026, "DFlash: block diffusion for flash speculative decoding"): the whole draft in one forward
of a few layers over [last token, mask x k], which look at the target's hidden states of everything before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UsageError
from ..model.layers import together
from .formats import HeadSpec
from .layers import Attend, Attention, Layer, RMSNorm, Rope, check_fc, load_into, matrix, rotate
from .vocabulary import check_vocabulary, draft_ids, embedding_of, is_whole


class DFlashHead(nn.Module):
    """Keys and values come from the context (the target's hidden states, fused) and from the block; queries from the
    block alone.

    draft_vocab_size: rows of `lm_head`, None where it borrows the target's; so with `embed_tokens`. `target_ids`
    [draft_vocab_size]: the target's id of each draft id, or None where they are equal."""

    target_ids: Tensor | None

    def __init__(self, spec: HeadSpec, target_size: int, draft_vocab_size: int | None) -> None:
        super().__init__()
        config = spec.layers
        size, eps = config.hidden_size, config.rms_norm_eps
        self.spec = spec
        self.fc = nn.Linear(len(spec.hidden_layers) * target_size, size, bias=False)
        self.hidden_norm, self.norm = RMSNorm(size, eps), RMSNorm(size, eps)
        self.layers = nn.ModuleList([Layer(config, size, qk_norm=True) for _ in range(config.num_hidden_layers)])
        if draft_vocab_size is not None:
            self.lm_head = nn.Linear(size, draft_vocab_size, bias=False)
        self.register_buffer("target_ids", None, persistent=False)
        self.embed_tokens: nn.Embedding | None = None
        self._lent: list[Any] = []

    def lend(self, embedding: Tensor, lm_head: nn.Module | None = None) -> None:
        """The target's embedding [vocab, hidden], raw rows, and its output layer, for a head without its own."""
        self._lent = [embedding, lm_head]

    def embed(self, token_ids: Tensor) -> Tensor:
        """Embedding rows of the target's token ids: raw, unless the head asks for a scale."""
        rows = F.embedding(token_ids, self._lent[0] if self.embed_tokens is None else self.embed_tokens.weight)
        return rows if self.spec.embedding_scale == 1 else rows * self.spec.embedding_scale

    def logits(self, out: Tensor) -> Tensor:
        """What `block` returns, [..., hidden] -> [..., draft vocabulary]."""
        logits = self.lm_head(out) if hasattr(self, "lm_head") else self._lent[1](out)
        if self.spec.logit_scale != 1:
            logits = logits * self.spec.logit_scale
        return logits if self.spec.softcap is None else torch.tanh(logits / self.spec.softcap) * self.spec.softcap

    def fuse(self, hidden: Tensor) -> Tensor:
        """The target's hidden states [..., layers * target_size] -> context rows [..., hidden]."""
        return self.hidden_norm(self.fc(hidden))

    def context(self, fused: Tensor, rope: Rope) -> list[tuple[Tensor, Tensor]]:
        """Per layer the keys and values [B, kv_heads, n, dim] of context rows [B, n, hidden] at their positions."""
        layers: Any = self.layers
        return [layer.self_attn.key_value(fused, rope) for layer in layers]

    def block(self, embedded: Tensor, rope: Rope, attend: Attend) -> Tensor:
        """embedded [B, n, hidden], the block's rows -> [B, n, hidden]; row i is about the token at its own position (an
        anchor's: the one after it)."""
        x = embedded
        for index, layer in enumerate(self.layers):
            x = layer(index, x, rope, attend)
        return self.norm(x)


class JoinedAttention(nn.Module):
    """An `Attention` whose keys and values come out of one linear; context rows have no queries."""

    def __init__(self, stock: Attention) -> None:
        super().__init__()
        self.dim, self.q_proj, self.o_proj = stock.dim, stock.q_proj, stock.o_proj
        self.kv_proj = together([stock.k_proj, stock.v_proj])
        self.q_norm, self.k_norm = stock.q_norm, stock.k_norm

    def key_value(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
        """See `Attention`."""
        key, value = self.kv_proj(x).view(*x.shape[:2], -1, self.dim).chunk(2, 2)
        return rotate(self.k_norm(key), rope), value.transpose(1, 2)

    def project(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """See `Attention`."""
        query = self.q_proj(x).view(*x.shape[:2], -1, self.dim)
        return rotate(self.q_norm(query), rope), *self.key_value(x, rope)

    def out(self, attended: Tensor) -> Tensor:
        """See `Attention`."""
        return self.o_proj(attended.transpose(1, 2).flatten(2))


def join_projections(head: DFlashHead) -> None:
    """Make one linear of every layer's k and v, in place. To be done before linears are packed."""
    for layer in head.layers:
        layer.self_attn = JoinedAttention(layer.self_attn)  # type: ignore[arg-type]


def build(spec: HeadSpec, tensors: Mapping[str, Tensor], target_size: int, vocab_size: int) -> DFlashHead:
    """A head from its tensors, for a target of that hidden size and vocabulary. Raises UsageError naming what does not
    fit."""
    tensors = dict(tensors)
    d2t, t2d = tensors.pop("d2t", None), tensors.pop("t2d", None)
    size = spec.layers.hidden_size
    own, output = matrix(tensors, "embed_tokens.weight"), matrix(tensors, "lm_head.weight")
    check_vocabulary(spec.vocab_size, vocab_size)
    check_fc(matrix(tensors, "fc.weight"), "the DFlash head", len(spec.hidden_layers), target_size)
    if size != target_size and (own is None or output is None):
        raise UsageError(
            f"the head has hidden size {size} and borrows its target's embedding or output layer, so it needs a "
            f"target of that size; this one has {target_size}"
        )
    if output is None and not is_whole(spec.draft_vocab_size, vocab_size):
        raise UsageError(
            f"the DFlash head lacks lm_head.weight, which its draft vocabulary of {spec.draft_vocab_size} words needs"
        )
    if not 0 <= spec.mask_token_id < vocab_size:
        raise UsageError(
            f"the head's mask token {spec.mask_token_id} is outside the target's vocabulary of {vocab_size}"
        )
    if spec.block_size < 2 - spec.sample_from_anchor:
        raise UsageError(f"the head's block of {spec.block_size} drafts nothing")
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
    with torch.device("meta"):  # nothing is drawn only to be replaced
        head = DFlashHead(spec, target_size, None if output is None else len(output))
        if own is not None:
            head.embed_tokens = nn.Embedding(*own.shape)
    load_into(head, tensors, "the DFlash head")
    head.target_ids = target_ids
    return head.eval().requires_grad_(False)


def block_mask(spec: HeadSpec, layer: int, start: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Which of `columns` [S] each of the block's `rows` [B] (positions) may look at; `start`: the block's first
    position. Bool [B, S].

    A window counts from the block's start, as the speculators package trains, or from the row, to both sides where it
    is not causal, as z-lab's own does."""
    seen = (columns < start + rows.shape[0])[None].expand(rows.shape[0], -1)
    window = spec.windows[layer]
    if window is not None and spec.window_from_block:
        seen = seen & (columns >= start - window)
    elif window is not None:
        seen = seen & ((rows[:, None] - columns).abs() < window)
    return seen & (columns[None] <= rows[:, None]) if spec.causal[layer] else seen


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a bool mask is true, -inf elsewhere."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)
