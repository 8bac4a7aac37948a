"""A step of a linear layer (gated delta rule, `layers/delta_rule.py`) in two launches, for any width.

First launch: a program takes one value head and a block of its values. Everything independent of the order of the
tokens comes first, for all of them at once: the short convolution, the lengths of q and k, the gates. Then token by
token, with the state [key_dim, BLOCK] in registers: decay, recall, write, the state into its slot of the ring, output.
Second launch: the gated norm, a program for each row and head.

A row's bits are its own: the number of rows is a runtime argument, every token runs the same instructions, and products
and sums are never fused, so the compiler has no choice of rounding. More than MOST_ROWS rows run in parts, each from
the state that the one before left in the ring: the same bits again. Programs of one launch share nothing that any of
them writes; what a program both writes and reads is in its own scratch memory."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...layers.delta_places import Places, Rows
from ...layers.delta_rule import DeltaLayer
from ...layers.layers import is_stock
from .runtime import MOST_ROWS, rounded, stored

# transformers' classes that do just this: RMS norm in float32, rounded, * weight, rounded, * silu(z), rounded.
NORMS = {"Qwen3NextRMSNormGated", "Qwen3_5RMSNormGated", "Qwen3_5MoeRMSNormGated"}
ACTIVATIONS = {"SiLU", "SiLUActivation"}
BLOCK = 32  # values of a head per program: with 32 heads of 128 that is 128 programs, of 16 kB of state each
# With two threads per key of a head, q and k are read to where the state's rows are, without shared memory.
WARPS = 8
# Numbers after a token's q, k and v in scratch memory: decay, the write's gate, and two that align rows.
GATES = 4
LEAST_DIM = 16
ROUNDING = {"enable_fp_fusion": False}  # compiler options of the kernels


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def softplus(x):
    """log(1 + exp(x)) = max(x, 0) + log(1 + u) with u = exp(-|x|); and log(1 + u) = 2 artanh(s) with s = u / (2 + u),
    at most 1/3."""
    u = tl.exp(-tl.abs(x))
    s = u / (2.0 + u)
    t = s * s
    series = 1.0 + t * (1 / 3 + t * (1 / 5 + t * (1 / 7 + t * (1 / 9 + t * (1 / 11 + t * (1 / 13 + t * (1 / 15)))))))
    return tl.maximum(x, 0.0) + 2.0 * s * series


@triton.jit
def convolved(
    sides, channels, num_written, first, num_rows,
    STRIDE: tl.constexpr, CHANNELS: tl.constexpr, KERNEL: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Rows first .. first + ROWS of the short convolution with its activation, [ROWS, channels] float32. sides: where
    it reads and writes. The inputs of the first `num_written` of all rows go into the ring; what is read there lies at
    other slots."""
    mixed, taps, inputs, past, past_known, inputs_at = sides
    rows = first + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, channels.shape[0]), tl.float32)
    for tap in tl.static_range(KERNEL):
        row = rows + (tap - KERNEL + 1)
        there = (row >= 0) & (row < num_rows)
        values = tl.load(mixed + row[:, None] * STRIDE + channels[None, :], mask=there[:, None], other=0.0)
        if tap < KERNEL - 1:
            earlier = KERNEL - 1 + row
            known = tl.load(past_known + earlier, mask=row < 0, other=0) != 0
            slots = tl.load(past + earlier, mask=known, other=0)
            old = tl.load(inputs + slots[:, None] * CHANNELS + channels[None, :], mask=known[:, None], other=0.0)
            values = tl.where(known[:, None], old, values)
        else:
            slots = tl.load(inputs_at + row, mask=there, other=0)
            tl.store(inputs + slots[:, None] * CHANNELS + channels[None, :], values, mask=(row < num_written)[:, None])
        total = total + values.to(tl.float32) * tl.load(taps + tap * CHANNELS + channels)[None, :]
    return rounded(silu(rounded(total, mixed)), mixed)


@triton.jit
def unit(x):
    """Rows of length 1."""
    return x * tl.rsqrt(tl.sum(x * x, 1) + 1e-6)[:, None]


@triton.jit(do_not_specialize=["first", "num_rows"])
def _delta_step(
    mixed, b, a, taps, rate, dt_bias,
    begun, state_at, next_states, past, past_known, inputs_at,
    states, inputs, scratch, out,
    first, num_rows,
    MIXED_STRIDE: tl.constexpr, B_STRIDE: tl.constexpr, A_STRIDE: tl.constexpr,
    KEY_HEADS: tl.constexpr, VALUE_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    KERNEL: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    GROUP: tl.constexpr = VALUE_HEADS // KEY_HEADS
    KEYS: tl.constexpr = KEY_HEADS * KEY_DIM
    CHANNELS: tl.constexpr = 2 * KEYS + VALUE_HEADS * VALUE_DIM
    STATE: tl.constexpr = VALUE_HEADS * KEY_DIM * VALUE_DIM
    VALUES_AT: tl.constexpr = 2 * KEY_DIM
    GATES_AT: tl.constexpr = 2 * KEY_DIM + BLOCK
    block, head = tl.program_id(0), tl.program_id(1)
    keys = tl.arange(0, KEY_DIM)
    values = tl.arange(0, BLOCK)
    rows = tl.arange(0, ROWS)
    columns = head * VALUE_DIM + block * BLOCK + values

    # The state comes from farthest: it is asked for first.
    cells = (head * KEY_DIM + keys)[:, None] * VALUE_DIM + (block * BLOCK + values)[None, :]
    slot = tl.load(state_at, mask=first == 0, other=0) + tl.load(next_states + first - 1, mask=first > 0, other=0)
    # a mask of one number is beyond some interpreters
    num_known = tl.where((first > 0) | (tl.load(begun) != 0), STATE, 0)
    state = tl.load(states + slot * STATE + cells, mask=cells < num_known, other=0.0)

    key_channels = (head // GROUP) * KEY_DIM + keys
    num_written = tl.where((head % GROUP == 0) & (block == 0), num_rows, 0)  # one program of those that share keys
    sides = (mixed, taps, inputs, past, past_known, inputs_at)
    q = convolved(sides, key_channels, num_written, first, num_rows, MIXED_STRIDE, CHANNELS, KERNEL, ROWS)
    k = convolved(sides, KEYS + key_channels, num_written, first, num_rows, MIXED_STRIDE, CHANNELS, KERNEL, ROWS)
    v = convolved(sides, 2 * KEYS + columns, num_rows, first, num_rows, MIXED_STRIDE, CHANNELS, KERNEL, ROWS)
    there = first + rows < num_rows
    share = tl.load(b + (first + rows) * B_STRIDE + head, mask=there, other=0.0).to(tl.float32)
    share = rounded(1.0 / (1.0 + tl.exp(-share)), b)
    step = tl.load(a + (first + rows) * A_STRIDE + head, mask=there, other=0.0).to(tl.float32) + tl.load(
        dt_bias + head
    ).to(tl.float32)
    kept = tl.exp(tl.load(rate + head) * softplus(step))

    # From here on it is one token at a time, and a block of registers cannot be indexed: they go through memory.
    own = scratch + (head * (VALUE_DIM // BLOCK) + block) * (ROWS * WIDTH)
    tops = own + rows * WIDTH
    lines = tops[:, None]
    tl.store(lines + keys[None, :], unit(q) / (KEY_DIM**0.5), mask=there[:, None])
    tl.store(lines + KEY_DIM + keys[None, :], unit(k), mask=there[:, None])
    tl.store(lines + VALUES_AT + values[None, :], v, mask=there[:, None])
    tl.store(tops + GATES_AT, kept, mask=there)
    tl.store(tops + GATES_AT + 1, share, mask=there)
    tl.debug_barrier()

    q_i = tl.load(own + keys)
    k_i = tl.load(own + KEY_DIM + keys)
    v_i = tl.load(own + VALUES_AT + values)
    kept_i = tl.load(own + GATES_AT)
    share_i = tl.load(own + GATES_AT + 1)
    for i in range(ROWS):
        if first + i < num_rows:
            line = own + (i + 1) * WIDTH  # the next token's numbers are under way while this one's are used
            num_more = tl.where(first + i + 1 < num_rows, WIDTH, 0)
            slot = tl.load(next_states + first + i)
            next_q = tl.load(line + keys, mask=keys < num_more, other=0.0)
            next_k = tl.load(line + KEY_DIM + keys, mask=keys < num_more, other=0.0)
            next_v = tl.load(line + VALUES_AT + values, mask=values < num_more, other=0.0)
            next_kept = tl.load(line + GATES_AT, mask=num_more > 0, other=0.0)
            next_share = tl.load(line + GATES_AT + 1, mask=num_more > 0, other=0.0)
            state = state * kept_i
            written = (v_i - tl.sum(state * k_i[:, None], 0)) * share_i
            state = state + k_i[:, None] * written[None, :]
            tl.store(states + slot * STATE + cells, state)
            row = tl.sum(state * q_i[:, None], 0)
            tl.store(out + (first + i) * (VALUE_HEADS * VALUE_DIM) + columns, stored(row, out))
            q_i, k_i, v_i, kept_i, share_i = next_q, next_k, next_v, next_kept, next_share


@triton.jit
def _gated_norm(x, z, weight, out, eps, Z_STRIDE: tl.constexpr, VALUE_HEADS: tl.constexpr, VALUE_DIM: tl.constexpr):
    head, row = tl.program_id(0), tl.program_id(1)
    values = tl.arange(0, VALUE_DIM)
    place = (row * VALUE_HEADS + head) * VALUE_DIM + values
    numbers = tl.load(x + place).to(tl.float32)
    gate = tl.load(z + row * Z_STRIDE + head * VALUE_DIM + values).to(tl.float32)
    scale = tl.load(weight + values).to(tl.float32)
    normed = rounded(numbers * tl.rsqrt(tl.sum(numbers * numbers, 0) / VALUE_DIM + eps), x)
    tl.store(out + place, stored(rounded(scale * normed, x) * silu(gate), out))


def fits(layer: DeltaLayer, dtype: torch.dtype) -> bool:
    """Whether `mix_step` can do this layer for rows of that dtype: SiLU after the convolution, a known gated norm,
    dimensions that are powers of two."""
    s, norm = layer.shape, layer.norm
    weight = getattr(norm, "weight", None)
    return (
        all(dim >= LEAST_DIM and dim & (dim - 1) == 0 for dim in (s.key_dim, s.value_dim))
        and type(norm).__name__ in NORMS
        and is_stock(norm)
        and getattr(norm, "activation", None) == "silu"
        and isinstance(getattr(norm, "variance_epsilon", None), float)
        and isinstance(weight, Tensor)
        and weight.dtype == dtype
        and weight.shape == (s.value_dim,)
        and type(layer.activation).__name__ in ACTIVATIONS
    )


def mix_step(layer: DeltaLayer, rows: Rows, places: Places, states: Tensor, inputs: Tensor) -> Tensor:
    """`DeltaLayer.mix` for a step (`places.chunked` False) of a layer that `fits`: rows are the convolution's inputs
    [n, conv_dim], z [n, value_heads * value_dim], b and a [n, value_heads], which may be columns of wider tensors;
    rings as in `ring_sizes`, contiguous, states in float32; -> [n, value_heads * value_dim]. Rounded to the rows' dtype
    where `mix` rounds. Two launches, and one more for every MOST_ROWS rows after the first."""
    mixed, z, b, a = rows
    s, num_rows = layer.shape, len(mixed)
    num_values = s.num_value_heads * s.value_dim
    assert not places.chunked and len(places.inputs) == len(places.next_states) == num_rows < len(states)
    assert (
        all(x.stride(1) == 1 and x.dtype == mixed.dtype == inputs.dtype for x in rows)
        and states.dtype == torch.float32
        and states.is_contiguous()
        and inputs.is_contiguous()
    )
    block = min(BLOCK, s.value_dim)
    width = 2 * s.key_dim + block + GATES
    grid = (s.value_dim // block, s.num_value_heads)
    scratch = torch.empty(grid[0] * grid[1] * MOST_ROWS * width, dtype=torch.float32, device=mixed.device)
    out, normed = (torch.empty(num_rows, num_values, dtype=mixed.dtype, device=mixed.device) for _ in range(2))
    for first in range(0, num_rows, MOST_ROWS):
        _delta_step[grid](
            mixed, b, a, layer.taps, layer.rate, layer.dt_bias,
            places.begun, places.state, places.next_states, places.past, places.past_known, places.inputs,
            states, inputs, scratch, out,
            first, num_rows,
            MIXED_STRIDE=_stride(mixed), B_STRIDE=_stride(b), A_STRIDE=_stride(a),
            KEY_HEADS=s.num_key_heads, VALUE_HEADS=s.num_value_heads, KEY_DIM=s.key_dim, VALUE_DIM=s.value_dim,
            KERNEL=s.kernel, BLOCK=block, WIDTH=width, ROWS=MOST_ROWS, num_warps=WARPS, **ROUNDING,
        )  # fmt: skip
    _gated_norm[s.num_value_heads, num_rows](
        out, z, layer.norm.weight, normed, layer.norm.variance_epsilon,
        Z_STRIDE=_stride(z), VALUE_HEADS=s.num_value_heads, VALUE_DIM=s.value_dim, num_warps=1, **ROUNDING,
    )  # fmt: skip
    return normed


def _stride(x: Tensor) -> int:
    """The stride of a row; a single row's may be anything."""
    return max(x.stride(0), x.shape[1])
