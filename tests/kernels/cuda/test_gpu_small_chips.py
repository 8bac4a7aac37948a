"""Consumer chips (sm_86, sm_89, sm_120) have 99 kB of shared memory for a program, an H100 227: what is tried there
must fit, or be left out beforehand. Compiled without one, in a process of its own (an interpreted kernel cannot be
compiled)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.apart import NoDevice, compiled_attention, facts, run_apart

SHARED_BYTES = 99 << 10
CHIPS = {86: 82, 89: 128, 120: 170}
"""capability -> multiprocessors: RTX 3090, 4090, 5090."""
SHAPES = {"gate and up": (12288, 4096, "silu"), "head": (151936, 4096, None)}
COMPILED = {89: "gate and up", 120: "head"}
ATTENTION = {89: ("Gemma 3 270M, long",)}
NEARLY_FULL = 90 << 10


@given(
    st.integers(1, 16384).map(lambda n: 16 * n),
    st.integers(1, 2048).map(lambda k: 16 * k),
    st.booleans(),
    st.sampled_from(list(CHIPS.items())),
)
def test_what_does_not_fit_is_left_out(n, k, gated, chip):
    """A load would compile and try what cannot run; or, where nothing could be timed, keep a guess that cannot."""
    from engine.kernels.cuda.tiles import MOST_CANDIDATES, Chip, candidates, default

    here = Chip("", divmod(chip[0], 10), chip[1], SHARED_BYTES)
    found, everything = candidates(n, k, gated, here), candidates(n, k, gated, replace(here, shared_bytes=1 << 30))
    assert 4 <= len(found) <= MOST_CANDIDATES and default(n, k, gated, here) == found[0] == everything[0]
    assert all(config.shared_bytes(gated, here.capability) <= SHARED_BYTES for config in found)
    assert all(
        config.shared_bytes(gated, here.capability) > SHARED_BYTES for config in everything if config not in found
    )


def compiled() -> dict[str, Any]:
    """By chip, kernel and configuration what the compiler says (`facts`), and how much shared memory was expected."""
    import torch
    from torch import nn
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    from engine.kernels.cuda.linear import GpuLinear
    from engine.kernels.cuda.tiles import Chip, candidates

    run, made, found = JITFunction.run, [], {}

    def compile_only(self: Any, *args: Any, warmup: bool, **kwargs: Any) -> None:
        made.append(run(self, *args, warmup=True, **kwargs))

    JITFunction.run = compile_only
    for capability, shape in COMPILED.items():
        driver.set_active(NoDevice(capability))
        here, (n, k, act) = Chip("", divmod(capability, 10), CHIPS[capability], SHARED_BYTES), SHAPES[shape]
        whole = nn.Linear(k, n, bias=False, device="meta")
        whole.weight = nn.Parameter(
            torch.empty(2 * n if act else n, k, dtype=torch.bfloat16), requires_grad=False
        )  # never written: it takes no memory
        linear = GpuLinear(whole, act)
        for config in candidates(n, k, act is not None, here):
            if (expected := config.shared_bytes(act is not None, here.capability)) >= NEARLY_FULL:
                linear.config = config
                made.clear()
                linear(torch.empty(5, k, dtype=torch.bfloat16))
                found[f"sm_{capability} {shape} {config}"] = facts(made) | {"expected": expected}
    JITFunction.run = run
    return found | compiled_attention(ATTENTION, (5,))


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return run_apart(__file__)


@pytest.mark.slow
def test_what_is_tried_fits_and_spills_nothing(kernels):
    """Decoding on a consumer card would go back to torch's kernels, or be slow without a word."""
    assert sum("expected" in kernel for kernel in kernels.values()) >= 3 and len(kernels) > 8
    for name, kernel in kernels.items():
        assert kernel["shared"] <= SHARED_BYTES and kernel["spilled"] == 0, (name, kernel)
        if "expected" in kernel:
            assert kernel["shared"] <= kernel["expected"] + 1024, (name, kernel)


if __name__ == "__main__":
    print(json.dumps(compiled()))
