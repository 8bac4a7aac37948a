"""All kernels, at the sizes of published models, compiled for the chips that run them, without one: in a process of its
own, for an interpreted kernel cannot be compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine.kernels.cuda.available import MOST_ROWS
from engine.kernels.cuda.tiles import GATED, HEAD, PLAIN
from tests.helpers import ROOT

CHIPS = {
    capability: (num_sms, shared_kb << 10)
    for capability, num_sms, shared_kb in ((80, 108, 163), (89, 128, 99), (90, 132, 227), (120, 170, 99))
}  # compute capability -> SMs and shared memory of an A100, an RTX 4090, an H100, an RTX 5090
# The oldest generation that runs the kernels, where those are compiled that multiply matrices, which is what chips do
# otherwise; and the one that they are tuned for.
COMPILED = (80, 90)
ROWS = (1, 5)  # neither may have a binary of its own


def compiled() -> dict[str, list[int]]:
    """Of each chip and kernel the bytes of shared memory that its binaries take."""
    import torch
    from torch import nn
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    from engine.kernels.cuda import linear as linears
    from engine.kernels.cuda.attention import attend
    from engine.kernels.cuda.delta import mix_step
    from engine.kernels.cuda.heads import _joined
    from engine.kernels.cuda.linear import GpuLinear
    from engine.kernels.cuda.qkv_rope_cache import place
    from engine.kernels.cuda.rmsnorm import add_normed, normed
    from engine.kernels.cuda.sample import pick_rows
    from engine.kernels.torch import Notes
    from engine.layers.delta_places import LinearShape, Places

    made: dict[str, dict[str, int]] = {}
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, warmup: bool, **kwargs: Any) -> None:
        kernel = run(self, *args, warmup=True, **kwargs)
        made.setdefault(f"{capability} {self.__name__}", {})[kernel.hash] = kernel.metadata.shared

    def empty(*size: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.empty(size, dtype=dtype)

    def linear(n: int, k: int, act: str | None = None) -> GpuLinear:
        whole = nn.Linear(k, n, bias=False, device="meta")
        whole.weight = nn.Parameter(empty(2 * n if act else n, k), requires_grad=False)
        return GpuLinear(whole, act)

    JITFunction.run = compile_only
    for capability in COMPILED:
        target = GPUTarget("cuda", capability, 32)
        device: Any = SimpleNamespace(get_current_target=lambda target=target: target)
        device.get_current_device = lambda capability=capability: capability  # each has its own binaries
        device.get_current_stream = lambda device: 0
        driver.set_active(device)
        linears.num_sms = lambda unused, capability=capability: CHIPS[capability][0]
        gate_up, down, head = linear(12288, 4096, "silu"), linear(4096, 12288), linear(151936, 4096)
        keys, values = empty(1, 4, 33024, 256), empty(1, 4, 33024, 256)
        shape = LinearShape((0,), 16, 32, 128, 128, 4)
        norm = SimpleNamespace(weight=empty(128), variance_epsilon=1e-6)
        delta: Any = SimpleNamespace(
            shape=shape, norm=norm, dt_bias=empty(32), taps=empty(4, shape.conv_dim, dtype=torch.float32),
            rate=empty(32, dtype=torch.float32),
        )  # fmt: skip
        states, inputs = shape.ring_sizes(17)
        for rows in ROWS:
            at, scale = torch.arange(rows), empty(4096, dtype=torch.float32)
            added = down.add_to(empty(rows, 12288), empty(rows, 4096), scale)
            gate_up.normed(added, 1e-6)
            qkv, angles = empty(rows, 40 * 256), empty(rows, 64)
            query = place(qkv, angles, angles, empty(20, 256, dtype=torch.float32), 1e-6, keys, values, at, 16)
            attend(query, keys, values, at, None, 0.1, gated=qkv)
            for causal in (True, False):  # a block of a DFlash head
                attend(query, keys, values, at, 512, 0.1, causal=causal, from_row=False)
            context, table = empty(rows, 8 * 256), empty(33024, 256)
            place(context, table, table, empty(4, 256, dtype=torch.float32), 1e-6, keys, values, at, 0, table=True)
            if capability == COMPILED[0]:
                continue
            attend(query, keys, values, at, None, 0.1, sinks=empty(16))
            head(normed(added.rows, scale, 1e-6))
            add_normed(added.rows, added.rows, scale, scale, 1e-6)
            parts = shape.parts_of(empty(rows, shape.conv_dim + 32 * 130))
            places = Places.of(at, shape, 17, False)
            mix_step(delta, parts, places, empty(*states, dtype=torch.float32), empty(*inputs))
            ids, picked = empty(151936, dtype=torch.int64), empty(2, 16, dtype=torch.int64)
            block = Notes(at[:1], at[:1], picked, ids, None, None)
            for temperature in (0.0, 0.8):
                tokens, keys_of_rows = empty(151936, dtype=torch.int32), empty(rows, 2, dtype=torch.int32)
                pick_rows(empty(rows, 151936), tokens, keys_of_rows, temperature)
                pick_rows(empty(rows, 151936), tokens, keys_of_rows, temperature, block)
            moved = empty(5, dtype=torch.int64)  # some of it not aligned
            noted = Notes(moved[3:4], moved[4:], picked, ids, moved[1:2], moved[2:4])
            pick_rows(empty(1, 151936), tokens, keys_of_rows, 0.8, noted)
            joined, hidden = empty(rows, 2 * 4096), empty(rows, 4096)
            for before in (None, at):
                _joined[(rows,)](
                    empty(151936, 4096), ids[1:], before, hidden, scale, scale, joined, hidden, 1e-6,
                    SIZE=4096, PADDED=4096, num_warps=16,
                )  # fmt: skip
    return {name: list(binaries.values()) for name, binaries in made.items()}


def test_every_kernel_compiles_fits_and_knows_no_number_of_rows(tmp_path: Path) -> None:
    """A chip would have no kernels; or a row of a wider step be computed by another binary, with other bits."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
    }
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    kernels = json.loads(done.stdout.splitlines()[-1])
    first, second = (f"{chip} " for chip in COMPILED)
    others = ("_add_normed", "_gated_norm", "_normed")
    # with gates, and two masks of a head's; a step's, and a head's context
    wanted = {f"{first}_attend": 3, f"{first}_combine": 3, f"{first}_place": 2, f"{first}linear_rows": 2}
    wanted |= {f"{second}{name}": 1 for name in (*others, "_delta_step")}
    wanted |= {f"{second}_attend": 3, f"{second}_combine": 4, f"{second}_place": 2}
    # three linears; greedy, and with noise, each noted or not; not noted, a block's, a chain's; a chain, and a catch-up
    wanted |= {f"{second}linear_rows": 3, f"{second}_best_of_blocks": 4, f"{second}_best_of_rows": 3}
    wanted |= {f"{second}_joined": 2}
    assert {name: len(sizes) for name, sizes in kernels.items()} == wanted
    for name, sizes in kernels.items():
        assert max(sizes) <= CHIPS[int(name.split()[0])][1], name


def test_every_chip_holds_every_tile() -> None:
    """A linear could not run on a consumer's chip."""
    for tile in (*PLAIN, *GATED, HEAD):
        num_outputs = tile.block_n * (2 if tile in GATED else 1)
        in_flight = 2 * (tile.num_stages - 1) * (num_outputs + MOST_ROWS) * tile.block_k
        assert in_flight <= min(shared_bytes for _, shared_bytes in CHIPS.values()), tile


if __name__ == "__main__":
    print(json.dumps(compiled()))
