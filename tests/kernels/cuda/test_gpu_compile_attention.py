"""What Triton compiles of attention and norms for an H100 and an A100, without one: the kernels' own calls are made,
and compiled instead of run. In a process of its own, for an interpreted kernel cannot be compiled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.apart import compiled_attention, run_apart

pytestmark = pytest.mark.slow
SHARED_BYTES = {90: 227 << 10, 80: 163 << 10}
ROWS = (1, 5, 16)
ON = {90: ("Qwen3-8B", "Qwen3-8B, long", "Qwen3.5-9B"), 80: ("Gemma 3 270M, long", "Qwen3.5-9B, long")}


@pytest.fixture(scope="module")
def kernels() -> dict[str, dict[str, Any]]:
    return run_apart(__file__)


def test_one_binary_for_all_numbers_of_rows_and_layouts(kernels):
    """A row count or an address that the compiler builds in would make other binaries, whose rows may have
    other bits."""
    assert len(kernels) == sum(map(len, ON.values())) * 6
    assert {name: kernel["num_binaries"] for name, kernel in kernels.items() if kernel["num_binaries"] != 1} == {}
    several = {name for name in kernels if name.endswith(("_attend", "_combine")) and "3.5" not in name}
    assert all(kernel["num_calls"] == len(ROWS) * (3 if name in several else 1) for name, kernel in kernels.items())


def test_nothing_is_spilled_and_all_fits(kernels):
    """Registers spilled to memory make a kernel many times slower; more shared memory than there is makes it
    impossible, half of it lets two programs run."""
    for name, kernel in kernels.items():
        assert kernel["spilled"] == 0, name
        assert kernel["shared"] <= SHARED_BYTES[int(name[3:5])] // 2, name
        assert kernel["registers"] <= 168, name


def test_tensor_cores_and_wide_loads(kernels):
    """Products on tensor cores; keys, values and rows in pieces of 16 bytes, those of a long cache asynchronously."""
    for name, kernel in kernels.items():
        if "_attend" in name:
            assert kernel["num_products"] >= 24 and kernel["num_narrow_products"] == 0, name
            if "long" in name:
                assert "0x10" in kernel["copies"], name
                assert kernel["copies"] == ["0x10"] or "merged" in name, name
            else:
                assert kernel["num_wide_loads"] >= 10, name
        elif "_place" not in name:
            assert kernel["num_wide_loads"] >= 3, name


if __name__ == "__main__":
    print(json.dumps(compiled_attention(ON, ROWS)))
