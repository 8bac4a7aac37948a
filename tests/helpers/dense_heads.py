"""Draft heads computed the long way, for comparison: in float64, the whole text at once, without a cache, straight from
the tensors of a file.

Written from the papers and formats, of plain matrix products; shares no line with the engine."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.helpers.heads import MASK, Head

Drafts = tuple[list[int], Tensor]  # ids, and their logits [ids, draft vocabulary]


def frequencies(config: Mapping[str, Any]) -> Tensor:
    """Angles per position of each pair of dimensions; `llama3` scaling as Meta describes it."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("sliding_attention", rope)  # of several, as the speculators package trains
    theta = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
    plain = theta ** -(torch.arange(0, config["head_dim"], 2, dtype=torch.float64) / config["head_dim"])
    if rope.get("rope_type", "default") == "default":
        return plain
    assert rope["rope_type"] == "llama3"
    turns = rope["original_max_position_embeddings"] * plain / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return plain * (share + (1 - share) / rope["factor"])


def turned(x: Tensor, positions: Tensor, config: Mapping[str, Any]) -> Tensor:
    """x [n, heads, dim], each pair (i, i + dim / 2) turned in its plane."""
    half = x.shape[-1] // 2
    angles = (positions[:, None] * frequencies(config))[:, None]
    z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag], -1)


class Dense:
    """The tensors of one head as float64, and what its layers are made of. embedding, output: the target's."""

    def __init__(self, head: Head, embedding: Tensor, output: Tensor) -> None:
        self.t = {
            name.replace("midlayer.", "layers.0."): value.double() if value.is_floating_point() else value
            for name, value in head.tensors.items()
        }
        self.config, self.c, self.eps = head.config, head.layers, head.layers["rms_norm_eps"]
        self.embedding = self.t.get("embed_tokens.weight", embedding.double())
        self.output = self.t.get("lm_head.weight", output.double())

    def norm(self, name: str, x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.t[f"{name}.weight"]

    def linear(self, name: str, x: Tensor) -> Tensor:
        y = x @ self.t[f"{name}.weight"].T
        return y + self.t[f"{name}.bias"] if f"{name}.bias" in self.t else y

    def project(self, layer: int, which: str, x: Tensor, positions: Tensor) -> Tensor:
        """q, k or v [n, heads, dim]."""
        name = f"layers.{layer}.self_attn.{which}"
        y = self.linear(f"{name}_proj", x).unflatten(-1, (-1, self.c["head_dim"]))
        if f"{name}_norm.weight" in self.t:
            y = self.norm(f"{name}_norm", y)
        return y if which == "v" else turned(y, positions, self.c)

    def layer(self, layer: int, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """What a layer makes of its residual x. mask [n, m]: true where it may look."""
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(~mask, -math.inf).softmax(-1), v).flatten(1)
        x = x + self.linear(f"layers.{layer}.self_attn.o_proj", mixed)
        y, name = self.norm(f"layers.{layer}.post_attention_layernorm", x), f"layers.{layer}.mlp"
        gate, up = self.linear(f"{name}.gate_proj", y), self.linear(f"{name}.up_proj", y)
        return x + self.linear(f"{name}.down_proj", torch.nn.functional.silu(gate) * up)

    def token_of(self, index: int) -> int:
        if "d2t" in self.t:
            return index + int(self.t["d2t"][index])
        return int(self.t["t2d"].nonzero()[index]) if "t2d" in self.t else index

    def window(self, layer: int) -> int:
        if "swa_window_size" in (own := self.config.get("dflash_config", {})):  # of all layers, as ModelOpt writes it
            return own["swa_window_size"]
        types = self.c.get("layer_types") or ["full_attention"] * 99
        return self.c["sliding_window"] if types[layer] == "sliding_attention" else 10**9


def eagle3(dense: Dense, aux: Tensor, tokens: Sequence[int], k: int) -> Drafts:
    """k drafted greedily after `tokens`. aux [len(tokens) - 1, features]."""
    aux, flags = aux.double(), dense.config
    if flags.get("norm_before_fc"):
        aux = dense.norm("input_norm", aux)
    if flags.get("fc_norm"):
        parts = aux.chunk(sum("fc_norm" in name for name in dense.t), -1)
        aux = torch.cat([dense.norm(f"fc_norm.{i}", part) for i, part in enumerate(parts)], -1)
    hidden = dense.linear("fc", aux)
    drafted: list[int] = []
    logits = []
    for _ in range(k):
        positions = torch.arange(len(hidden), dtype=torch.float64)
        back = positions[:, None] - positions
        normed = dense.norm("layers.0.hidden_norm", hidden)
        x = normed if flags.get("norm_before_residual") else hidden
        embedded = dense.embedding[torch.tensor([*tokens[1:], *drafted])]
        inputs = torch.cat([dense.norm("layers.0.input_layernorm", embedded), normed], -1)
        for layer in range(dense.c["num_hidden_layers"]):
            if layer:
                inputs = dense.norm(f"layers.{layer}.input_layernorm", x)
            q, key, value = (dense.project(layer, which, inputs, positions) for which in "qkv")
            x = dense.layer(layer, x, q, key, value, (back >= 0) & (back < dense.window(layer)))
        out = dense.norm("norm", x[-1])
        logits.append(dense.output @ out)
        drafted.append(dense.token_of(int(logits[-1].argmax())))
        hidden = torch.cat([hidden, (out if flags.get("norm_output") else x[-1])[None]])
    return drafted, torch.stack(logits)


def dflash(dense: Dense, aux: Tensor, tokens: Sequence[int], k: int, causal: Sequence[bool]) -> Drafts:
    """k that a block drafts after `tokens`. causal: for each layer. speculators count windows from the block."""
    config, start = dense.config, len(tokens) - 1
    from_anchor, is_nested = config.get("sample_from_anchor", False), "transformer_layer_config" in config
    from_anchor |= "query_zero_predicts_next" in config.get("dflash_config", ())
    size = k + (not from_anchor)
    context = dense.norm("hidden_norm", dense.linear("fc", aux.double()))
    before, rows = torch.arange(start, dtype=torch.float64), torch.arange(start, start + size, dtype=torch.float64)
    every = torch.cat([before, rows])
    x = dense.embedding[torch.tensor([tokens[-1], *[MASK] * (size - 1)])] * config.get("input_embedding_scale", 1.0)
    for layer in range(dense.c["num_hidden_layers"]):
        y = dense.norm(f"layers.{layer}.input_layernorm", x)
        sides = [(dense.project(layer, which, context, before), dense.project(layer, which, y, rows)) for which in "kv"]
        back, window = rows[:, None] - every, dense.window(layer)
        mask = (every[None] >= start - window).expand(size, -1) if is_nested else back.abs() < window
        if causal[layer]:
            mask = mask & (back >= 0)
        x = dense.layer(layer, x, dense.project(layer, "q", y, rows), *map(torch.cat, sides), mask)
    logits = dense.norm("norm", x)[0 if from_anchor else 1 :] @ dense.output.T * config.get("output_multiplier", 1.0)
    if softcap := config.get("final_logit_softcapping"):
        logits = torch.tanh(logits / softcap) * softcap
    return [dense.token_of(i) for i in logits.argmax(-1).tolist()], logits
