"""How long this process's threads ran, and how long they were ready to run but waited for a core. An evenly overloaded
machine makes every step of a race equally slow, so step times alone do not show it. Linux only:
https://docs.kernel.org/scheduler/sched-stats.html. Standard library only."""

from pathlib import Path

THREADS = Path("/proc/self/task")
CoreTime = tuple[int, int]  # nanoseconds that all threads ran, and that they waited


def core_time() -> CoreTime | None:
    """Since the process began; None where the system does not say."""
    ran = waited = 0
    try:
        for thread in THREADS.iterdir():
            try:
                first, second, _ = (thread / "schedstat").read_text().split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # this thread has ended meanwhile
            ran, waited = ran + int(first), waited + int(second)
    except (OSError, ValueError):
        return None
    return (ran, waited) if ran else None


def waited_share(before: CoreTime | None, after: CoreTime | None) -> float | None:
    """The share of the time between two readings in which threads that could run had no core; None if unknown."""
    if before is None or after is None:
        return None
    ran, waited = (max(0, now - then) for then, now in zip(before, after, strict=True))
    return waited / (ran + waited) if ran + waited else None
