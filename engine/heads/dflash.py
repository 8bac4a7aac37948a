"""DFlash (Chen et al. 2026, "DFlash: block diffusion for flash speculative decoding"): the whole draft in one forward
of a few layers over [last token, mask x k], which attend to the target's hidden states of everything before."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from .head import Head
from .head_layers import Attend, Layer, Rope
from .head_spec import HeadSpec


class DFlashHead(Head):
    """Keys and values come from the context (the target's hidden states, fused) and from the block; queries from the
    block alone.

    target_size: the target's hidden size. draft_vocab_size: rows of `lm_head`, None to borrow the target's."""

    def __init__(self, spec: HeadSpec, target_size: int, draft_vocab_size: int | None) -> None:
        super().__init__(spec)
        config = spec.layers
        size, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(len(spec.hidden_layers) * target_size, size, bias=False)
        self.hidden_norm, self.norm = LlamaRMSNorm(size, eps), LlamaRMSNorm(size, eps)
        self.layers = nn.ModuleList([Layer(config, size, qk_norm=True) for _ in range(config.num_hidden_layers)])
        if draft_vocab_size is not None:
            self.lm_head = nn.Linear(size, draft_vocab_size, bias=False)

    def fuse(self, hidden: Tensor) -> Tensor:
        """The target's hidden states [..., layers * target_size] -> context rows [..., hidden]."""
        return self.hidden_norm(self.fc(hidden))

    def context(self, fused: Tensor, rope: Rope) -> list[tuple[Tensor, Tensor]]:
        """Per layer the keys and values [B, kv_heads, n, dim] of context rows [B, n, hidden] at their positions."""
        layers: Any = self.layers
        return [layer.self_attn.key_value(fused, rope) for layer in layers]

    def block(self, embedded: Tensor, rope: Rope, attend: Attend) -> Tensor:
        """embedded [B, n, hidden], the block's rows -> [B, n, hidden]; row i predicts the token at its own position (an
        anchor's: the one after it)."""
        x = embedded
        for index, layer in enumerate(self.layers):
            x = layer(index, x, rope, attend)
        return self.norm(x)


def block_mask(spec: HeadSpec, layer: int, start: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Which of `columns` [S] each of the block's `rows` [B] (positions) may see; `start`: the block's first position.
    Bool [B, S].

    A window counts from the block's start, as the speculators package trains, or from the row, in both directions if
    not causal, as in z-lab's own code."""
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
