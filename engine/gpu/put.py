"""Puts the Triton kernels into a model, and takes them out again. To be imported only where they run."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..fused import together
from ..fused_decoder import FusedDecoder
from ..linear_attention import DeltaLayer, Rows, of_four
from ..progress import Progress, silent
from .decoder import GpuDecoder, reason_against_decoder
from .delta import fits
from .linear import GpuLinear, reason_against
from .tuning import tune

FOUR = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")


def put_kernels(model: nn.Module, progress: Progress = silent) -> int:
    """Replace decoders and linears below `model` by what runs steps in few launches, in place, and measure which configuration of a linear is the fastest;
    returns how many linears. No weight is copied but those of linears that become one, whose own weights are then parts of its."""
    for parent, name, child in _children(model):
        if type(child) is FusedDecoder and reason_against_decoder(child) is None:
            setattr(parent, name, GpuDecoder(child))
        elif isinstance(child, DeltaLayer) and fits(child, child.dt_bias.dtype):
            child.kernels = True
            linears: list[Any] = [getattr(child, part, None) for part in FOUR]
            if child.project is of_four and all(type(linear) is nn.Linear and linear.bias is None for linear in linears):
                child.in_proj, child.project, child.parts = GpuLinear(together(linears)), of_one, tuple(linears)
                for part in FOUR:
                    delattr(child, part)
    for parent, name, child in _children(model):
        if type(child) is nn.Linear and reason_against(child) is None:
            setattr(parent, name, GpuLinear(child))
    linears = [module for module in model.modules() if isinstance(module, GpuLinear)]
    tune(linears, progress)
    return len(linears)


def take_out_kernels(model: nn.Module) -> None:
    """Undo `put_kernels`."""
    for parent, name, child in _children(model):
        if isinstance(child, GpuDecoder):
            setattr(parent, name, child.fused)
        elif isinstance(child, DeltaLayer) and child.kernels:
            child.kernels = False
            if child.project is of_one:
                for part, linear in zip(FOUR, child.parts, strict=True):
                    setattr(child, part, linear)
                child.project = of_four
                del child.in_proj, child.parts
    for parent, name, child in _children(model):
        if isinstance(child, GpuLinear):
            setattr(parent, name, child.plain())


def configurations(model: nn.Module) -> list[str]:
    """Of every shape of linear how it is computed, on which bits depend."""
    return sorted({f"{m.out_features} x {m.in_features} {m.act}: {m.config}" for m in model.modules() if isinstance(m, GpuLinear)})


def of_one(layer: Any, x: Tensor) -> Rows:
    """The four projections of a DeltaLayer (`linear_attention.of_four`) in one launch. x [1, n, hidden]."""
    return layer.in_proj(x)[0].split([linear.out_features for linear in layer.parts], -1)


def _children(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """Every module below `model`, its parent and its name there."""
    return [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]
