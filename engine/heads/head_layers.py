"""The decoder layer of draft heads: Llama's, or Qwen3's with normalised queries and keys. Parameter names are
transformers'.

Attention is an argument, because it differs: over static buffers when drafting, over whole texts when training."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from ..core.errors import UsageError, in_a_line
from ..layers.attention import attend_rows
from ..layers.layers import together
from .head_spec import LayerConfig

# attend(layer, query [B, heads, n, dim], key [B, kv_heads, n, dim], value [B, kv_heads, n, dim]) -> [B, heads, n, dim].
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
Rope = tuple[Tensor, Tensor]  # cos and sin, each [B or 1, n, dim]


class Attention(nn.Module):
    """Projections, norms and rotary positions of grouped-query attention, from `in_size` features to the hidden
    size."""

    def __init__(self, config: LayerConfig, in_size: int, qk_norm: bool) -> None:
        super().__init__()
        self.dim, bias = config.head_dim, config.attention_bias
        self._counts = [config.num_attention_heads, *[config.num_key_value_heads] * 2]
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(in_size, num * self.dim, bias=bias) for num in self._counts)
        self.qkv: nn.Module | None = None
        self.kv_proj: nn.Module | None = None
        self.o_proj = nn.Linear(self._counts[0] * self.dim, config.hidden_size, bias=bias)
        self.q_norm, self.k_norm = (
            LlamaRMSNorm(self.dim, config.rms_norm_eps) if qk_norm else nn.Identity() for _ in range(2)
        )

    def join(self, with_queries: bool) -> None:
        """Join the projections of keys and values into `kv_proj`, or, if queries always have the same rows, all three
        into `qkv`. Call it before linears are packed."""
        names = ("q_proj", "k_proj", "v_proj") if with_queries else ("k_proj", "v_proj")
        setattr(self, "qkv" if with_queries else "kv_proj", together([getattr(self, name) for name in names]))
        for name in names:
            delattr(self, name)

    def key_value(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
        """x [B, n, in_size] -> two of [B, kv_heads, n, dim]."""
        if self.kv_proj is None:
            key, value = self._split(self.k_proj(x)), self._split(self.v_proj(x))
        else:
            key, value = self._split(self.kv_proj(x)).chunk(2, 2)
        return rotate(self.k_norm(key), rope), value.transpose(1, 2)

    def project(self, x: Tensor, rope: Rope) -> tuple[Tensor, Tensor, Tensor]:
        """x [B, n, in_size] -> query [B, heads, n, dim], key and value [B, kv_heads, n, dim]."""
        if self.qkv is None:
            return rotate(self.q_norm(self._split(self.q_proj(x))), rope), *self.key_value(x, rope)
        query, key, value = self._split(self.qkv(x)).split(self._counts, 2)
        return rotate(self.q_norm(query), rope), rotate(self.k_norm(key), rope), value.transpose(1, 2)

    def out(self, attended: Tensor) -> Tensor:
        """[B, heads, n, dim] -> [B, n, hidden]."""
        return self.o_proj(attended.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.dim)


class Layer(nn.Module):
    """A decoder layer whose attention reads `in_size` features."""

    def __init__(self, config: LayerConfig, in_size: int, qk_norm: bool) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        if config.hidden_act not in ACT2FN:
            raise UsageError(f"the head's hidden_act is {config.hidden_act!r}, which transformers does not know")
        self.self_attn, self.mlp = Attention(config, in_size, qk_norm), LlamaMLP(config)
        self.input_layernorm, self.post_attention_layernorm = LlamaRMSNorm(size, eps), LlamaRMSNorm(size, eps)

    def attend(self, index: int, x: Tensor, rope: Rope, attend: Attend) -> Tensor:
        """Self-attention of x [B, n, in_size], already normalised -> [B, n, hidden]."""
        return self.self_attn.out(attend(index, *self.self_attn.project(x, rope)))

    def forward(self, index: int, x: Tensor, rope: Rope, attend: Attend) -> Tensor:
        x = x + self.attend(index, self.input_layernorm(x), rope, attend)
        return x + self.mlp(self.post_attention_layernorm(x))


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """x [B, n, heads, dim] by its positions' angles -> [B, heads, n, dim]."""
    cos, sin = (part[:, None] for part in rope)
    x = x.transpose(1, 2)
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


def transformers_config(config: LayerConfig) -> Any:
    """The same layers as a transformers configuration. Raises UsageError for angles that it does not understand."""
    from transformers import LlamaConfig, Qwen3Config

    fields = dict(vars(config))
    model_type, rope = fields.pop("model_type"), fields.pop("rope")
    types, window = list(fields.pop("layer_types")), fields.pop("sliding_window")
    more = {"layer_types": types, "sliding_window": window, "use_sliding_window": window is not None}
    try:
        if model_type == "llama":
            return LlamaConfig(**fields, **rope, **(more if window else {}), tie_word_embeddings=False)
        del fields["mlp_bias"]
        return Qwen3Config(**fields, **rope, **more, tie_word_embeddings=False)
    except Exception as error:  # a configuration from anywhere may be wrong in any way
        raise UsageError(f"the head's config.json is not understood: {in_a_line(error)}") from error


def rope_table(config: LayerConfig, length: int, dtype: torch.dtype, device: torch.device | str) -> Rope:
    """cos and sin [length, dim] of positions 0 to length - 1. The angles depend on nothing else: see `fields._rope`."""
    cos, sin = LlamaRotaryEmbedding(transformers_config(config))(torch.zeros(1), torch.arange(length)[None])
    return cos[0].to(device, dtype), sin[0].to(device, dtype)


def masked_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """query [1, heads, n, dim] over keys, values [1, kv_heads, S, dim] under an additive mask [n, S] -> [1, heads, n,
    dim]."""
    groups = query.shape[1] // keys.shape[1]
    return attend_rows(query, keys, values, mask.repeat(groups, 1), None).transpose(1, 2)
