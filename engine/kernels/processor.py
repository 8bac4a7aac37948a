"""The processor as the system describes it. No torch."""

from __future__ import annotations

from pathlib import Path


def cpu_info(name: str) -> str:
    """The first processor's entry of that name on Linux; "" if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
