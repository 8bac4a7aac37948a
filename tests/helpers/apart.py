"""Runs a test's own file as a program without Triton's interpreter: an interpreted kernel cannot be compiled."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from tests.helpers import ROOT

TIMEOUT_S = 300


def run_apart(file: str) -> Any:
    """The JSON object on the last line that the program prints. Nothing that was compiled before is used."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment |= {"TRITON_CACHE_DIR": folder, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        done = subprocess.run(
            [sys.executable, file], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


class NoDevice:
    """Enough of a driver to compile for that device."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # a device has its own binaries

    def get_current_stream(self, device: int) -> int:
        return 0


def facts(kernels: list[Any]) -> dict[str, Any]:
    from triton import knobs

    first = kernels[0]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(first.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    registers, stack, local = (int(re.findall(rf"{what}:(\d+)", usage)[-1]) for what in ("REG", "STACK", "LOCAL"))
    ptx = first.asm["ptx"]
    return {
        "num_binaries": len({kernel.hash for kernel in kernels}),
        "num_calls": len(kernels),
        "registers": registers,
        "spilled": stack + local + ptx.count(".local"),
        "shared": first.metadata.shared,
        "num_products": ptx.count("mma.sync"),
        "num_narrow_products": len(re.findall(r"mma\.sync\S*\.(?:tf32|f64)", ptx)),
        "copies": sorted(set(re.findall(r"cp\.async\.c[ag]\.shared\.global\S* \[.*?\], \[.*?\], (0x\w+|\d+)", ptx))),
        "num_wide_loads": ptx.count("ld.global.v4.b32"),
        "loads": sorted(set(re.findall(r"ld\.global[.\w]*", ptx))),
    }


ATTENTION_CASES = {  # heads, kv heads, dim, columns, window, hidden size, gates and values of a head that are turned
    "Qwen3-8B": (32, 8, 128, 1280, None, 4096, False, 128),
    "Qwen3-8B, long": (32, 8, 128, 33024, None, 4096, False, 128),
    "Gemma 3 270M, a window": (4, 1, 256, 1280, 512, 640, False, 256),
    "Gemma 3 270M, long": (4, 1, 256, 33024, None, 640, False, 256),
    "Qwen3.5-9B": (16, 4, 256, 1280, None, 4096, True, 64),
    "Qwen3.5-9B, long": (16, 4, 256, 33024, None, 4096, True, 64),
}


def compiled_attention(on: Mapping[int, Sequence[str]], row_counts: Sequence[int]) -> dict[str, dict[str, Any]]:
    """By device, case (of `ATTENTION_CASES`) and kernel, of all numbers of rows together: `facts`, of the first
    binary."""
    import torch
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    from engine.kernels.cuda.attention import attend, attend_rows, num_arrivals
    from engine.kernels.cuda.qkv_rope_cache import place
    from engine.kernels.cuda.rmsnorm import add_normed, normed

    made: list[tuple[str, Any]] = []
    run = JITFunction.run

    def compile_only(self, *args, warmup, **kwargs):
        made.append((self.__name__, run(self, *args, warmup=True, **kwargs)))

    JITFunction.run = compile_only
    found = {}
    for capability, case in [(capability, case) for capability, cases in on.items() for case in cases]:
        driver.set_active(NoDevice(capability))
        made.clear()
        heads, kv_heads, dim, length, window, hidden, with_gates, turned = ATTENTION_CASES[case]
        keys, values = (torch.empty(1, kv_heads, length, dim, dtype=torch.bfloat16) for _ in range(2))
        scales, scale = torch.empty(heads + kv_heads, dim), torch.empty(hidden)
        for rows in row_counts:
            at = torch.empty(32, dtype=torch.int64)[rows : 2 * rows]  # aligned to 8 bytes only
            x, cos, sin = (torch.empty(rows, size, dtype=torch.bfloat16) for size in (hidden, turned, turned))
            qkv = torch.empty(rows, ((1 + with_gates) * heads + 2 * kv_heads) * dim, dtype=torch.bfloat16)
            query = place(qkv, cos, sin, scales, 1e-6, keys, values, at, heads)
            for arrivals in (None, torch.empty(num_arrivals(rows, heads, kv_heads), dtype=torch.int32)):
                attend(query, keys, values, at, window, 0.1, arrivals, qkv if with_gates else None)
            if not with_gates:
                attend_rows(query.transpose(0, 1)[None], keys, values, at, window, None)
                attend_rows(query.transpose(0, 1)[None].contiguous(), keys, values, at, window, None)
            normed(x, scale, 1e-6)
            add_normed(x, x, scale, scale, 1e-6)
        for name in {name for name, _ in made}:
            for is_merged in (False, True):
                kernels = [
                    kernel for other, kernel in made if other == name and ("atom." in kernel.asm["ptx"]) == is_merged
                ]
                if kernels:
                    found[f"sm_{capability} {case}: {name}{' merged' if is_merged else ''}"] = facts(kernels)
    return found
