"""The Triton kernels at the sizes of Qwen3-8B and Qwen3.5-9B, one by one: compared with float64, and timed against
torch. Every public function is a part of its own, so a kernel that crashes leaves the others."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.core.sampling.noise import best_columns
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.kernels.choose import choose
from engine.kernels.cuda.attention import attend
from engine.kernels.cuda.delta import mix_step
from engine.kernels.cuda.linear import GpuLinear
from engine.kernels.cuda.qkv_rope_cache import place
from engine.kernels.cuda.rmsnorm import add_normed, normed
from engine.kernels.cuda.sample import pick_rows
from engine.layers.attention import attend_rows
from engine.layers.delta_places import Places
from engine.layers.delta_rule import DeltaLayer
from engine.loading.loading import load
from tools.gpu.part import Part
from tools.gpu.shapes import HYBRID, target

DEVICE, BF16 = torch.device("cuda", 0), torch.bfloat16
EPS = 1e-6
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
    limit: float = LIMIT,
    before: Callable[[], object] = lambda: None,
    seen: Callable[[Tensor], Tensor] = lambda rows: rows,
) -> None:
    """Compare and time one kernel. A wrong kernel is timed all the same.

    theirs: the same by torch; called with float64 as a second argument unless `right` [16, n] is given. num_bytes: what
    a call has to read. before, seen: called before and after every compared call, not while timing; `seen` turns what
    the call returned into rows like `right`."""
    right = theirs(MOST_ROWS, torch.float64) if right is None else right.double()

    def fresh(call: Rows, num_rows: int = MOST_ROWS) -> Tensor:
        before()
        return seen(call(num_rows)).clone()

    def error(rows: Tensor) -> float:
        shares = (rows.double() - right).abs() / right.abs().amax(-1, keepdim=True).clamp(min=1e-6)
        return float(shares.nan_to_num(nan=torch.inf).max())

    rows = fresh(ours)
    found, reference = error(rows), error(fresh(theirs))
    own_bits = all(torch.equal(fresh(ours, num), rows[:num]) for num in (*ROWS_ALONE, MOST_ROWS))
    seconds = {num: [timed(part, partial(call, num)) for call in (ours, theirs)] for num in TIMED}
    times = ", ".join(f"{num}: {1e6 * a:.1f} us ({b / a:.2f}x torch)" for num, (a, b) in seconds.items())
    speed = f"; {num_bytes / seconds[1][0] / 1e9:.0f} GB/s at 1" if num_bytes else ""
    bits = "" if own_bits else ", BITS OF A ROW DEPEND ON THE OTHERS"
    part.row(
        f"{what}: error {found:.2g} (torch {reference:.2g}){bits}; rows {times}{speed}",
        found <= max(limit, 2 * reference) and own_bits,
        error=found,
        torch_error=reference,
        own_bits=own_bits,
        seconds=seconds,
        num_bytes=num_bytes,
    )


def timed(part: Part, call: Callable[[], object]) -> float:
    """Median seconds of a call replayed from a CUDA graph, nothing of it in the L2 cache."""
    flushed = torch.empty(1 << 10 if part.small else FLUSHED_BYTES, dtype=torch.uint8, device=DEVICE)
    replay, found = choose(DEVICE, BF16).fixed(call), []
    replay()
    for _ in range(2 if part.small else REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flushed.zero_()
        start.record()
        replay()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 1e3)
    return statistics.median(found)


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
    part.attempt("adding, then normed", _adding, part, hidden, inner)


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


def _adding(part: Part, hidden: int, inner: int) -> None:
    first, second = _made(hidden, hidden, None, False), _made(hidden, inner, "silu", False)
    x, residual, scale = random(MOST_ROWS, hidden), random(MOST_ROWS, hidden), 1 + 0.1 * random(hidden).float()
    scales = cast(scale)

    def ours(num: int) -> Tensor:
        return second.normed(first.add_to(x[:num], residual[:num], scale), EPS)

    def theirs(num: int, dtype: torch.dtype = BF16) -> Tensor:
        rows = residual[:num].to(dtype) + _by_torch(first, x[:num].to(dtype)).bfloat16().to(dtype)
        return _by_torch(second, torch.rms_norm(rows, rows.shape[1:], scales[dtype], EPS))

    num_bytes = 2 * (first.weight.numel() + second.weight.numel())
    measure(part, "linear that adds, then one that norms", ours, theirs, num_bytes=num_bytes)


def norm(part: Part) -> None:
    dim = 640 if part.small else 4096
    x, y, first, second = random(MOST_ROWS, dim), random(MOST_ROWS, dim), *(1 + random(2, dim).float() / 4)
    firsts, seconds = cast(first), cast(second)

    def one(num: int, dtype: torch.dtype = BF16, rows: Tensor = x) -> Tensor:
        return torch.rms_norm(rows[:num].to(dtype), (dim,), firsts[dtype], EPS)

    def both(num: int, dtype: torch.dtype = BF16) -> Tensor:
        return torch.rms_norm(x[:num].to(dtype) + one(num, dtype, y), (dim,), seconds[dtype], EPS)

    measure(part, "norm", lambda num: normed(x[:num], first, EPS), one)
    measure(part, "sum with a norm, normed", lambda num: add_normed(x[:num], y[:num], first, second, EPS)[1], both)


def attention(part: Part) -> None:
    part.attempt("placing", _placing, part)
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


def _placing(part: Part) -> None:
    heads, kv_heads, dim, length, first = (4, 2, 64, 64, 9) if part.small else (32, 8, 128, 1280, 999)
    num_scaled = heads + kv_heads
    qkv, scales = random(MOST_ROWS, (num_scaled + kv_heads) * dim), 1 + random(num_scaled, dim).float() / 8
    cos, sin, by_dtype = random(MOST_ROWS, dim), random(MOST_ROWS, dim), cast(scales)
    keys, values = (torch.zeros(1, kv_heads, length, dim, dtype=BF16, device=DEVICE) for _ in range(2))
    at = torch.arange(first, first + MOST_ROWS, device=DEVICE)

    def turned(num: int, dtype: torch.dtype = BF16) -> Tensor:
        parts = qkv[:num].to(dtype).view(num, -1, dim)
        scaled = torch.rms_norm(parts[:, :num_scaled], (dim,), None, EPS) * by_dtype[dtype]
        scaled = scaled * cos[:num].to(dtype)[:, None] + scaled.roll(dim // 2, -1) * sin[:num].to(dtype)[:, None]
        return torch.cat((scaled, parts[:, num_scaled:]), 1)

    def theirs(num: int) -> Tensor:
        query, *placed = turned(num).split((heads, kv_heads, kv_heads), 1)
        for side, its in zip((keys, values), placed, strict=True):
            side[0].index_copy_(1, at[:num], its.transpose(0, 1))
        return query

    def seen(query: Tensor) -> Tensor:
        placed = (side[0, :, first : first + len(query)].transpose(0, 1) for side in (keys, values))
        return torch.cat((query, *placed), 1).flatten(1)

    measure(
        part,
        "queries, keys and values put in their places",
        lambda num: place(qkv[:num], cos[:num], sin[:num], scales, EPS, keys, values, at[:num], heads),
        theirs,
        turned(MOST_ROWS, torch.float64).flatten(1),
        before=lambda: [side.zero_() for side in (keys, values)],
        seen=seen,
    )


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
        its = tuple(x[first : first + num].to(dtype) for x in rows)
        return mix(layers[dtype], its, places[first, num], *rings[dtype])

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


def sample(part: Part) -> None:
    """A choice is right where the score of the chosen token is the best; ties may go either way."""
    vocab = 5000 if part.small else 151936
    rows, tokens = 3 * random(MOST_ROWS, vocab), torch.arange(vocab, dtype=torch.int32, device=DEVICE)
    for temperature in (0.0, 0.8):
        sampler = Sampler(SamplingParams(temperature=temperature, seed=5), vocab, choose(DEVICE))
        keys = sampler.keys(MOST_ROWS + 3)[3:].contiguous()
        scores = sampler.row_scores(rows, keys)

        def score(columns: Tensor, scores: Tensor = scores) -> Tensor:
            chosen = scores[: len(columns)].gather(1, columns[:, None].clamp(min=0))
            return chosen.where(columns[:, None] >= 0, torch.nan)

        measure(
            part,
            f"choice of a token at temperature {temperature}",
            lambda num, keys=keys, temperature=temperature: pick_rows(rows[:num], tokens, keys[:num], temperature)[0],
            lambda num, keys=keys, sampler=sampler: best_columns(sampler.row_scores(rows[:num], keys[:num])),
            scores.amax(-1, keepdim=True),
            2 * vocab,
            1e-5,
            seen=score,
        )
