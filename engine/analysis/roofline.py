"""How close a race's plain lane came to the memory bandwidth of its device. Standard library only.

A header's "roofline" is {"bytes_per_step", "bandwidth_bytes_per_s", "how"}; older recordings lack it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.events import LaneEvent, steps
from ..core.spec import PLAIN
from .metrics import percentile

BOUND = 0.5  # from this share of the bandwidth on, a step spends most of its time reading memory
MAX_BYTES = 1e18


def roofline(header: Mapping[str, Any], events: Iterable[LaneEvent], plain: str = PLAIN) -> str:
    """What share of the bandwidth the lane called `plain` used, in a sentence, for viewers of the race; "" if the
    header has no usable figures or the lane has no steps."""
    num_bytes, bandwidth = _figures(header, "bytes_per_step", "bandwidth_bytes_per_s")
    step_s = percentile([step.seconds for step in steps(events, plain)], 0.5)
    if not (step_s and num_bytes and bandwidth):
        return ""
    share = num_bytes / step_s / bandwidth
    step = f"The plain lane's median step of {1000 * step_s:.{1 if step_s >= 1e-3 else 3}f} ms"
    why = f"(it must read {amount(num_bytes)}; this device reads {amount(bandwidth)}/s)"
    if share > 1:  # part of the data came from a cache
        return (
            f"{step} is shorter than memory would take {why}: the weights are at least partly held in cache, and "
            "memory bandwidth does not bound plain decoding here."
        )
    used = f"{step} used {100 * share:.0f} % of the memory bandwidth {why}"
    if share < BOUND:
        return f"{used}: something else bounds it, arithmetic or overhead, so plain decoding could go faster here."
    return (
        f"{used}, so plain decoding could be at most {1 / share:.1f} times as fast. A step that checks several tokens "
        "reads hardly more."
    )


def _figures(header: Mapping[str, Any], *names: str) -> list[float | None]:
    """Figures that are plausible numbers of bytes, else None: the header may come from a stranger."""
    known = header.get("roofline")
    values: list[Any] = [known.get(name) if isinstance(known, Mapping) else None for name in names]
    return [float(value) if type(value) in (int, float) and 0 < value <= MAX_BYTES else None for value in values]


def amount(num_bytes: float) -> str:
    """Bytes as three digits and a unit; 1 kB is 1000 bytes."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes / 1e3:.3g} kB"
