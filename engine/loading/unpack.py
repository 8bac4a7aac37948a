"""Weights published in four or eight bits, for models that compute in sixteen or more.

transformers' loader asks for one tensor after the other, and each is made from its codes and scales when it is asked
for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from ..core.errors import UsageError

CODES, SCALES = "_blocks", "_scales"  # endings of names: of a tensor in MXFP4, and of its scales
SCALE = ("_scale_inv", "_scale")  # of a tensor in FP8, after its own name
HALVES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # what a code of three bits stands for; the fourth is the sign
EXPONENT_BIAS = 127


@dataclass(frozen=True)
class Later:
    """A tensor that is made by `later[...]`, as the slices of a safetensors file are read."""

    make: Callable[[], Tensor]

    def __getitem__(self, _: Any) -> Tensor:
        return self.make()


def slices(files: Sequence[Path]) -> dict[str, Any]:
    """A checkpoint's tensors by name, not read yet."""
    opened = [safe_open(path, "pt") for path in files if path.suffix == ".safetensors"]
    return {name: file.get_slice(name) for file in opened for name in file.keys()}  # noqa: SIM118


def is_scaled(files: Sequence[Path]) -> bool:
    """Whether a checkpoint has weights in FP8 with scales."""
    stored = slices(files)
    eight = (name for name, part in stored.items() if part.get_dtype().startswith("F8"))
    return any(name + end in stored for name in eight for end in SCALE)


def unpacked(files: Sequence[Path], quantization: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """A checkpoint's tensors by name, quantised ones as if they had been published in `dtype`. quantization: as in
    config.json, of a kind in which `published.stored_bits` finds bits. Raises UsageError if a scale is missing."""
    stored = slices(files)
    groups = (quantization.get("config_groups") or {}).values()
    blocks = [group["weights"].get("block_structure") for group in groups if group.get("weights")]
    block = quantization.get("weight_block_size") or next(iter(blocks), None)
    made: dict[str, Any] = {}
    for name, part in stored.items():
        scale = next((stored[name + end] for end in SCALE if name + end in stored), None)
        if name.endswith(CODES):
            whole = name.removesuffix(CODES)
            made[whole] = Later(partial(_from_four_bits, part, stored[whole + SCALES], dtype))
        elif scale is not None:
            made[name] = Later(partial(_from_eight_bits, name, part, scale, block, dtype))
        elif part.get_dtype().startswith("F8"):
            raise UsageError(f"the checkpoint's {name} is in {part.get_dtype()}, and has no scale")
        elif not name.endswith((*SCALE, SCALES)):
            made[name] = part
    return made


def _from_four_bits(codes: Any, scales: Any, dtype: torch.dtype) -> Tensor:
    """Experts in MXFP4: codes [experts, out, groups, 16], two a byte, the first in the lower half, and the exponent of
    each group's scale [experts, out, groups] -> [experts, in, out]."""
    codes, exponents = codes[...], scales[...].int() - EXPONENT_BIAS
    numbers = torch.tensor([*HALVES, *(-half for half in HALVES)])
    pairs = torch.stack([numbers.repeat(16), numbers.repeat_interleave(16)], -1)
    made = torch.empty(len(codes), codes.shape[2] * 32, codes.shape[1], dtype=dtype)
    for expert, out in enumerate(made):
        out.copy_(torch.ldexp(pairs[codes[expert].int()].flatten(-2), exponents[expert][..., None]).flatten(-2).T)
    return made


def _from_eight_bits(name: str, codes: Any, scales: Any, block: Sequence[int] | None, dtype: torch.dtype) -> Tensor:
    """FP8 [..., out, in] with a scale of the whole tensor, of each row, or of each `block`."""
    weight, scale = codes[...].float(), scales[...]
    if not scale.is_floating_point() or (scale.numel() > 1 and scale.ndim != weight.ndim):
        raise UsageError(
            f"the checkpoint's {name} has scales that this engine does not read: {scale.dtype} of {tuple(scale.shape)}"
        )
    scale = scale.float()
    if block and scale.numel() > 1:
        for dim, size in zip((-2, -1), block, strict=True):
            scale = scale.repeat_interleave(size, dim).narrow(dim, 0, weight.shape[dim])
    return (weight * scale).to(dtype)
