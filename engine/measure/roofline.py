"""What the memory bandwidth says about a race: how near its plain lane came to the fastest that this device could go.
Standard library only.

A header's "roofline" is {"bytes_per_step", "cache_bytes", "bandwidth_bytes_per_s", "how"}; recordings made before it
was measured have none, and nothing is said of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..events import LaneEvent, steps
from ..metrics import percentile
from ..spec import PLAIN

BOUND = 0.5
"""From this share on, reading is what a step spends most of its time with."""
MAX_BYTES = 1e18


@dataclass(frozen=True, slots=True)
class Roofline:
    """step_s: the plain lane's median step, in seconds, above 0. bandwidth: bytes per second."""

    step_s: float
    num_bytes: float
    bandwidth: float

    @property
    def share(self) -> float:
        """num_bytes / step_s as a share of the bandwidth; above 1, part of it came from a cache: then memory does not
        bound the step."""
        return self.num_bytes / self.step_s / self.bandwidth

    @property
    def sentence(self) -> str:
        """What that means, for who watches the race."""
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
            f"{used}: that is why plain decoding cannot go faster than {1 / self.share:.1f} times this. A step that "
            "checks several tokens reads hardly more."
        )


def roofline(header: Mapping[str, Any], events: Iterable[LaneEvent], plain: str = PLAIN) -> Roofline | None:
    """The roofline of the lane called `plain`; None where the header has no figures that can be used, or the lane took
    no step."""
    figures = header.get("roofline")
    if not isinstance(figures, Mapping):
        return None
    num_bytes, bandwidth = (_figure(figures.get(key)) for key in ("bytes_per_step", "bandwidth_bytes_per_s"))
    step_s = percentile([step.seconds for step in steps(events, plain)], 0.5)
    return Roofline(step_s, num_bytes, bandwidth) if step_s and num_bytes and bandwidth else None


def cache_s(header: Mapping[str, Any]) -> float | None:
    """Seconds in which this device reads the keys and values of one sequence halfway through the race; None where the
    header does not say."""
    figures = header.get("roofline")
    if not isinstance(figures, Mapping):
        return None
    num_bytes, bandwidth = (_figure(figures.get(key)) for key in ("cache_bytes", "bandwidth_bytes_per_s"))
    return num_bytes / bandwidth if num_bytes and bandwidth else None


def _figure(value: Any) -> float | None:
    """A number that bytes can be, from a header that a stranger may have written."""
    return float(value) if type(value) in (int, float) and 0 < value <= MAX_BYTES else None


def amount(num_bytes: float) -> str:
    """Bytes in three digits and a unit; 1 kB is 1000."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes / 1e3:.3g} kB"
