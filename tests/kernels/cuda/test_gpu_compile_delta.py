"""The Triton kernels of a linear layer's step, compiled at the sizes of Qwen3.5-9B for devices that need not be there:
in a process without the interpreter."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.helpers.apart import facts, run_apart

pytestmark = pytest.mark.slow
DIM, KEY_HEADS, VALUE_HEADS = 128, 16, 32
CAPABILITIES = (80, 90)
SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024}
MOST_REGISTERS = 168
"""Of a thread: with 256 of them far from what an SM has for one program, and there is one for each SM."""


def compiled(
    kernel: Any,
    pointers: dict[str, str],
    scalars: dict[str, str],
    constants: dict[str, Any],
    warps: int,
    capability: int,
) -> dict[str, Any]:
    """What became of a kernel: PTX, and `facts`. Pointers are aligned, as tensors are."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from engine.kernels.cuda import delta

    names = kernel.arg_names
    types = {name: "constexpr" if name in constants else (pointers | scalars)[name] for name in names}
    source = ASTSource(
        kernel,
        signature=types,
        constexprs=constants,
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in pointers},
    )
    made = triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps, **delta.ROUNDING}
    )
    unspecialised = [p.name for p in kernel.params if p.do_not_specialize]
    return {"ptx": made.asm["ptx"], "unspecialised": unspecialised, **facts([made])}


def compile_all() -> dict[str, Any]:
    from engine.kernels.cuda import delta

    model, index = "*bf16", "*i64"
    step = dict.fromkeys(("mixed", "b", "a", "dt_bias", "inputs", "out"), model) | dict.fromkeys(
        ("taps", "rate", "states", "scratch"), "*fp32"
    )
    step |= dict.fromkeys(("state_at", "next_states", "past", "inputs_at"), index) | {
        "begun": "*i1",
        "past_known": "*i1",
    }
    sizes = {
        "KEY_HEADS": KEY_HEADS,
        "VALUE_HEADS": VALUE_HEADS,
        "KEY_DIM": DIM,
        "VALUE_DIM": DIM,
        "KERNEL": 4,
        "ROWS": delta.MOST_ROWS,
    }
    sizes |= {
        "BLOCK": delta.BLOCK,
        "WIDTH": 2 * DIM + delta.BLOCK + delta.GATES,
        "MIXED_STRIDE": (2 * KEY_HEADS + VALUE_HEADS) * DIM,
        "B_STRIDE": VALUE_HEADS,
        "A_STRIDE": VALUE_HEADS,
    }
    norm = dict.fromkeys(("x", "z", "weight", "out"), model)
    return {
        f"{name} {capability}": compiled(kernel, pointers, scalars, constants, warps, capability)
        for capability in CAPABILITIES
        for name, kernel, pointers, scalars, constants, warps in (
            ("step", delta._delta_step, step, {"first": "i32", "num_rows": "i32"}, sizes, delta.WARPS),
            (
                "norm",
                delta._gated_norm,
                norm,
                {"eps": "fp32"},
                {"Z_STRIDE": VALUE_HEADS * DIM, "VALUE_HEADS": VALUE_HEADS, "VALUE_DIM": DIM},
                1,
            ),
        )
    }


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return run_apart(__file__)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_kernels_fit_the_registers(kernels, capability):
    """A state that is spilled to memory at every token, or a kernel that a device refuses."""
    for name in ("step", "norm"):
        made = kernels[f"{name} {capability}"]
        assert (
            made["spilled"] == 0 and made["registers"] <= MOST_REGISTERS and made["shared"] <= SHARED_LIMIT[capability]
        ), name


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_states_are_read_and_written_in_wide_pieces(kernels, capability):
    """The ring's traffic is what a step costs: 16 bytes a thread at a time, a whole block of the state in no more
    pieces than that takes."""
    from engine.kernels.cuda import delta

    pieces = DIM * delta.BLOCK // (4 * 32 * delta.WARPS)
    loop = re.split("Inner Loop Header|in Loop: Header", kernels[f"step {capability}"]["ptx"], maxsplit=1)[1]
    assert len(re.findall(r"st\.global\.v4\.b32", loop)) == pieces
    assert len(re.findall(r"ld\.global\.v4\.b32", kernels[f"step {capability}"]["ptx"])) >= pieces
    assert not re.search(r"(ld|st)\.global\.[bu]16", kernels[f"norm {capability}"]["ptx"])


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_no_binary_knows_the_number_of_rows_or_chooses_how_to_round(kernels, capability):
    """One row or sixteen would be other binaries with other roundings; and so would products that are fused with sums
    in one place and not in another."""
    assert kernels[f"step {capability}"]["unspecialised"] == ["first", "num_rows"]
    for name in ("step", "norm"):
        assert "fma.rn.f32" not in kernels[f"{name} {capability}"]["ptx"]


if __name__ == "__main__":
    print(json.dumps(compile_all()))
