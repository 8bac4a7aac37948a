"""A head from its name, ready on the target's device in the target's dtype; loaded once for a target, however many
races ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import UsageError
from ..model.layers import fuse_layers
from ..models.sources import DEFAULT_TARGET, find
from ..quiet import quiet
from .build import build
from .compact import with_output
from .formats import read_spec, read_tensors
from .names import HeadName

if TYPE_CHECKING:
    from ..models.loading import LoadedModel
    from ..progress import Progress

BUNDLED = Path(__file__).resolve().parent.parent.parent / "assets" / "heads"


def load_head(kind: str, name: HeadName, target: LoadedModel, progress: Progress) -> Any:
    """An Eagle3Head or DFlashHead for that target, its norms and MLPs fused, its linears packed where the target's are.
    Raises UsageError naming what does not fit."""
    return target.attached((kind, name), lambda: _load(kind, name, target, progress))


def _load(kind: str, name: HeadName, target: LoadedModel, progress: Progress) -> Any:
    prepared, model = target.prepared, target.model
    progress(f"reading the {kind} head", None)
    folder = find(name.source, progress).folder if name.source else _bundled(kind, target)
    with quiet():
        spec, tensors = read_spec(folder, kind, prepared.shape.num_layers, name.aux, name.causal), read_tensors(folder)
    embedding: Any = model.get_input_embeddings().weight
    head: Any = build(spec, with_output(tensors, spec, embedding), prepared.shape.hidden_size, prepared.vocab_size)
    head.lend(embedding, model.get_output_embeddings())
    head.to(prepared.device, prepared.dtype)
    if head.embed_tokens is not None and torch.equal(head.embed_tokens.weight, embedding):
        head.embed_tokens = None  # a copy of the target's, as most are
    fuse_layers(head, prepared.kernels.norms_by_layer_norm)
    for layer in head.layers:
        layer.self_attn.join(with_queries=kind == "eagle3")  # context rows of a DFlash head have no queries
    prepared.kernels.install_head(head)
    return head


def _bundled(kind: str, target: LoadedModel) -> Path:
    if target.info.name != DEFAULT_TARGET:
        raise UsageError(
            f"drafter {kind!r} needs a head for {target.info.name!r} after a colon, as in {kind}:owner/name or "
            f"{kind}:./folder; only {DEFAULT_TARGET} has one that ships"
        )
    folder = BUNDLED / kind
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"the {kind} head for {DEFAULT_TARGET} is not in this checkout: there is no {folder.name} in "
            "assets/heads; give a head after a colon"
        )
    return folder
