"""The target's choice of a token in every row (`sampler.py`: argmax(logits / T + Gumbel noise of seed, position and
token)) in two launches; torch takes some thirty passes over rows as wide as the vocabulary."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..torch import Notes

BLOCK = 2048
NOWHERE = tl.constexpr(2**31 - 1)
NOT_NUMBERS = tl.constexpr(-1)


@triton.jit
def _mixed(x):
    """The 32-bit avalanche of noise.py, on uint32."""
    x = x ^ (x >> 16)
    x = x * tl.full([], 0x7FEB352D, tl.uint32)
    x = x ^ (x >> 15)
    x = x * tl.full([], 0x846CA68B, tl.uint32)
    return x ^ (x >> 16)


@triton.jit
def _noise(tokens, low, high):
    """Standard Gumbel noise of int32 tokens, under the two words of a position's key."""
    words = _mixed(_mixed((tokens ^ low).to(tl.uint32, bitcast=True)) + high.to(tl.uint32, bitcast=True)).to(
        tl.int32, bitcast=True
    )
    value = words.to(tl.float32)
    value = tl.where(words < 0, value + 4294967296.0, value)
    unit = tl.minimum((value + 0.5) * 2.3283064365386963e-10, 0.99999994)
    rest = 1.0 - unit
    # log(1 - u) for any u: what rounding took from 1 - u is given back as a factor.
    exponential = tl.where(rest == 1.0, unit, -tl.log(rest) * (unit / (1.0 - tl.where(rest == 1.0, 0.5, rest))))
    return -tl.log(exponential)


@triton.jit(do_not_specialize=["place", "position"])
def _best_of_blocks(
    rows, tokens, keys, place, position, values, seconds, places, vocab, num_blocks, temperature,
    GREEDY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """For row i and block j: the best score, the second best, and the best's column, or NOT_NUMBERS for a NaN."""
    row, block = tl.program_id(0), tl.program_id(1)
    columns = block * BLOCK + tl.arange(0, BLOCK)
    present = columns < vocab
    score = tl.load(rows + row.to(tl.int64) * vocab + columns, mask=present, other=float("-inf")).to(tl.float32)
    if not GREEDY:
        names = tl.load(tokens + columns, mask=present, other=0)
        key = keys + 2 * row
        if place is not None:
            key += 2 * (tl.load(position) + tl.load(place))
        score = score / temperature + _noise(names, tl.load(key), tl.load(key + 1))
    wrong = tl.max((score != score).to(tl.int32), 0)
    score = tl.where(present & (score == score), score, float("-inf"))
    best = tl.max(score, 0)
    place = tl.min(tl.where(present & (score == best), columns, NOWHERE), 0)
    at = row * num_blocks + block
    tl.store(values + at, best)
    tl.store(seconds + at, tl.max(tl.where(columns == place, float("-inf"), score), 0))
    tl.store(places + at, tl.where(wrong > 0, NOT_NUMBERS, place))


@triton.jit(do_not_specialize=["place", "chosen", "moved"])
def _best_of_rows(
    values, seconds, places, chosen, margins, num_blocks, place, picked, ids, moved,
    MOST: tl.constexpr, MOVED: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    row, blocks = tl.program_id(0), tl.arange(0, BLOCKS)
    present = blocks < num_blocks
    at = row * num_blocks + blocks
    value = tl.load(values + at, mask=present, other=float("-inf"))
    columns = tl.load(places + at, mask=present, other=NOWHERE)
    second = tl.load(seconds + at, mask=present, other=float("-inf"))
    best = tl.max(value, 0)
    first = tl.min(tl.where(value == best, columns, NOWHERE), 0)
    others = tl.where(columns == first, second, value)
    column = tl.where(tl.min(columns, 0) < 0, NOT_NUMBERS, first).to(tl.int64)
    margin = best - tl.max(others, 0)
    if place is not None:
        is_number = column >= 0
        column = tl.maximum(column, 0)
        if ids is not None:
            column = tl.load(ids + column)
        noted = picked + tl.minimum(tl.load(place) + row, MOST - 1)
        tl.store(noted, tl.where(is_number, column, NOT_NUMBERS))
        tl.store(noted + MOST, margin.to(tl.int32, bitcast=True).to(tl.int64))
        if moved is not None:
            numbers = moved + tl.arange(0, MOVED)
            later = tl.load(numbers) + 1
            tl.debug_barrier()  # `place` may be one of them, and every warp reads it
            tl.store(numbers, later)
    tl.store(chosen + row, column)
    tl.store(margins + row, margin)


def pick_rows(
    rows: Tensor, tokens: Tensor, keys: Tensor, temperature: float, notes: Notes | None = None
) -> tuple[Tensor, Tensor]:
    """The best column of each row, as `Sampler.pick_rows` chooses it.

    rows: [n, vocab], any floating dtype.
    tokens: [at least vocab] int32, the names of columns.
    keys: [n, 2] int32 of `noise.keys_of`.
    notes: keys is then [any, 2], see there, and what is returned are ids to look up.

    All contiguous. Returns int64 [n], the column of the best score, the first of equals, or -1 for a NaN row; and
    float32 [n], how far it leads the next best. The noise is that of `noise.gumbel_rows` but for the last bits of its
    logarithms."""
    num_rows, vocab = rows.shape
    assert len(tokens) >= vocab and all(x.is_contiguous() for x in (rows, tokens, keys))
    assert keys.shape[1:] == (2,) and (notes is not None or len(keys) == num_rows)
    num_blocks = triton.cdiv(vocab, BLOCK)
    values, seconds = (torch.empty(num_rows, num_blocks, dtype=torch.float32, device=rows.device) for _ in range(2))
    places = torch.empty(num_rows, num_blocks, dtype=torch.int32, device=rows.device)
    place, position, picked, ids, token, moved = notes or (None,) * 6
    assert token is None or num_rows == 1
    chosen = torch.empty(num_rows, dtype=torch.int64, device=rows.device) if token is None else token
    margins = torch.empty(num_rows, dtype=torch.float32, device=rows.device)
    _best_of_blocks[(num_rows, num_blocks)](
        rows, tokens, keys, place, position, values, seconds, places, vocab, num_blocks, float(temperature or 1.0),
        GREEDY=temperature == 0, BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
    _best_of_rows[(num_rows,)](
        values, seconds, places, chosen, margins, num_blocks, place, picked, ids, moved,
        MOST=0 if picked is None else picked.shape[1], MOVED=0 if moved is None else len(moved),
        BLOCKS=triton.next_power_of_2(num_blocks), num_warps=4,
    )  # fmt: skip
    return chosen, margins
