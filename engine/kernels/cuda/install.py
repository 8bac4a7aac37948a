"""Puts Triton kernels into a model and takes them out again. Import only where they run."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from torch import nn

from ...layers.decoder import FusedDecoder
from ...layers.delta_rule import DeltaLayer
from ...layers.modules import children, replace_modules
from .available import ATTENTION, DECODER, DELTA, LINEARS
from .decoder import GpuDecoder, reason_against_decoder
from .delta import fits, mix_step
from .linear import GpuLinear, reason_against


def put_kernels(model: nn.Module, off: Collection[str] = ()) -> None:
    """Replace decoders and linears below `model` by kernels, in place, except the parts that are off. Copies no
    weight."""
    deltas = [child for child in model.modules() if isinstance(child, DeltaLayer) and DELTA not in off]
    for child in deltas:
        if fits(child, child.dt_bias.dtype):
            child.mix_step = mix_step
    if LINEARS in off:
        return
    for child in deltas:
        replace_modules(child, _linear)
    if ATTENTION not in off and DECODER not in off:
        replace_modules(model, _decoder)
    replace_modules(model, _linear)


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
    """How each shape of linear is computed, on which bits depend."""
    linears = [module for module in model.modules() if isinstance(module, GpuLinear)]
    return sorted({f"{linear.shape}: {linear.config}" for linear in linears})


def tiles(model: nn.Module) -> str:
    """The configurations of all linears, as a hash: "tiles 1a2b3c4d"."""
    digest = hashlib.sha256("\n".join(configurations(model)).encode()).hexdigest()
    return f"tiles {digest[:8]}"


@contextmanager
def without_kernels(model: nn.Module) -> Iterator[None]:
    """Within it the model is on torch's kernels, and afterwards on the same modules as before."""
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
