"""Heads in smaller files: 8-bit matrices with a scale per row, under compressed-tensors' names, and output rows shared
with the target."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ..errors import UsageError
from .spec import HeadSpec
from .vocabulary import draft_ids

OUTPUT = "lm_head.weight"
SCALE = "_scale"
LEVELS = 127


def shrunk(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every floating-point matrix as int8 [rows, columns] and scales [rows, 1] float32; the rest unchanged."""
    small: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if value.dim() != 2 or not value.is_floating_point():
            small[name] = value
            continue
        scale = value.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / LEVELS
        small[name], small[name + SCALE] = (value.float() / scale).round().to(torch.int8), scale
    return small


def restored(tensors: Mapping[str, Tensor], dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    """The inverse of `shrunk`; other tensors unchanged. Raises UsageError for 8-bit numbers without a scale for each
    row."""
    whole: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name.endswith(SCALE) and tensors.get(name.removesuffix(SCALE), value).dtype == torch.int8:
            continue
        if value.dtype == torch.int8 and value.dim() == 2:
            scale = tensors.get(name + SCALE)
            if scale is None or not scale.is_floating_point() or scale.shape not in ((len(value), 1), (len(value),)):
                raise UsageError(
                    f"the head's {name} is in 8 bits, and {name}{SCALE} is no scale for each of its {len(value)} rows"
                )
            value = (value.float() * scale.float().view(-1, 1)).to(dtype)
        whole[name] = value
    return whole


def with_output(tensors: Mapping[str, Tensor], spec: HeadSpec, embedding: Tensor) -> dict[str, Tensor]:
    """The tensors with `lm_head.weight`: if the head has none and is tied to the embedding, the rows of its draft words
    in the target's embedding [vocab, hidden]. Raises UsageError for words outside of it."""
    tensors = dict(tensors)
    d2t, t2d = tensors.get("d2t"), tensors.get("t2d")
    if (
        spec.tied_output
        and spec.draft_vocab_size is not None
        and d2t is not None
        and OUTPUT not in tensors
        and "embed_tokens.weight" not in tensors
    ):
        ids = draft_ids(d2t, t2d, len(d2t), len(embedding), spec.draft_vocab_size)
        tensors[OUTPUT] = embedding.detach().cpu() if ids is None else embedding.detach().cpu()[ids]
    return tensors
