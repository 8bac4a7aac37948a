"""The description of a draft head. Standard library only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

KINDS = ("eagle3", "dflash")
FULL, SLIDING = "full_attention", "sliding_attention"  # types of layers


@dataclass(frozen=True)
class LayerConfig:
    """The decoder layers of a head, Llama's or Qwen3's, with the names of transformers' configurations.

    rope: its fields about angles, as published: rope_parameters, rope_scaling, rope_theta.
    sliding_window: of layers of type sliding_attention; None if there are none."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    layer_types: tuple[str, ...]
    sliding_window: int | None = None
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    attention_bias: bool = False
    mlp_bias: bool = False
    max_position_embeddings: int = 2048
    rope: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HeadSpec:
    """A draft head.

    hidden_layers: the target's hidden states it reads, as indices into transformers' `hidden_states` (0: embeddings).
    draft_vocab_size, vocab_size: its own and its target's; None if not stated.
    window_from_block: windows count from the block's start (speculators' DFlash), not from the row (EAGLE-3 and z-lab).
    causal: for DFlash, per layer, whether a row of the block sees only those before it.
    embedding_scale, logit_scale, softcap: for embeddings; for logits, which are then capped (z-lab's heads for Gemma).
    tied_output: without output rows, the head takes those of its words from the target's embedding.
    """

    kind: str
    layers: LayerConfig
    hidden_layers: tuple[int, ...]
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    block_size: int = 0
    mask_token_id: int = 0
    sample_from_anchor: bool = False
    causal: tuple[bool, ...] = ()
    window_from_block: bool = False
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    softcap: float | None = None
    draft_vocab_size: int | None = None
    vocab_size: int | None = None
    tied_output: bool = False

    @cached_property
    def windows(self) -> list[int | None]:
        """Per layer how far back it sees; None for all."""
        return [self.layers.sliding_window if kind == SLIDING else None for kind in self.layers.layer_types]
