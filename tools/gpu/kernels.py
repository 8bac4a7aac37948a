"""The largest Triton kernels at the sizes of Qwen3-8B and Qwen3.5-9B, one by one: compared with float64, and timed
against torch. Every public function is a part of its own, so a kernel that crashes leaves the others."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.kernels.choose import choose
from engine.kernels.cuda.attention import attend
from engine.kernels.cuda.delta import mix_step
from engine.kernels.cuda.linear import GpuLinear
from engine.layers.attention import attend_rows
from engine.layers.delta_places import Places
from engine.layers.delta_rule import DeltaLayer
from engine.loading.loading import load
from tools.gpu.part import Part
from tools.gpu.shapes import HYBRID, target

DEVICE, BF16 = torch.device("cuda", 0), torch.bfloat16
# Allowed error, as a share of the largest number in a row: a few roundings of bfloat16 at 0.004 each. Twice the error
# that torch makes is allowed too.
LIMIT = 0.02
MOST_ROWS, TIMED, ROWS_ALONE = 16, (1, 8, 16), (1, 5)
REPEATS = 15
FLUSHED_BYTES = 256 << 20  # written between timed calls: more than fits into any L2 cache
Rows = Callable[[int], Tensor]  # computes so many rows


def random(*size: int) -> Tensor:
    return torch.randn(size, device=DEVICE).to(BF16)


def cast(values: Tensor) -> dict[torch.dtype, Tensor]:
    """The values in the dtypes of torch's two results, so that no conversion is timed."""
    return {dtype: values.to(dtype) for dtype in (BF16, torch.float64)}


@torch.inference_mode()
def measure(
    part: Part,
    what: str,
    ours: Rows,
    theirs: Callable[..., Tensor],
    right: Tensor | None = None,
    num_bytes: int = 0,
    before: Callable[[], object] = lambda: None,
) -> None:
    """Compare and time one kernel. A wrong kernel is timed all the same.

    theirs: the same by torch, called with float64 as a second argument unless `right` [16, n] is given. num_bytes: what
    a call has to read. before: called before every compared call, not while timing."""
    right = theirs(MOST_ROWS, torch.float64) if right is None else right.double()

    def fresh(call: Rows, num_rows: int = MOST_ROWS) -> Tensor:
        before()
        return call(num_rows).clone()

    def error(rows: Tensor) -> float:
        shares = (rows.double() - right).abs() / right.abs().amax(-1, keepdim=True).clamp(min=1e-6)
        return float(shares.nan_to_num(nan=torch.inf).max())

    rows = fresh(ours)
    deviation, reference = error(rows), error(fresh(theirs))
    own_bits = all(torch.equal(fresh(ours, num), rows[:num]) for num in (*ROWS_ALONE, MOST_ROWS))
    seconds = {num: [timed(part, partial(call, num)) for call in (ours, theirs)] for num in TIMED}
    times = ", ".join(f"{num}: {1e6 * a:.1f} us ({b / a:.2f}x torch)" for num, (a, b) in seconds.items())
    speed = f"; {num_bytes / seconds[1][0] / 1e9:.0f} GB/s at 1" if num_bytes else ""
    bits = "" if own_bits else ", BITS OF A ROW DEPEND ON THE OTHERS"
    part.row(
        f"{what}: error {deviation:.2g} (torch {reference:.2g}){bits}; rows {times}{speed}",
        deviation <= max(LIMIT, 2 * reference) and own_bits,
        error=deviation,
        torch_error=reference,
        own_bits=own_bits,
        seconds=seconds,
        num_bytes=num_bytes,
    )


def timed(part: Part, call: Callable[[], object]) -> float:
    """Median seconds of a call replayed from a CUDA graph, nothing of it in the L2 cache."""
    flushed = torch.empty(1 << 10 if part.small else FLUSHED_BYTES, dtype=torch.uint8, device=DEVICE)
    replay, seconds = choose(DEVICE, BF16).fixed(call), []
    replay()
    for _ in range(2 if part.small else REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flushed.zero_()
        start.record()
        replay()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return statistics.median(seconds)


def linear(part: Part) -> None:
    """Every linear of a layer and the output rows, as the decoder calls them."""
    hidden, inner, vocab = (128, 128, 256) if part.small else (4096, 12288, 151936)
    cases = {
        "qkv": (hidden, hidden * 3 // 2, None, False),
        "qkv with bias": (hidden, hidden * 3 // 2, None, True),
        "output of attention": (hidden, hidden, None, False),
        "gate and up, silu": (hidden, inner, "silu", False),
        "gate and up, gelu": (hidden, inner, "gelu_tanh", False),
        "down": (inner, hidden, None, False),
        "output rows": (hidden, vocab, None, False),
    }
    for what, case in cases.items():
        part.attempt(what, _linear, part, what, *case)


def _made(k: int, n: int, act: str | None, bias: bool) -> GpuLinear:
    plain = nn.Linear(k, n if act is None else 2 * n, bias, device="meta", dtype=BF16).requires_grad_(False)
    plain.weight = nn.Parameter(random(plain.out_features, k) / k**0.5, requires_grad=False)
    if bias:
        plain.bias = nn.Parameter(random(plain.out_features), requires_grad=False)
    return GpuLinear(plain, act)


def _by_torch(module: GpuLinear, x: Tensor) -> Tensor:
    products = F.linear(x, module.weight.to(x.dtype), None if module.bias is None else module.bias.to(x.dtype))
    if module.act is None:
        return products
    gate, up = products.chunk(2, -1)
    return (F.silu(gate) if module.act == "silu" else F.gelu(gate, approximate="tanh")) * up


def _linear(part: Part, what: str, k: int, n: int, act: str | None, bias: bool) -> None:
    module, x = _made(k, n, act, bias), random(MOST_ROWS, k)

    def theirs(num: int, dtype: torch.dtype = BF16) -> Tensor:
        return _by_torch(module, x[:num].to(dtype))

    num_bytes = 2 * module.weight.numel()
    measure(part, f"linear {n} x {k}, {what}", lambda num: module(x[:num]), theirs, num_bytes=num_bytes)


def attention(part: Part) -> None:
    for heads, kv_heads, dim in ((4, 1, 64),) if part.small else ((32, 8, 128), (16, 4, 256)):
        for length, window in ((192, None), (192, 40)) if part.small else ((1280, None), (4352, None), (4352, 512)):
            part.attempt("attention", _attention, part, heads, kv_heads, dim, length, window)


def _attention(part: Part, heads: int, kv_heads: int, dim: int, length: int, window: int | None) -> None:
    first = length - 2 * MOST_ROWS
    query, keys, values = random(MOST_ROWS, heads, dim), *(random(1, kv_heads, length, dim) for _ in range(2))
    at, columns = torch.arange(first, first + MOST_ROWS, device=DEVICE), torch.arange(length, device=DEVICE)
    hidden = (columns > at[:, None]) | (columns <= at[:, None] - (window or length))
    mask = torch.zeros(MOST_ROWS, length, device=DEVICE).masked_fill_(hidden, -torch.inf)
    masks = {num: cast(mask[:num].repeat(heads // kv_heads, 1)) for num in {*ROWS_ALONE, *TIMED, MOST_ROWS}}

    def theirs(num: int, dtype: torch.dtype = BF16) -> Tensor:
        rows = query[:num].transpose(0, 1)[None].to(dtype)
        return attend_rows(rows, keys.to(dtype), values.to(dtype), masks[num][dtype], dim**-0.5)[0].reshape(num, -1)

    what = f"attention, {heads} heads of {dim}, column {first}, window {window}"
    num_bytes = 4 * kv_heads * dim * min(first, window or first)

    def ours(num: int) -> Tensor:
        return attend(query[:num], keys, values, at[:num], window, dim**-0.5)

    measure(part, what, ours, theirs, num_bytes=num_bytes)


def delta(part: Part) -> None:
    """A step of one linear layer over a state that eight tokens have left. The judge is torch in float32."""
    one_layer = {"num_hidden_layers": 1, "layer_types": ["linear_attention"], "vocab_size": 512}
    model = load(target(part, HYBRID, **one_layer), "bfloat16", "cuda").model
    stock: Any = next(module for name, module in model.named_modules() if name.endswith("linear_attn"))
    layers = {dtype: DeltaLayer(copy.deepcopy(stock).to(dtype)) for dtype in (BF16, torch.float32)}
    s, start = layers[BF16].shape, 8
    states, inputs = s.ring_sizes(start + MOST_ROWS + 1)
    sizes = (s.conv_dim, s.num_value_heads * s.value_dim, s.num_value_heads, s.num_value_heads)
    rows = [random(start + MOST_ROWS, size) for size in sizes]
    rings = {d: (torch.zeros(states, device=DEVICE), torch.zeros(inputs, dtype=d, device=DEVICE)) for d in layers}

    places = {
        (first, num): Places.of(torch.arange(first, first + num, device=DEVICE), s, states[0], False)
        for first, num in [(0, start), *((start, num) for num in {*ROWS_ALONE, *TIMED, MOST_ROWS})]
    }

    def run(mix: Any, num: int, dtype: torch.dtype = BF16, first: int = start) -> Tensor:
        chunk = tuple(x[first : first + num].to(dtype) for x in rows)
        return mix(layers[dtype], chunk, places[first, num], *rings[dtype])

    @torch.inference_mode()
    def before() -> None:
        for dtype, pair in rings.items():
            for ring in pair:
                ring.zero_()
            run(DeltaLayer.mix, start, dtype, 0)

    before()
    with torch.inference_mode():
        right = run(DeltaLayer.mix, MOST_ROWS, torch.float32)
    num_bytes = 4 * s.num_value_heads * s.key_dim * s.value_dim
    ours, theirs = partial(run, mix_step), partial(run, DeltaLayer.mix)
    measure(part, "gated delta rule", ours, theirs, right, num_bytes, before=before)
