"""What the system says of this machine's processor. No torch."""

from __future__ import annotations

from pathlib import Path


def cpu_info(name: str) -> str:
    """What Linux says under that name of the first processor; "" where it says nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
