"""Whether the Triton kernels are to be used on a device: imports no triton unless they may be."""

from __future__ import annotations

import hashlib
import logging
import os
from functools import cache
from importlib import metadata
from pathlib import Path

import torch

from ...errors import in_a_line

log = logging.getLogger(__name__)
SWITCH = "PHOTOFINISH_TRITON"
"""Environment: 0, and torch's own kernels are used everywhere; 1, and they run on the CPU too if TRITON_INTERPRET is 1:
very slowly, to try them out."""
DTYPES = (torch.bfloat16, torch.float16)
MOST_ROWS = 16
"""Of a step that runs them: one tile of the tensor cores' rows. Any number up to it takes the same path, so a row's
bits do not depend on the width."""
LEAST_CAPABILITY = (8, 0)
"""Of the device: asynchronous copies and products of bfloat16."""
EARLY = "PHOTOFINISH_EARLY"
"""Environment: 1, and linears begin before the launch before them has ended, which no other kernel does yet, where the
device can do that."""
EARLY_CAPABILITY = (9, 0)


def is_interpreted(device: torch.device, dtype: torch.dtype | None) -> bool:
    """Whether Triton's interpreter runs the kernels there, on the CPU: for tests."""
    return device.type == "cpu" and reason_against(device) is None and dtype in (*DTYPES, None)


def reason_against_dtype(device: torch.device, dtype: torch.dtype | None) -> str:
    """Why steps of a model of that dtype do not run the kernels on that device; "" where they do."""
    if dtype not in DTYPES:
        return (
            f"it needs {' or '.join(str(each).removeprefix('torch.') for each in DTYPES)}, not "
            f"{str(dtype).removeprefix('torch.')}"
        )
    return reason_against(device) or ""


def reason_against(device: torch.device) -> str | None:
    """Why no kernel can run on that device; None where they do."""
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == os.environ.get(SWITCH) == "1":
        return None
    if device.type != "cuda":
        return f"they are for CUDA, not for {device.type}"
    if os.environ.get(SWITCH, "") == "0":
        return f"{SWITCH} is 0"
    if torch.version.hip is not None:
        return "this build of torch is for ROCm, where they were never tried"
    if device.index:  # triton launches on the current device, which is a thread's own
        return f"they run on the first CUDA device, not on {device}; choose yours with CUDA_VISIBLE_DEVICES"
    return _reason_against(device)


@cache
def _reason_against(device: torch.device) -> str | None:
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        return (
            f"the device has compute capability {capability[0]}.{capability[1]}; they need "
            f"{LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]}"
        )
    try:
        from .sample import pick_rows

        rows = torch.zeros(3, 5, device=device)
        rows[0, 4] = rows[1, 2] = rows[2, 0] = 1
        tokens = torch.arange(5, dtype=torch.int32, device=device)
        keys = torch.zeros(3, 2, dtype=torch.int32, device=device)
        found = pick_rows(rows, tokens, keys, 0.0)[0].tolist()
    except (
        Exception
    ) as error:  # no triton, no compiler for what it generates, a driver too old: whatever it is, torch's kernels do
        log.warning("the Triton kernels are not used", exc_info=True)
        return f"triton does not run here: {in_a_line(error)}"
    return None if found == [4, 2, 0] else f"a first kernel gave {found} where [4, 2, 0] is right"


def can_begin_early(device: torch.device) -> bool:
    """Whether a launch may begin there before the one before it has ended; on the CPU the interpreter leaves out what
    that takes."""
    return device.type == "cpu" or (
        device.type == "cuda" and torch.cuda.get_device_capability(device) >= EARLY_CAPABILITY
    )


def begins_early(device: torch.device) -> bool:
    """Whether linears made there do so from the start."""
    return os.environ.get(EARLY) == "1" and can_begin_early(device)


def description(device: torch.device) -> str:
    """For the versions of a measurement: what the kernels are made of, as a hash, and by which triton. "" where that
    device runs none."""
    if reason_against(device) is not None:
        return ""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return f"{hashlib.sha256(sources).hexdigest()[:8]}, triton {metadata.version('triton')}"
