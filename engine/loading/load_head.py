"""Loads draft heads from a folder or a hub, in the target's dtype on its device, once per target."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core.errors import UsageError, in_a_line
from ..heads.build_head import build
from ..heads.compact import restored, with_output
from ..heads.formats import spec_of
from ..heads.names import HeadName
from ..heads.shapes import renamed
from ..kernels.weak import weak_call
from ..layers.layers import fuse_layers
from ..progress import quiet
from .random_targets import read_published
from .sources import BUNDLED_HEADS, DEFAULT_TARGET, find, weights_files

if TYPE_CHECKING:
    from ..progress import Progress
    from .loading import LoadedModel


def load_head(kind: str, name: HeadName, target: LoadedModel, progress: Progress) -> Any:
    """An Eagle3Head or DFlashHead for that target, its norms and MLPs fused, its linears packed if the target's are.
    Raises UsageError naming what does not fit."""
    return target.attached((kind, name), lambda: _load(kind, name, target, progress))


def _load(kind: str, name: HeadName, target: LoadedModel, progress: Progress) -> Any:
    prepared, model = target.prepared, target.model
    progress(f"reading the {kind} head", None)
    folder = find(name.source, progress).folder if name.source else _bundled(kind, target)
    with quiet():
        config, tensors = read_published(folder / "config.json"), read_tensors(folder)
        spec = spec_of(config, str(folder), kind, prepared.shape.num_layers, name)
    embedding: Any = model.get_input_embeddings().weight
    head: Any = build(spec, with_output(tensors, spec, embedding), prepared.shape.hidden_size, prepared.vocab_size)
    head.lend(embedding, weak_call(model.get_output_embeddings))
    head.to(prepared.device, prepared.dtype)
    if head.embed_tokens is not None and torch.equal(head.embed_tokens.weight, embedding):
        head.embed_tokens = None  # a copy of the target's, as usual
    fuse_layers(head, prepared.kernels.on_host)
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
    folder = BUNDLED_HEADS / kind
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"the {kind} head for {DEFAULT_TARGET} is not in this checkout: there is no {folder.name} in "
            "assets/heads; give a head after a colon"
        )
    return folder


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """The head's tensors under the names of the speculators format. Pickles are read as tensors only. Raises
    UsageError."""
    tensors: dict[str, Tensor] = {}
    for path in weights_files(folder):
        try:
            if path.suffix == ".safetensors":
                from safetensors.torch import load_file

                read = load_file(path)
            else:
                read = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise UsageError(f"{str(path)!r} is damaged or holds more than tensors; it is not loaded") from error
        except Exception as error:  # files from anywhere may be wrong in any way
            raise UsageError(f"cannot read the head's weights in {str(path)!r}: {in_a_line(error)}") from error
        if not isinstance(read, dict) or not all(
            isinstance(name, str) and isinstance(value, Tensor) for name, value in read.items()
        ):
            raise UsageError(f"{str(path)!r} holds more than named tensors; it is not loaded")
        tensors.update(read)
    return restored(renamed(tensors))
