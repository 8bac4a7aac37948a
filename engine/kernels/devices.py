"""Devices by name."""

import logging
import re
from functools import cache

import torch

from ..core.errors import UsageError, choices
from .usable import why_unused

DEVICES = ("auto", "cpu", "cuda", "cuda:N", "mps")
log = logging.getLogger(__name__)


def device_named(name: str) -> torch.device:
    """The device of that name, if this machine has it and torch can use it. "auto" is the first NVIDIA GPU, else the
    CPU, with a warning if there is a GPU that torch cannot use. Raises UsageError."""
    if name == "auto":
        if why := why_unused():
            _warn(why)
        name = "cuda" if torch.cuda.is_available() and not why else "cpu"
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
    if 0 < count <= index:
        why = f"There are {count}, numbered from 0"
    else:
        why = why_unused(index) or ("" if count else "There is no CUDA device")
    if why:
        raise UsageError(f"device {name!r} is not available here; choose one of: auto, cpu. {why}")
    return torch.device("cuda", index)


@cache
def _warn(why: str) -> None:
    """Once per process."""
    log.warning("%s", why)
