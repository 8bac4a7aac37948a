"""Modules of a model and their replacements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


def replace_modules(model: nn.Module, replaced: Callable[[Any], nn.Module | None]) -> int:
    """Replace every module below `model` for which `replaced` returns one, in place; returns how many. Modules inside a
    replaced one are passed to `replaced` too, but stay where they were."""
    num = 0
    below = [(parent, name, child) for parent in model.modules() for name, child in parent.named_children()]
    for parent, name, child in below:
        if (new := replaced(child)) is not None:
            setattr(parent, name, new)
            num += 1
    return num
