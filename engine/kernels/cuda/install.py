"""Puts the Triton kernels into a model, and takes them out again. To be imported only where they run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from ...model.decoder import FusedDecoder
from ...model.delta_rule import DeltaLayer
from ...model.modules import children, replace_modules
from .decoder import GpuDecoder, reason_against_decoder
from .delta import fits, mix_step
from .linear import GpuLinear, reason_against
from .table import Key, put_tiles


def put_kernels(model: nn.Module) -> None:
    """Replace decoders and linears below `model` by what runs steps in few launches, in place, and give linears their
    tiles (`table.py`). No weight is copied."""
    for child in list(model.modules()):
        if isinstance(child, DeltaLayer) and fits(child, child.dt_bias.dtype):
            child.mix_step = mix_step
            replace_modules(child, _linear)
    replace_modules(model, _decoder)
    replace_modules(model, _linear)
    put_tiles(_linears(model))


def _decoder(child: nn.Module) -> nn.Module | None:
    return GpuDecoder(child) if isinstance(child, FusedDecoder) and reason_against_decoder(child) is None else None


def _linear(child: nn.Module) -> nn.Module | None:
    return GpuLinear(child) if type(child) is nn.Linear and reason_against(child) is None else None


def take_out_kernels(model: nn.Module) -> None:
    """Undo `put_kernels`."""
    replace_modules(model, lambda child: child.fused if isinstance(child, GpuDecoder) else None)
    replace_modules(model, lambda child: child.plain() if isinstance(child, GpuLinear) else None)
    for child in model.modules():
        if isinstance(child, DeltaLayer):
            child.mix_step = None


def configurations(model: nn.Module) -> list[str]:
    """Of every shape of linear how it is computed, on which bits depend."""
    return sorted({f"{Key.of(linear).shape}: {linear.config}" for linear in _linears(model)})


def tiles(model: nn.Module) -> str:
    """The configurations of all linears, as a hash, and where they come from: "tiles 1a2b3c4d (default)"."""
    digest = hashlib.sha256("\n".join(configurations(model)).encode()).hexdigest()
    sources = sorted({linear.tiles_from for linear in _linears(model)})
    return f"tiles {digest[:8]} ({', '.join(sources)})"


def _linears(model: nn.Module) -> list[GpuLinear]:
    return [module for module in model.modules() if isinstance(module, GpuLinear)]


@contextmanager
def without_kernels(model: nn.Module) -> Iterator[None]:
    """The model on torch's kernels while entered, afterwards on the very modules that it had. Its `Prepared` is to be
    `_plain` meanwhile."""
    before = children(model)
    deltas = [module for module in model.modules() if isinstance(module, DeltaLayer) and module.mix_step is not None]
    take_out_kernels(model)
    try:
        yield
    finally:
        for parent, name, child in before:
            if isinstance(child, GpuDecoder | GpuLinear):
                setattr(parent, name, child)
        for delta in deltas:
            delta.mix_step = mix_step
