"""Whether Triton kernels may be used on a device. Imports triton only if they may."""

import hashlib
import os
import subprocess
import sysconfig
from functools import cache
from pathlib import Path

import torch

from ...core.errors import RaceError, in_a_line

SWITCH = "PHOTOFINISH_TRITON"  # Environment: 0 for torch's kernels
DTYPES = (torch.bfloat16, torch.float16)
# Rows of a step on these kernels: one tile of the tensor cores, so a row's bits do not depend on the width.
MOST_ROWS = 16
LEAST_CAPABILITY = (8, 0)  # what the device must have: asynchronous copies and bfloat16 products


def reason_against_dtype(device: torch.device, dtype: torch.dtype | None) -> str:
    """Why steps of a model of that dtype do not run the kernels on that device; "" if they do."""
    if dtype not in DTYPES:
        *allowed, given = (str(name).removeprefix("torch.") for name in (*DTYPES, dtype))
        return f"it needs {' or '.join(allowed)}, not {given}"
    return reason_against(device) or ""


def reason_against(device: torch.device) -> str | None:
    """Why no kernel can run on that device, as far as known without running one; None if nothing speaks against it."""
    if device.type != "cuda":
        return f"they are for CUDA, not for {device.type}"
    if os.environ.get(SWITCH, "") == "0":
        return f"{SWITCH} is 0"
    if torch.version.hip is not None:
        return "this build of torch is for ROCm, where they were never tried"
    if device.index:  # triton launches on the current device of the thread
        return f"they run on the first CUDA device, not on {device}; choose yours with CUDA_VISIBLE_DEVICES"
    if (capability := torch.cuda.get_device_capability(device)) < LEAST_CAPABILITY:
        return (
            f"the device has compute capability {capability[0]}.{capability[1]}; they need "
            f"{LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]}"
        )
    try:
        import triton  # noqa: F401
    except Exception as error:  # a broken installation may raise anything
        return f"triton cannot be imported ({in_a_line(error)})"
    return None


@cache
def run_first_kernel(device: torch.device) -> None:
    """Raises RaceError, with a remedy, if even a tiny kernel does not run. Cached; called before kernels are
    installed."""
    from .sample import pick_rows

    rows = torch.eye(3, 5, device=device)
    tokens = torch.arange(5, dtype=torch.int32, device=device)
    try:
        columns = pick_rows(rows, tokens, torch.zeros(3, 2, dtype=torch.int32, device=device), 0.0)[0].tolist()
    except Exception as error:  # no compiler for what Triton generates, a driver too old
        raise RaceError(f"Triton does not run here: {_explained(error)}") from error
    if columns != [0, 1, 2]:
        raise RaceError(f"Triton does not run here: a first kernel gave {columns} where [0, 1, 2] is right")


def _explained(error: Exception) -> str:
    """An error of Triton's in a line, with the remedy if known."""
    header = Path(sysconfig.get_paths()["include"], "Python.h")
    if isinstance(error, subprocess.CalledProcessError) and not header.exists():
        return f"it compiles a small launcher, and {header} is missing; install python3-dev"
    if "C compiler" in str(error):
        return "it compiles a small launcher, and there is no C compiler; install gcc"
    return in_a_line(error)


def description(device: torch.device) -> str:
    """The hash of the kernels' sources and the version of triton, for the versions of a measurement; "" if that device
    runs none."""
    if reason_against(device) is not None:
        return ""
    import triton

    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return f"{hashlib.sha256(sources).hexdigest()[:8]}, triton {triton.__version__}"
