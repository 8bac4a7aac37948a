"""Dtype int8: weights of 8 bits in every linear, by the compiled kernels (`native/bytes.py`); everything else of the model is bfloat16.

A sum of integers is the same in any order, so what such a linear gives for a row depends neither on the row's place nor on how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .errors import UsageError
from .native.build import has

NAME = "int8"
COMPUTE_DTYPE = "bfloat16"
"""Of everything that is not int8."""
LIMIT = 0.3
"""By how much logits may move on average, as a share of their spread. Measured with the default model: 0.024; logits that have nothing to do with the
model's differ by 1.1."""


def has_kernels() -> bool:
    """Whether the compiled kernels multiply by weights of 8 bits here."""
    return has("photofinish_pack_bytes")


def check(device: torch.device, others: Iterable[str]) -> None:
    """Raises UsageError, naming the `others` dtypes, where int8 is not to be had."""
    if device.type != "cpu":
        raise UsageError(f"dtype 'int8' is for the CPU, not for {str(device)!r}; choose device cpu, or one of: {', '.join(others)}")
    if not has_kernels():
        raise UsageError(f"dtype 'int8' needs a processor with AVX-512 and a C compiler, and one of them is missing here; choose one of: {', '.join(others)}")
