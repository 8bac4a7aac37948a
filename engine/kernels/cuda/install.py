"""Puts Triton kernels into a model and takes them out again. Import only where they run."""

import hashlib

from torch import nn

from ...layers.decoder import FusedDecoder
from ...layers.delta_rule import DeltaLayer
from ...layers.modules import replace_modules
from .decoder import GpuDecoder, reason_against_decoder
from .delta import fits, mix_step
from .linear import GpuLinear, reason_against


def put_kernels(model: nn.Module) -> None:
    """Replace decoders and linears below `model` by kernels, in place. Copies no weight."""
    for child in [child for child in model.modules() if isinstance(child, DeltaLayer)]:
        if fits(child, child.dt_bias.dtype):
            child.mix_step = mix_step
        replace_modules(child, _linear)
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
