"""How close a race's plain lane came to the memory bandwidth of its device. Standard library only.

A header's "roofline" is {"bytes_per_step", "bandwidth_bytes_per_s", "how"}; older recordings lack it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.events import LaneEvent, steps
from ..core.spec import PLAIN
from .metrics import percentile

BOUND = 0.5  # from this share of the bandwidth on, a step spends most of its time reading memory
MAX_BYTES = 1e18


@dataclass(frozen=True, slots=True)
class Roofline:
    """step_s: the plain lane's median step in seconds, above 0. num_bytes: what it must read. bandwidth: bytes per
    second."""

    step_s: float
    num_bytes: float
    bandwidth: float

    @property
    def share(self) -> float:
        """The share of the bandwidth that num_bytes / step_s uses. Above 1, part of the data came from a cache, so
        memory does not bound the step."""
        return self.num_bytes / self.step_s / self.bandwidth

    @property
    def sentence(self) -> str:
        """The share in words, for viewers of the race."""
        step = f"The plain lane's median step of {1000 * self.step_s:.{1 if self.step_s >= 1e-3 else 3}f} ms"
        why = f"(it must read {amount(self.num_bytes)}; this device reads {amount(self.bandwidth)}/s)"
        if self.share > 1:
            return (
                f"{step} is shorter than memory would take {why}: the weights are at least partly held in cache, and "
                "memory bandwidth does not bound plain decoding here."
            )
        used = f"{step} used {100 * self.share:.0f} % of the memory bandwidth {why}"
        if self.share < BOUND:
            return f"{used}: something else bounds it, arithmetic or overhead, so plain decoding could go faster here."
        return (
            f"{used}, so plain decoding could be at most {1 / self.share:.1f} times as fast. A step that checks "
            "several tokens reads hardly more."
        )


def roofline(header: Mapping[str, Any], events: Iterable[LaneEvent], plain: str = PLAIN) -> Roofline | None:
    """The roofline of the lane called `plain`; None if the header has no usable figures or the lane has no steps."""
    num_bytes, bandwidth = _figures(header, "bytes_per_step", "bandwidth_bytes_per_s")
    step_s = percentile([step.seconds for step in steps(events, plain)], 0.5)
    return Roofline(step_s, num_bytes, bandwidth) if step_s and num_bytes and bandwidth else None


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
