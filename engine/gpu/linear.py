"""A linear for few rows: its weights are read once, and a row's bits are its own.

A program takes some outputs and all rows, and walks along the inputs. Every output is one fixed order of sums, whatever the number of rows, and rows
that do not exist are zeros. So a linear has one configuration (`tuning.py`) for all numbers of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

from .runtime import MOST_ROWS, dot, stored
from .tuning import LEAST_BLOCK_N, Config, default, num_sms_of

ACTIVATIONS = ("silu", "gelu_tanh")
DTYPES = (torch.bfloat16, torch.float16)
INPUTS_MULTIPLE = 16
ALIGNMENT = 16
"""Bytes. Triton compiles another binary for a pointer that is not a multiple of it."""
ROWS = tl.constexpr(MOST_ROWS)


@triton.jit
def load_rows(x, rows, inputs, num_rows, K: tl.constexpr, EVEN_K: tl.constexpr):
    """x [num_rows, K] at rows and inputs; zeros beyond its edges."""
    exists = (rows < num_rows)[:, None]
    if not EVEN_K:
        exists = exists & (inputs < K)[None, :]
    return tl.load(x + rows[:, None] * K + inputs[None, :], mask=exists, other=0.0)


@triton.jit
def load_weights(weight, outputs, inputs, NUM: tl.constexpr, K: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr):
    """weight [NUM, K] at outputs and inputs; zeros beyond its edges."""
    places = weight + outputs.to(tl.int64)[:, None] * K + inputs[None, :]
    if EVEN_N and EVEN_K:
        return tl.load(places)
    else:  # noqa: RET505 a return under a condition known at compile time must have its other branch
        return tl.load(places, mask=(outputs < NUM)[:, None] & (inputs < K)[None, :], other=0.0)


@triton.jit
def product(rows, weights, total, WEIGHTS_FIRST: tl.constexpr):
    """rows [16, k] times weights [n, k], added to total [16, n], or, with WEIGHTS_FIRST, to total [n, 16]."""
    if WEIGHTS_FIRST:
        total = dot(weights, rows.trans(), total)
    else:
        total = dot(rows, weights.trans(), total)
    return total


@triton.jit
def activated(gate, up, ACT: tl.constexpr):
    """act(gate) * up. tanh GELU is x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x ** 3))."""
    if ACT == "silu":
        inner = gate
    else:
        inner = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    return gate / (1.0 + tl.exp(-inner)) * up


@triton.jit(do_not_specialize=["num_rows"])
def linear_rows(
    x,  # [num_rows, K]
    weight,  # [NUM, K]; with ACT [2 * NUM, K]
    bias,  # as many as weights, or None
    out,  # [num_rows, NUM]
    residual,  # [num_rows, NUM], to be added; or None, and then the next three too
    scale,  # [NUM] float32
    scaled,  # [num_rows, NUM]: out * scale
    squares,  # [16, programs] float32: sums over a program's outputs of out ** 2
    parts,  # [16, PARTS] float32: sums of the inputs' squares, or None for inputs that are not to be normed
    partial,  # [SPLIT, 16, NUM or 2 * NUM] float32, or None if SPLIT is 1
    arrivals,  # [programs] int32, zeros before and after; or None
    num_rows,
    eps,
    NUM: tl.constexpr,
    K: tl.constexpr,
    ACT: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
):
    """One of the tiles of outputs, over one of SPLIT spans of the inputs. There are two sums, so that a multiplication need not wait for the one before:
    gate and up, or those of the two halves of every block of inputs."""
    SPAN: tl.constexpr = (K + SPLIT * BLOCK_K - 1) // (SPLIT * BLOCK_K) * BLOCK_K
    EVEN_N: tl.constexpr = NUM % BLOCK_N == 0
    EVEN_K: tl.constexpr = SPAN * SPLIT == K
    HALF: tl.constexpr = BLOCK_K // 2

    tile, split = tl.program_id(0), tl.program_id(1)
    rows = tl.arange(0, ROWS)
    outputs = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    exists = (rows < num_rows)[:, None]
    if not EVEN_N:
        exists = exists & (outputs < NUM)[None, :]

    if parts is not None:  # asked for early, added up late: meanwhile the weights come
        columns = tl.arange(0, PARTS_BLOCK)
        sums = tl.load(parts + rows[:, None] * PARTS + columns[None, :], mask=(rows < num_rows)[:, None] & (columns < PARTS)[None, :], other=0.0)

    first = tl.zeros((BLOCK_N, ROWS) if WEIGHTS_FIRST else (ROWS, BLOCK_N), tl.float32)
    second = tl.zeros((BLOCK_N, ROWS) if WEIGHTS_FIRST else (ROWS, BLOCK_N), tl.float32)
    start = split * SPAN
    if ACT is None:
        inputs = start + tl.arange(0, HALF)
        for k in tl.range(0, SPAN, BLOCK_K, num_stages=STAGES):
            for_first, for_second = k + inputs, k + HALF + inputs
            rows_first, rows_second = load_rows(x, rows, for_first, num_rows, K, EVEN_K), load_rows(x, rows, for_second, num_rows, K, EVEN_K)
            first = product(rows_first, load_weights(weight, outputs, for_first, NUM, K, EVEN_N, EVEN_K), first, WEIGHTS_FIRST)
            second = product(rows_second, load_weights(weight, outputs, for_second, NUM, K, EVEN_N, EVEN_K), second, WEIGHTS_FIRST)
        first += second
    else:
        inputs = start + tl.arange(0, BLOCK_K)
        up_weight = weight + tl.full((), NUM, tl.int64) * K
        for k in tl.range(0, SPAN, BLOCK_K, num_stages=STAGES):
            block = load_rows(x, rows, k + inputs, num_rows, K, EVEN_K)
            first = product(block, load_weights(weight, outputs, k + inputs, NUM, K, EVEN_N, EVEN_K), first, WEIGHTS_FIRST)
            second = product(block, load_weights(up_weight, outputs, k + inputs, NUM, K, EVEN_N, EVEN_K), second, WEIGHTS_FIRST)
    if WEIGHTS_FIRST:
        first, second = first.trans(), second.trans()

    is_last = True
    if SPLIT > 1:
        SUMS: tl.constexpr = NUM if ACT is None else 2 * NUM
        places = rows[:, None] * SUMS + outputs[None, :]
        tl.store(partial + split * ROWS * SUMS + places, first, mask=exists)
        if ACT is not None:
            tl.store(partial + split * ROWS * SUMS + places + NUM, second, mask=exists)
        tl.debug_barrier()  # all threads have written before one of them says so
        is_last = tl.atomic_add(arrivals + tile, 1, sem="acq_rel") == SPLIT - 1

    if is_last:
        if SPLIT > 1:
            first = tl.load(partial + places, mask=exists, other=0.0, cache_modifier=".cg")
            if ACT is not None:
                second = tl.load(partial + places + NUM, mask=exists, other=0.0, cache_modifier=".cg")
            for other in tl.static_range(1, SPLIT):
                first += tl.load(partial + other * ROWS * SUMS + places, mask=exists, other=0.0, cache_modifier=".cg")
                if ACT is not None:
                    second += tl.load(partial + other * ROWS * SUMS + places + NUM, mask=exists, other=0.0, cache_modifier=".cg")
            tl.store(arrivals + tile, 0)

        if parts is not None:
            factor = tl.math.rsqrt(tl.sum(sums, axis=1) / K + eps)[:, None]
            first = first * factor
            second = second * factor
        if bias is not None:
            first += tl.load(bias + outputs, mask=outputs < NUM, other=0.0).to(tl.float32)[None, :]
        if ACT is not None:
            if bias is not None:
                second += tl.load(bias + NUM + outputs, mask=outputs < NUM, other=0.0).to(tl.float32)[None, :]
            first = activated(first, second, ACT)
        result = stored(first, out)

        at = rows[:, None] * NUM + outputs[None, :]
        if residual is not None:
            result = stored(result.to(tl.float32) + tl.load(residual + at, mask=exists, other=0.0).to(tl.float32), out)
            exact = result.to(tl.float32)
            tl.store(scaled + at, stored(exact * tl.load(scale + outputs, mask=outputs < NUM, other=0.0)[None, :], scaled), mask=exists)
            tl.store(squares + rows * tl.num_programs(0) + tile, tl.sum(exact * exact, axis=1), mask=rows < num_rows)
        tl.store(out + at, result, mask=exists)


@dataclass(frozen=True, slots=True)
class Added:
    """A residual stream after an addition, and what the next linear needs to take it normed: rows, scaled [m, n]; squares [16, parts] float32, whose
    rows add up to the sums of squares of `rows` (those beyond m hold anything)."""

    rows: Tensor
    scaled: Tensor
    squares: Tensor


class GpuLinear(nn.Linear):
    """`linear`, whose weight [N, K] and bias it shares; with act "silu" or "gelu_tanh" it is a gate and a value side by side (N = 2 I) and gives
    act(gate) * value. All sums are float32, and rounded once.

    Every input must be contiguous, in the weight's dtype and begin at a multiple of 16 bytes. One call at a time: calls share the counters of a split.
    Raises ValueError for what `reason_against` is against."""

    arrivals: Tensor

    def __init__(self, linear: nn.Linear, act: str | None = None) -> None:
        nn.Module.__init__(self)
        weight = linear.weight
        if act is not None and (act not in ACTIVATIONS or len(weight) % 2):
            raise ValueError(f"no activation {act!r} of {len(weight)} outputs; choose one of {', '.join(ACTIVATIONS)} and an even number of outputs")
        if why := reason_against(linear):
            raise ValueError(why)
        self.weight, self.bias, self.act = weight, linear.bias, act
        self.in_features = weight.shape[1]
        self.out_features = weight.shape[0] if act is None else weight.shape[0] // 2
        self.config: Config = default(self.out_features, self.in_features, act is not None, num_sms_of(weight.device))
        """One for all numbers of rows: bits depend on it."""
        self.register_buffer("arrivals", torch.zeros(triton.cdiv(self.out_features, LEAST_BLOCK_N), dtype=torch.int32, device=weight.device), persistent=False)

    def plain(self) -> nn.Linear:
        """The linear that this was made of, over the same weight. Not for one with an activation."""
        assert self.act is None
        linear = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        linear.weight, linear.bias = self.weight, self.bias
        return linear

    def forward(self, x: Tensor) -> Tensor:
        """x [..., K] -> [..., N or I]. More than 16 rows, a prefill, are torch's."""
        rows = x.reshape(-1, self.in_features)
        if not 0 < len(rows) <= MOST_ROWS:
            return self._by_torch(x)
        out = rows.new_empty(len(rows), self.out_features)
        self._launch(rows, out)
        return out.view(*x.shape[:-1], self.out_features)

    def add_to(self, x: Tensor, residual: Tensor, scale: Tensor) -> Added:
        """residual + linear(x), both of them rounded as stock does; and those rows times `scale`, the next norm's. x [m, K], residual [m, N], scale [N]
        float32; at most 16 rows. Not for one with an activation."""
        assert self.act is None
        assert residual.shape == (len(x), self.out_features) and residual.dtype == x.dtype and _is_plain(residual)
        assert scale.shape == (self.out_features,) and scale.dtype == torch.float32 and _is_plain(scale)
        rows, scaled = torch.empty_like(residual), torch.empty_like(residual)
        squares = torch.empty(MOST_ROWS, triton.cdiv(self.out_features, self.config.block_n), dtype=torch.float32, device=x.device)
        self._launch(x, rows, residual=residual, scale=scale, scaled=scaled, squares=squares)
        return Added(rows, scaled, squares)

    def normed(self, added: Added, eps: float) -> Tensor:
        """linear(RMSNorm(added.rows) * scale) [m, N or I]: the norm's factor of a row is multiplied into its products. At most 16 rows."""
        assert added.squares.shape[0] == MOST_ROWS and _is_plain(added.squares)
        out = added.scaled.new_empty(len(added.scaled), self.out_features)
        self._launch(added.scaled, out, parts=added.squares, eps=eps)
        return out

    def _launch(self, x: Tensor, out: Tensor, parts: Tensor | None = None, eps: float = 0.0, **added: Tensor) -> None:
        assert x.shape[1] == self.in_features and 0 < len(x) <= MOST_ROWS and x.dtype == self.weight.dtype
        assert _is_plain(x) and _is_plain(self.weight) and (self.bias is None or _is_plain(self.bias))
        config, split = self.config, self.config.split_k
        num_parts = 0 if parts is None else parts.shape[1]
        pointers: dict[str, Any] = dict.fromkeys(("residual", "scale", "scaled", "squares")) | added
        if split > 1:
            pointers |= {"partial": torch.empty(split, MOST_ROWS, len(self.weight), dtype=torch.float32, device=x.device), "arrivals": self.arrivals}
        else:
            pointers |= {"partial": None, "arrivals": None}
        linear_rows[(triton.cdiv(self.out_features, config.block_n), split)](
            x,
            self.weight,
            self.bias,
            out,
            parts=parts,
            num_rows=len(x),
            eps=eps,
            NUM=self.out_features,
            K=self.in_features,
            ACT=self.act,
            PARTS=num_parts,
            PARTS_BLOCK=triton.next_power_of_2(num_parts) if num_parts else 0,
            SPLIT=split,
            BLOCK_N=config.block_n,
            BLOCK_K=config.block_k,
            STAGES=config.num_stages,
            WEIGHTS_FIRST=config.weights_first,
            num_warps=config.num_warps,
            **pointers,
        )

    def _by_torch(self, x: Tensor) -> Tensor:
        products = F.linear(x, self.weight, self.bias)
        if self.act is None:
            return products
        gate, up = products.chunk(2, -1)
        return (F.silu(gate) if self.act == "silu" else F.gelu(gate, approximate="tanh")) * up


def reason_against(linear: nn.Linear) -> str | None:
    """Why this linear cannot be a GpuLinear; None if it can."""
    weight = linear.weight
    if weight.dtype not in DTYPES or weight.shape[1] % INPUTS_MULTIPLE or not _is_plain(weight):
        return f"a linear of {' x '.join(map(str, weight.shape))} in {weight.dtype}: it must be contiguous, aligned, bfloat16 or float16, and its inputs a multiple of {INPUTS_MULTIPLE}"
    return None


def _is_plain(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and tensor.data_ptr() % ALIGNMENT == 0
