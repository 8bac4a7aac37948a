"""An EAGLE-3 head's rows on the CPU by torch, at positions that the host knows.

Nothing needs a fixed shape there: attention looks at the live columns alone, without a mask, and the last layer
computes nothing for rows that nobody reads: of those that catch up it needs keys and values only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..model.layers import root_mean_square

if TYPE_CHECKING:
    from ..heads.eagle3 import Eagle3Head
    from ..heads.layers import Rope


class Eagle3Rows:
    """The rows of an `Eagle3Head` for one sequence on the CPU. keys, values: per layer float32 [kv_heads, S, dim];
    rope: cos and sin float32 [S, dim]; they stay the caller's."""

    cache_dtype = torch.float32

    def __init__(self, head: Eagle3Head, keys: list[Tensor], values: list[Tensor], rope: Rope) -> None:
        self.head, self.keys, self.values = head, keys, values
        layers: Any = head.layers
        attention, first = layers[0].self_attn, layers[0]
        self._dim, self._num_kv = attention.dim, keys[0].shape[0]
        self._num_heads = attention.o_proj.in_features // self._dim
        self._eps = head.spec.layers.rms_norm_eps
        self._scales = torch.stack([first.input_layernorm.weight, first.hidden_norm.weight])
        self._head_scales = [self._of_heads(layer.self_attn) for layer in layers]
        self._windows = head.spec.windows or (None,) * len(layers)
        cos, sin = rope
        half = self._dim // 2
        self._cos, self._sin = cos[:, None], torch.cat((-sin[:, :half], sin[:, half:]), -1)[:, None]
        self._token = torch.zeros(1, dtype=torch.long)
        self._fed = torch.zeros(1, head.spec.layers.hidden_size)

    def _of_heads(self, attention: Any) -> Tensor | None:
        """The weights of the norms of queries and keys, by head, in float32; None where there are none."""
        norms, counts = (attention.q_norm, attention.k_norm), (self._num_heads, self._num_kv)
        if isinstance(norms[0], nn.Identity):
            return None
        return torch.cat([norm.weight.float().expand(num, -1) for norm, num in zip(norms, counts, strict=True)])

    def absorb(self, token_ids: Tensor, states: Tensor, first: int) -> None:
        """Put the rows of token ids [n] and the target's states [n, features] into the cache, at consecutive positions
        from `first` on."""
        self._run(self.head.embed(token_ids), self.head.fuse(states), first, False)

    def start(self, token_ids: Tensor, states: Tensor, first: int) -> Tensor:
        """The same, and the logits [draft vocabulary] of the last of them."""
        return self._last(self.head.embed(token_ids), self.head.fuse(states), first)

    def follow(self, token_id: int, position: int) -> Tensor:
        """The logits of a row that is given this token and what the last row fed back."""
        self._token[0] = token_id
        return self._last(self.head.embed(self._token), self._fed, position)

    def _last(self, embedded: Tensor, hidden: Tensor, first: int) -> Tensor:
        x = self._run(embedded, hidden, first, True)
        out = self.head.norm(x)
        self._fed = out if self.head.spec.norm_output else x
        return self.head.logits(out)[0]

    def _run(self, embedded: Tensor, hidden: Tensor, first: int, wanted: bool) -> Tensor:
        """The last layer's output of the last row of `embedded` and `hidden` [n, size], as in `Eagle3Head.step`;
        anything where it is not wanted."""
        layers: Any = self.head.layers
        normed = root_mean_square(torch.stack((embedded, hidden), 1), None, None, self._eps, True) * self._scales
        x = normed[:, 1] if self.head.spec.norm_before_residual else hidden
        inputs = normed.flatten(1)
        for index, layer in enumerate(layers):
            if index:
                inputs = layer.input_layernorm(x)
            queries = self._write(index, layer.self_attn.projected(inputs), first)
            if index == len(layers) - 1:
                if not wanted:
                    return x
                queries, x = queries[-1:], x[-1:]
            x = x + layer.self_attn.o_proj(self._attend(index, queries, first + len(inputs)).to(x.dtype))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return x

    def _write(self, index: int, projected: Tensor, first: int) -> Tensor:
        """Put the keys and values of projected rows [n, ...] into a layer's cache; their queries [n, heads, dim]."""
        rows, turned_heads = slice(first, first + len(projected)), self._num_heads + self._num_kv
        heads = projected.float().view(len(projected), -1, self._dim)
        turned, scales = heads[:, :turned_heads], self._head_scales[index]
        if scales is not None:
            turned = root_mean_square(turned, None, None, self._eps, True) * scales
        turned = turned * self._cos[rows] + turned.roll(self._dim // 2, -1) * self._sin[rows]
        self.keys[index][:, rows] = turned[:, self._num_heads :].transpose(0, 1)
        self.values[index][:, rows] = heads[:, turned_heads:].transpose(0, 1)
        return turned[:, : self._num_heads]

    def _attend(self, index: int, queries: Tensor, end: int) -> Tensor:
        """queries [n, heads, dim] of the last n positions before `end` -> [n, heads * dim]."""
        num, window = len(queries), self._windows[index]
        start = 0 if window is None else max(0, end - num + 1 - window)
        keys, values = self.keys[index][None, :, start:end], self.values[index][None, :, start:end]
        if num == 1:  # heads that share keys become rows
            return F.scaled_dot_product_attention(queries.view(1, self._num_kv, -1, self._dim), keys, values).view(
                1, -1
            )
        back = torch.arange(end - num, end)[:, None] - torch.arange(start, end)
        seen = back >= 0 if window is None else (back >= 0) & (back < window)
        return (
            F.scaled_dot_product_attention(
                queries.transpose(0, 1)[None], keys, values, attn_mask=seen, enable_gqa=True
            )[0]
            .transpose(0, 1)
            .flatten(1)
        )
