"""How many CPU threads a step should use: all of them, unless the machine is busy.

Threads that wait for one another at every barrier stall when one of them has lost its core: on a busy machine a step
with a thread per core took ten times as long as with one thread fewer. So it is measured, once, before the first
race."""

import os
import statistics
import time

import torch

from ..progress import Progress, silent
from ..runner.prepared import Prepared
from ..runner.target import LENGTH_BUCKET, StaticTarget

ROUNDS = 3
WORTH_IT = 1.25


def settle(prepared: Prepared, progress: Progress = silent) -> int:
    """Set torch's number of threads to whichever makes a step of width 1 fastest, and return it: the present number, or
    one fewer if that is faster by a quarter. Does nothing on other devices, with one thread, or if OMP_NUM_THREADS is
    set."""
    present = torch.get_num_threads()
    if not prepared.kernels.on_host or present == 1 or "OMP_NUM_THREADS" in os.environ:
        return present
    progress("finding out how many threads pay", None)
    target = StaticTarget(prepared, LENGTH_BUCKET, (1,))
    seconds: dict[int, list[float]] = {present: [], present - 1: []}
    for round_ in range(ROUNDS + 1):
        for threads, times in seconds.items():
            torch.set_num_threads(threads)
            started = time.perf_counter()
            target.extend([0], 1)
            if round_:
                times.append(time.perf_counter() - started)
    medians = {threads: statistics.median(times) for threads, times in seconds.items()}
    chosen = present if medians[present] < WORTH_IT * medians[present - 1] else present - 1
    torch.set_num_threads(chosen)
    return chosen


def leave_a_core() -> None:
    """One thread fewer for torch than there are cores, if it has more than one: for machines with something else to
    run."""
    torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) - 1)))
