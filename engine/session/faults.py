"""Kinds of device failures while a race is set up or runs."""

from typing import Literal

from ..core.errors import CaptureError, PhotofinishError, RaceError, is_out_of_memory
from ..kernels.torch import Kernels

Fault = Literal["memory", "kernels", ""]


def fault_of(error: Exception, kernels: Kernels) -> Fault:
    """Memory: the same may work with less of it. Kernels: it may work one rung down; any failure on a device other than
    the host counts. "": neither, which holds for all deliberate errors but captures."""
    if isinstance(error, PhotofinishError) and not isinstance(error, CaptureError):
        return ""
    if is_out_of_memory(error):
        return "memory"
    return "" if kernels.on_host else "kernels"


def check_device(kernels: Kernels) -> None:
    """Raises RaceError if the device is lost."""
    kernels.lower("")


def ending(fault: Fault, why: str, kernels: Kernels, needed: int) -> RaceError:
    """The error that ends a race for this fault. needed: bytes that the race takes at least."""
    if fault == "memory":
        return RaceError(
            f"there is not enough memory on {kernels.device}: this race needs at least {needed / 1e9:.3g} GB next to "
            f"the weights, and {kernels.free_bytes() / 1e9:.3g} GB are free; choose fewer new tokens, a shorter "
            "prompt, a smaller k or fewer lanes"
        )
    return RaceError(f"the race failed on {kernels.device}: {why}")
