"""A linear with weights of 8 bits and a scale for every 64 inputs of an output (`bytes.h`): half the bytes of
bfloat16."""

from typing import Any

import torch
from torch import nn

from .build import has
from .linear import LANES, NativeLinear, reason_against

GROUP = 64
SCALE_BYTES = 2


class ByteLinear(NativeLinear):
    """Replaces an nn.Linear that `reason_against_bytes` accepts; `act` as in NativeLinear. Rows are bfloat16; inside,
    every 64 numbers are rounded to 16 bits by their largest. Sums over 64 inputs are exact, and added in one chain."""

    in_bytes, kept_as, packs = True, torch.uint8, "photofinish_pack_bytes"

    def _size_of_an_output(self) -> int:
        """See NativeLinear; includes the scales."""
        return self.in_features + SCALE_BYTES * -(-self.in_features // GROUP)


def packed(linear: nn.Linear, in_bytes: bool, act: int | None = None) -> NativeLinear:
    """The replacement of an nn.Linear that `reason_against` accepts; in_bytes: with 8-bit weights if possible."""
    if in_bytes and reason_against_bytes(linear) is None:
        return ByteLinear(linear, act)
    return NativeLinear(linear, act)


def reason_against_bytes(linear: Any) -> str | None:
    """Why this linear cannot be a ByteLinear; None if it can."""
    if why := reason_against(linear):
        return why
    if not has("photofinish_pack_bytes"):
        return "there is no compiled kernel for weights of 8 bits here"
    k = linear.in_features
    return f"its {k} inputs are no multiple of {LANES}" if k % LANES else None
