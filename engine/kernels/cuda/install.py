"""Puts the Triton kernels into a model, and takes them out again. To be imported only where they run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from ...model.decoder import FusedDecoder
from ...model.delta_rule import DeltaLayer
from .decoder import GpuDecoder, reason_against_decoder
from .delta import fits, mix_step
from .linear import GpuLinear, reason_against
from .table import Key, put_tiles


def put_kernels(model: nn.Module) -> int:
    """Replace decoders and linears below `model` by what runs steps in few launches, in place, and give linears their
    tiles (`table.py`); returns how many linears. No weight is copied."""
    for _, _, child in _children(model):
        if isinstance(child, DeltaLayer) and fits(child, child.dt_bias.dtype):
            child.mix_step = mix_step
            _put_linears(child)
    for parent, name, child in _children(model):
        if isinstance(child, FusedDecoder) and reason_against_decoder(child) is None:
            setattr(parent, name, GpuDecoder(child))
    _put_linears(model)
    linears = _linears(model)
    put_tiles(linears)
    return len(linears)


def take_out_kernels(model: nn.Module) -> None:
    """Undo `put_kernels`."""
    for parent, name, child in _children(model):
        if isinstance(child, GpuDecoder):
            setattr(parent, name, child.fused)
        elif isinstance(child, DeltaLayer):
            child.mix_step = None
    for parent, name, child in _children(model):
        if isinstance(child, GpuLinear):
            setattr(parent, name, child.plain())


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


def _put_linears(model: nn.Module) -> None:
    for parent, name, child in _children(model):
        if type(child) is nn.Linear and reason_against(child) is None:
            setattr(parent, name, GpuLinear(child))


def _children(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """Every module below `model`, its parent and its name there."""
    return [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]


@contextmanager
def without_kernels(model: nn.Module) -> Iterator[None]:
    """The model on torch's kernels while entered, afterwards on the very modules that it had. Its `Prepared` is to be
    `_plain` meanwhile."""
    children = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]
    deltas = [module for module in model.modules() if isinstance(module, DeltaLayer) and module.mix_step is not None]
    take_out_kernels(model)
    try:
        yield
    finally:
        for parent, name, child in children:
            if isinstance(child, GpuDecoder | GpuLinear):
                setattr(parent, name, child)
        for delta in deltas:
            delta.mix_step = mix_step
