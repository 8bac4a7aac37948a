"""Candidates are compiled by all cores before they are timed. Compiled for an H100 without one, in a process of its
own: an interpreted kernel cannot be compiled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.apart import run_apart

pytestmark = pytest.mark.slow
SHAPES = [(64, 128, None, True), (128, 64, "silu", False), (64, 128, None, True)]
"""Outputs, inputs, activation, bias; the last one is the first one's shape."""


def test_what_is_compiled_ahead_is_what_is_launched() -> None:
    """A binary that the launch does not find would be compiled twice: once ahead, and once by one core alone."""
    found = run_apart(__file__)
    assert found["num_compiled"] == len(found["is_hit"]) >= 8 and all(found["is_hit"])


def compiled() -> dict[str, Any]:
    """How many were compiled ahead, and of each candidate whether Triton then found its binary."""
    import torch
    from torch import nn
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    from engine.kernels.cuda.linear import GpuLinear
    from engine.kernels.cuda.tiles import candidates
    from engine.kernels.cuda.tuning import NoDevice, compile_all

    driver.set_active(NoDevice(GPUTarget("cuda", 90, 32)))
    linears = [GpuLinear(nn.Linear(k, n, bias, dtype=torch.bfloat16), act) for n, k, act, bias in SHAPES]
    num_compiled, is_hit = compile_all(linears), []
    knobs.compilation.listener = lambda cache_hit, **unused: is_hit.append(cache_hit)
    for linear in linears[:2]:
        for config in candidates(linear.out_features, linear.in_features, linear.act is not None):
            linear.config = config
            linear.compile_kernel()
    return {"num_compiled": num_compiled, "is_hit": is_hit}


if __name__ == "__main__":
    print(json.dumps(compiled()))
