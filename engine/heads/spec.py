"""The description of a draft head. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KINDS = ("eagle3", "dflash")


@dataclass(frozen=True)
class HeadSpec:
    """A draft head.

    layers: a transformers configuration of its decoder layers.
    hidden_layers: the target's hidden states it reads, as indices into transformers' `hidden_states` (0: embeddings).
    draft_vocab_size, vocab_size: its own and its target's; None if not stated.
    windows: per layer how far back it sees; None (or no entry) for all. EAGLE-3 and z-lab count from the row,
        speculators' DFlash from the block's start (`window_from_block`).
    causal: for DFlash, per layer, whether a row of the block sees only those before it.
    embedding_scale, logit_scale, softcap: for embeddings; for logits, which are then capped (z-lab's heads for Gemma).
    tied_output: without output rows, the head takes those of its words from the target's embedding.
    """

    kind: str
    layers: Any
    hidden_layers: tuple[int, ...]
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    block_size: int = 0
    mask_token_id: int = 0
    sample_from_anchor: bool = False
    causal: tuple[bool, ...] = ()
    windows: tuple[int | None, ...] = ()
    window_from_block: bool = False
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    softcap: float | None = None
    draft_vocab_size: int | None = None
    vocab_size: int | None = None
    tied_output: bool = False
