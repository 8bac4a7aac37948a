"""What runs a prepared model's steps, read off its modules: printed and recorded, so that no slower path goes unseen."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .target import Prepared

DECODERS = {"FusedDecoder": "torch", "HybridDecoder": "torch", "GpuDecoder": "Triton"}
"""Class -> what runs its layers."""
LINEARS = {
    "Linear": "torch",
    "PackedLinear": "packed by oneDNN",
    "Int8Linear": "int8 by oneDNN",
    "NativeLinear": "compiled C",
    "ByteLinear": "int8, compiled C",
    "GpuLinear": "Triton",
}


def what_runs(prepared: Prepared) -> dict[str, Any]:
    """{"sentence": all of it in words, "decoder": its class, "layers": what runs them, "linears": {what runs them: how
    many}, "attention": ours or torch's, "against": why no Triton decoder on CUDA, else ""}."""
    model = prepared.model
    decoder = model.get_decoder()
    name = type(decoder).__name__
    layers = _compiled(model) if name == "NativeDecoder" else DECODERS.get(name, "transformers' own")
    kinds = Counter(kind for module in model.modules() if (kind := LINEARS.get(type(module).__name__)) is not None)
    linears = dict(sorted(kinds.items()))
    ours = "ours, Triton" if prepared.kernels else "ours, compiled C" if name == "NativeDecoder" else "torch's"
    against = reason_against(prepared)
    counts = ", ".join(f"{number} {kind}" for kind, number in linears.items())
    sentence = f"steps run by {name} ({layers}); linears: {counts or 'none'}; attention: {ours}"
    sentence += f"; no Triton decoder: {against}" if against else ""
    parts = {"decoder": name, "layers": layers, "linears": linears, "attention": ours, "against": against}
    return {"sentence": sentence, **parts}


def reason_against(prepared: Prepared) -> str:
    """Why a model's steps on CUDA are run by no GpuDecoder; "" where they are, and on another device."""
    decoder = prepared.model.get_decoder()
    if type(decoder).__name__ == "GpuDecoder" or (prepared.device.type != "cuda" and not prepared.kernels):
        return ""
    from .fused_decoder import FusedDecoder
    from .gpu import choice

    if prepared.against_kernels:
        return prepared.against_kernels
    if not prepared.kernels:
        dtypes = " or ".join(str(dtype).removeprefix("torch.") for dtype in choice.DTYPES)
        return choice.reason_against(prepared.device) or f"it needs {dtypes}, and was asked for"
    if not isinstance(decoder, FusedDecoder):
        return f"a {type(decoder).__name__} is none that can be fused"
    from .gpu.decoder import reason_against_decoder

    return reason_against_decoder(decoder) or "it was not asked for"


def _compiled(model: Any) -> str:
    from .native.forward import is_whole_step

    return "compiled C, a whole step in one call" if is_whole_step(model) else "compiled C"
