"""The processor and its memory as the system describes them. No torch."""

import re
from contextlib import suppress
from pathlib import Path

# Of a container, in versions 2 and 1 of control groups: its limit, what is used, what of that is droppable file cache.
_GROUPS = (
    ("sys/fs/cgroup/memory.max", "memory.current", "inactive_file"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def cpu_info(name: str) -> str:
    """The first processor's entry of that name on Linux; "" if unknown."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def free_bytes(root: Path = Path("/")) -> int:
    """What the machine has available, or what its limit leaves a container if that is less; plenty if neither is known.
    root: where /proc and /sys are."""
    free = 2**63 - 1
    with suppress(OSError, KeyError, ValueError):
        lines = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    for limit, used, cached in _GROUPS:
        with suppress(OSError, ValueError):  # no container, or its limit is "max"
            left = int((root / limit).read_text()) - int((root / limit).with_name(used).read_text())
            line = re.search(rf"^{cached} (\d+)$", (root / limit).with_name("memory.stat").read_text(), re.MULTILINE)
            free = min(free, max(0, left + int(line[1] if line else 0)))
    return free
