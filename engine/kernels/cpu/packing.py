"""Linears whose weights get a layout for narrow steps, once: for the compiled kernels if they run here, else for
oneDNN.

A packed model computes from the same weights; rounding differs only where another kernel sums in another order, and
every lane of a race runs the same packed weights."""

from typing import Any

import torch
from torch import Tensor, nn

from ...layers.modules import StepLinear, replace_modules
from .bytes import packed
from .decoder import ACTIVATIONS, NativeDecoder, reason_against_decoder
from .linear import BLOCK, NativeLinear, reason_against

HINT_ROWS = 8


class PackedLinear(StepLinear):
    """`x @ weight.T + bias` with the weight in oneDNN's own layout."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), HINT_ROWS)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")

    def read(self) -> Tensor:
        """See StepLinear."""
        return self.packed


def onednn_packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN runs narrow steps of that dtype well on this CPU, so that linears can be PackedLinears."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32


def pack(module: Any) -> None:
    """Replace every nn.Linear below `module` that some kernel here takes, and a model's decoder that can be compiled,
    in place. A tied embedding keeps its own copy."""
    if reason_against_decoder(module) is None:
        module.model = NativeDecoder(module.model)

    def replaced(child: nn.Module) -> nn.Module | None:
        if type(child) is not nn.Linear:
            return None
        if reason_against(child) is None:
            return NativeLinear(child)
        return PackedLinear(child) if onednn_packs(child.weight.dtype) else None

    replace_modules(module, replaced)


# Draft heads


class GatedMLP(nn.Module):
    """down(act(gate(x)) * up(x)), with gate and up in one linear."""

    def __init__(self, mlp: Any, gate_up: nn.Module) -> None:
        super().__init__()
        self.gate_up, self.down_proj, self.act_fn = gate_up, mlp.down_proj, mlp.act_fn

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.gate_up(x))


def pack_head(head: Any, rounded: bool = True) -> None:
    """Replace the linears that compiled kernels can multiply by, in place; rounded: with 8-bit weights if possible."""
    for layer in head.layers:
        gate_up: Any = getattr(layer.mlp, "gate_up", None)
        act = ACTIVATIONS.get(type(layer.mlp.act_fn).__name__)
        if act is not None and reason_against(gate_up) is None and gate_up.out_features % BLOCK == 0:
            layer.mlp = GatedMLP(layer.mlp, packed(gate_up, rounded, act))
    replace_modules(head, lambda child: packed(child, rounded) if reason_against(child) is None else None)
