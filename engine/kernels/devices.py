"""Devices by the names that a user gives them."""

from __future__ import annotations

import re

import torch

from ..errors import UsageError, choices

DEVICES = ("auto", "cpu", "cuda", "cuda:N", "mps")


def device_named(name: str) -> torch.device:
    """The device of that name, if this machine has it. Raises UsageError."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if name == "mps":
        if not torch.backends.mps.is_available():
            raise UsageError("device 'mps' is not available here; choose one of: auto, cpu")
        return torch.device("mps")
    match = re.fullmatch(r"cuda(?::(\d{1,3}))?", name) if isinstance(name, str) else None
    if match is None:
        raise choices("device", name, DEVICES)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = int(match[1]) if match[1] else 0
    if index >= count:
        raise UsageError(
            f"device {name!r} is not available here: there "
            f"{'is no CUDA device' if not count else f'are {count}, numbered from 0'}; choose one of: auto, cpu"
        )
    return torch.device("cuda", index)
