"""Heads in smaller files: 8-bit matrices with a scale per row, under compressed-tensors' names, and output rows shared
with the target."""

from collections.abc import Mapping

import torch
from torch import Tensor

from .head_spec import HeadSpec
from .shapes import EMBEDDING, OUTPUT, SCALE, info_of, unpacked
from .vocabulary import TABLES, draft_ids

LEVELS = 127


def shrunk(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters, with every matrix as int8 [rows, columns] and scales [rows, 1] float32."""
    small: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if value.dim() != 2:
            small[name] = value
            continue
        scale = value.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / LEVELS
        small[name], small[name + SCALE] = (value.float() / scale).round().to(torch.int8), scale
    return small


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `shrunk`, in bfloat16; other tensors unchanged. Raises UsageError for 8-bit numbers without a
    scale for each row."""
    whole = {}
    for name, info in unpacked({name: info_of(name, value) for name, value in tensors.items()}).items():
        value = tensors[name]
        if value.dtype == torch.int8 and len(info.shape) == 2:
            value = (value.float() * tensors[name + SCALE].float().view(-1, 1)).bfloat16()
        whole[name] = value
    return whole


def with_output(tensors: Mapping[str, Tensor], spec: HeadSpec, embedding: Tensor) -> dict[str, Tensor]:
    """The tensors with `lm_head.weight`: if the head has none and is tied to the embedding, the rows of its draft words
    in the target's embedding [vocab, hidden]. Raises UsageError for words outside of it."""
    tensors = dict(tensors)
    d2t = tensors.get("d2t")
    if (
        spec.tied_output
        and spec.draft_vocab_size is not None
        and d2t is not None
        and OUTPUT not in tensors
        and EMBEDDING not in tensors
    ):
        tables = {name: info_of(name, tensors[name]) for name in TABLES if name in tensors}
        ids = draft_ids(tables["d2t"], tables.get("t2d"), len(d2t), len(embedding), spec.draft_vocab_size)
        tensors[OUTPUT] = embedding.detach().cpu() if ids is None else embedding.detach().cpu()[ids]
    return tensors
