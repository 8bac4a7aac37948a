"""EAGLE-3 (Li et al. 2025, "EAGLE-3: Scaling up inference acceleration of large language models via training-time
test"): one decoder layer that drafts token by token from the target's hidden states, then from its own."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from .head import Head
from .head_layers import Attend, Layer, Rope
from .head_spec import HeadSpec


class Eagle3Head(Head):
    """Row i takes the target's hidden states of token i and the embedding of token i + 1; its logits predict token i +
    2.

    target_size: the target's hidden size. draft_vocab_size: rows of `lm_head`, None to borrow the target's."""

    def __init__(
        self,
        spec: HeadSpec,
        target_size: int,
        draft_vocab_size: int | None,
        qk_norm: bool = False,
        fc_bias: bool = False,
    ) -> None:
        super().__init__(spec)
        config, num_in = spec.layers, len(spec.hidden_layers)
        size, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(num_in * target_size, size, bias=fc_bias)
        self.layers = nn.ModuleList(
            [Layer(config, 2 * size if i == 0 else size, qk_norm) for i in range(config.num_hidden_layers)]
        )
        self.layers[0].hidden_norm = LlamaRMSNorm(size, eps)
        self.norm = LlamaRMSNorm(size, eps)
        if draft_vocab_size is not None:
            self.lm_head = nn.Linear(size, draft_vocab_size, bias=False)
        self.input_norm = LlamaRMSNorm(num_in * target_size, eps) if spec.norm_before_fc else None
        if spec.fc_norm:
            self.fc_norm = nn.ModuleList([LlamaRMSNorm(target_size, eps) for _ in range(num_in)])

    def fuse(self, hidden: Tensor) -> Tensor:
        """The target's hidden states [..., layers * target_size] -> [..., hidden]."""
        return self.fc(self.normed(hidden))

    def normed(self, hidden: Tensor) -> Tensor:
        """Those states as `fc` reads them."""
        if self.input_norm is not None:
            hidden = self.input_norm(hidden)
        if self.spec.fc_norm:
            hidden = torch.cat(
                [norm(part) for norm, part in zip(self.fc_norm, hidden.chunk(len(self.fc_norm), -1), strict=True)], -1
            )
        return hidden

    def step(self, embedded: Tensor, hidden: Tensor, rope: Rope, attend: Attend) -> tuple[Tensor, Tensor]:
        """embedded, hidden [B, n, hidden] -> (the next row's hidden, the input of `lm_head`), each [B, n, hidden]."""
        first: Any = self.layers[0]
        normed = first.hidden_norm(hidden)
        x = normed if self.spec.norm_before_residual else hidden
        x = x + first.attend(0, torch.cat([first.input_layernorm(embedded), normed], -1), rope, attend)
        x = x + first.mlp(first.post_attention_layernorm(x))
        for index in range(1, len(self.layers)):
            x = self.layers[index](index, x, rope, attend)
        out = self.norm(x)
        return (out if self.spec.norm_output else x), out
