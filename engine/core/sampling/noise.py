"""Noise that belongs to a position: Gumbel noise from a counter-based generator, a function of (seed, position, token).

The idea is that of Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; the mixing function is of the
murmur family."""

from typing import Any

import torch
from torch import Tensor

from ..errors import NOT_NUMBERS, RaceError

_MASK64 = 2**64 - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def splitmix64(x: int) -> int:
    """The 64-bit finaliser of Steele et al. 2014; a bijection that spreads every bit."""
    x = (x + _GOLDEN) & _MASK64
    x = ((x ^ (x >> 30)) * _FIRST) & _MASK64
    x = ((x ^ (x >> 27)) * _SECOND) & _MASK64
    return x ^ (x >> 31)


def _signed(x: int, bits: int = 64) -> int:
    """The lowest bits of `x` as a signed integer."""
    return (x & (2**bits - 1)) - ((x & 2 ** (bits - 1)) << 1)


def keys_of(seed: int, positions: Tensor) -> Tensor:
    """The keys that `uniform` mixes in at `positions` [n] (int64): int32 [n, 2]. `splitmix64` on int64 with
    wrap-around."""

    def shifted(x: Tensor, by: int) -> Tensor:
        return (x >> by) & (2 ** (64 - by) - 1)

    x = (positions ^ _signed(splitmix64(seed))) + _signed(_GOLDEN)
    x = (x ^ shifted(x, 30)) * _signed(_FIRST)
    x = (x ^ shifted(x, 27)) * _signed(_SECOND)
    x = x ^ shifted(x, 31)
    return torch.stack([x, x >> 32], -1).to(torch.int32)


def _mix(x: Tensor) -> Tensor:
    """A 32-bit avalanche in place, on int32 with wrap-around; shifts are masked to be logical."""
    x ^= (x >> 16) & 0xFFFF
    x *= _signed(0x7FEB352D, 32)
    x ^= (x >> 15) & 0x1FFFF
    x *= _signed(0x846CA68B, 32)
    x ^= (x >> 16) & 0xFFFF
    return x


def uniform(tokens: Tensor, seed: int, position: int, on_host: bool = True) -> Tensor:
    """float32 in (0, 1), one for each of `tokens` (int32), a function of (seed, position, token). Values near 0 keep
    full precision. on_host: by numpy, in a third of torch's time, with the same bits."""
    if on_host:
        return torch.from_numpy(units(words(tokens.numpy(), seed, position)))
    key = splitmix64(splitmix64(seed) ^ position)
    return _uniform(tokens, _signed(key, 32), _signed(key >> 32, 32))


def words(tokens: Any, seed: int, position: int) -> Any:
    """The 32-bit words behind `uniform`, of an int32 array, as int32."""
    key = splitmix64(splitmix64(seed) ^ position)
    x = tokens.view("uint32") ^ (key & 0xFFFFFFFF)
    for word in (key >> 32, None):
        x ^= x >> 16
        x *= 0x7FEB352D
        x ^= x >> 15
        x *= 0x846CA68B
        x ^= x >> 16
        if word is not None:
            x += word
    return x.view("int32")


def units(signed: Any) -> Any:
    """Words as numbers in (0, 1), float32: `_uniform`, bit for bit."""
    v = signed.astype("float32")
    v += (signed >> 31).astype("float32") * -(2.0**32)
    v += 0.5
    v *= 2.0**-32
    return v.clip(max=1 - 2.0**-24, out=v)


def _uniform(tokens: Tensor, low: int | Tensor, high: int | Tensor) -> Tensor:
    """`uniform` for a key's two words, or for many keys' words [n, 1]."""
    x = _mix(tokens ^ low)
    x = _mix(x.add_(high))
    v = x.to(torch.float32)
    v = torch.where(x < 0, v + 2.0**32, v)
    return v.add_(0.5).mul_(2.0**-32).clamp_(max=1 - 2.0**-24)


def gumbel(tokens: Tensor, seed: int, position: int, on_host: bool = True) -> Tensor:
    """Standard Gumbel noise [len(tokens)], float32. Large values come from small uniforms, which float32 resolves to
    2**-33."""
    return _gumbel(uniform(tokens, seed, position, on_host))


def gumbel_rows(tokens: Tensor, keys: Tensor) -> Tensor:
    """`gumbel` at many positions at once, given their `keys_of` [n, 2]: [n, len(tokens)]."""
    return _gumbel(_uniform(tokens, keys[:, :1], keys[:, 1:]))


def _gumbel(uniforms: Tensor) -> Tensor:
    return uniforms.neg_().log1p_().neg_().log_().neg_()


def first_argmax(row: Tensor, on_host: bool = True) -> int:
    """Index of the largest value, the first of equals. Raises RaceError for NaN.

    on_host: by numpy, whose vectorised float32 argmax is ten times as fast as torch's on bfloat16."""
    wide = row.float()
    best = int(wide.numpy().argmax()) if on_host else int(wide.argmax())
    if wide[best].isnan():
        raise RaceError(NOT_NUMBERS)
    return best


def best_columns(scores: Tensor) -> Tensor:
    """`first_argmax` of each row [n, vocab], left on the device: int64 [n]; -1 instead of an error."""
    best = scores.argmax(-1, keepdim=True)
    return best.masked_fill(scores.gather(-1, best).isnan(), -1)[:, 0]
