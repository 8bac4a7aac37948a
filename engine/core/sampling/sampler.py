"""The target's choice of a token, a function of one row of logits and its position: argmax(logits / T + G[seed,
position, token]).

The noise belongs to the position, not to the call (`noise.py`), so the same seed gives the same tokens however steps
are cut (Gumbel-max coupling; Maddison et al. 2014, "A* sampling"). The vocabulary is never sorted as a whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ..interfaces import Choice
from ..spec import SamplingParams
from .noise import best_columns, first_argmax, gumbel, gumbel_rows, keys_of, splitmix64
from .nucleus import kept_by_top_k, kept_by_top_p, nucleus_rows

MAX_NOISE = 22.9  # more than any Gumbel noise here: the smallest uniform, 2**-33, gives 22.88
# Tokens this close to the best, in logits, get their noise first: their best score bounds which others can win.
NEAR = 4.0
# Logarithms are taken of a multiple of this many numbers: a remainder that does not fill a vector may get other bits.
VECTOR = 64
SIGN_BIT, INFINITY_BITS = 0x8000, 0x7F80  # bfloat16's


class Likely:
    """Columns of processed logits [vocab], float32 on the CPU, by value. top: the largest value, NaN if there is
    one."""

    def __init__(self, processed: Tensor) -> None:
        self._processed, self._values = processed, processed.numpy()
        self.top = float(self._values.max())

    def at_least(self, least: float) -> Any:
        """Ascending column numbers, among them all whose value is at least that."""
        return (self._values >= least).nonzero()[0]

    def scaled(self, columns: Any) -> Tensor:
        """The values [n] of these columns."""
        return self._processed[torch.from_numpy(columns)]


class LikelyBits:
    """`Likely` for bfloat16 logits and a temperature, without a pass in float32: as 16-bit integers, positive values
    are in their own order, negative ones in reverse."""

    def __init__(self, row: Tensor, bits: Any, temperature: float) -> None:
        self._row, self._bits, self._temperature = row, bits, temperature
        self.top = float(row[int(bits.argmax())].float() / temperature)

    @classmethod
    def of(cls, row: Tensor, temperature: float) -> LikelyBits | None:
        """None for another dtype, and for rows whose largest value is not finite and positive."""
        if row.dtype != torch.bfloat16:
            return None
        bits = row.view(torch.int16).numpy()
        usual = 0 < int(bits.max()) < INFINITY_BITS and int(bits.view("uint16").max()) <= SIGN_BIT + INFINITY_BITS
        return cls(row, bits, temperature) if usual else None

    def at_least(self, least: float) -> Any:
        magnitude = int(torch.tensor(abs(least) * self._temperature).view(torch.int32)) >> 16
        if least > 0 and magnitude > 1:
            return (self._bits >= magnitude - 1).nonzero()[0]
        return ((self._bits >= 0) | (self._bits <= magnitude + 2 - SIGN_BIT)).nonzero()[0]

    def scaled(self, columns: Any) -> Tensor:
        return self._row[torch.from_numpy(columns)].float() / self._temperature


class DevicePicks(Protocol):
    """The part of a choice that a device's kernels do. None: torch's operations do it."""

    device: torch.device

    @property
    def on_host(self) -> bool:
        """Whether tensors lie in the host's memory, where numpy reads them without a copy."""

    def chooser(
        self, tokens: Tensor, temperature: float, seed: int, max_noise: float, near: float
    ) -> Callable[[Tensor, Sequence[int], int], list[int]] | None:
        """`Choice.at_once` in one call on the host."""

    def pick_rows(
        self, rows: Tensor, tokens: Tensor, keys: Tensor, temperature: float, notes: Any = None
    ) -> tuple[Tensor, Tensor] | None:
        """`Sampler.pick_rows_with_margins` in few launches. notes: of the device's own, which also look keys up."""


class Sampler(Choice):
    """The race's choice of tokens, the same in every lane: `sampler(row [vocab], position in the completion) -> token
    id`."""

    def __init__(self, params: SamplingParams, vocab_size: int, kernels: DevicePicks) -> None:
        self._kernels, self._on_host = kernels, kernels.on_host
        self._set(params, torch.arange(vocab_size, dtype=torch.int32, device=kernels.device))

    def _set(self, params: SamplingParams, tokens: Tensor) -> None:
        self.params, self._tokens = params, tokens
        given = tokens, params.temperature, splitmix64(params.seed), MAX_NOISE, NEAR
        self._chooser = None if self.is_filtered else self._kernels.chooser(*given)

    def among(self, token_ids: Tensor) -> Sampler:
        """The same choice over part of the vocabulary: `token_ids` [n] name a row's columns; returns column numbers."""
        part = copy(self)
        part._set(self.params, token_ids.to(self._tokens))
        return part

    def greedy(self) -> Sampler:
        """The same sampler at temperature 0."""
        derived = copy(self)
        derived._set(replace(self.params, temperature=0.0), self._tokens)
        return derived

    def stream(self, purpose: int) -> Sampler:
        """The same sampler with independent noise, by purpose."""
        derived = copy(self)
        seed = splitmix64(splitmix64(self.params.seed) ^ splitmix64(purpose)) >> 1
        derived._set(replace(self.params, seed=seed), self._tokens)
        return derived

    @property
    def is_filtered(self) -> bool:
        """Whether top-k or top-p removes tokens. The CPU's compiled kernels choose only where this is False."""
        p = self.params
        return p.temperature > 0 and (p.top_k > 0 or p.top_p < 1)

    def keys(self, num_positions: int) -> Tensor:
        """Noise keys of positions 0 .. num_positions - 1 for `pick_rows`, int32 [num_positions, 2]."""
        return keys_of(self.params.seed, torch.arange(num_positions, device=self._tokens.device))

    def pick_rows(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The choice for many rows [n, vocab] at once, by the keys [n, 2] of their positions, without a wait for the
        device: int64 [n], -1 for NaN rows. The noise of our CUDA kernels may differ from `row_scores` in its last
        bits."""
        picked = self.picked_by_kernels(rows, keys)
        return best_columns(self.row_scores(rows, keys)) if picked is None else picked[0]

    def pick_rows_with_margins(self, rows: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """`pick_rows`, and how far each choice leads the next best, noise included: float32 [n]."""
        if (picked := self.picked_by_kernels(rows, keys)) is not None:
            return picked
        scores = self.row_scores(rows, keys)
        best = best_columns(scores)
        column = best.clamp(min=0)[:, None]
        return best, (
            scores.gather(1, column).float() - scores.scatter(1, column, -torch.inf).amax(1, keepdim=True).float()
        )[:, 0]

    def picked_by_kernels(self, rows: Tensor, keys: Tensor, notes: Any = None) -> tuple[Tensor, Tensor] | None:
        """`pick_rows_with_margins` by the device's kernels, if they pick; see there for `notes`."""
        rows, temperature = (self.processed_rows(rows), 1.0) if self.is_filtered else (rows, self.params.temperature)
        return self._kernels.pick_rows(rows, self._tokens, keys, temperature, notes)

    def row_scores(self, rows: Tensor, keys: Tensor) -> Tensor:
        """The scores that `pick_rows` maximises: [n, vocab]."""
        if self.params.temperature == 0:
            return rows
        return self.processed_rows(rows) + gumbel_rows(self._tokens[: rows.shape[-1]], keys)

    def processed_rows(self, rows: Tensor) -> Tensor:
        """`processed` for each row [n, vocab], without a wait for the device; NaN instead of an error."""
        p = self.params
        return nucleus_rows(kept_by_top_k(rows.float() / p.temperature, p.top_k), p.top_p)

    def scores(self, row: Tensor, position: int) -> Tensor:
        """The scores to maximise: float32 [vocab]; -inf where top-k and top-p removed a token."""
        if self.params.temperature == 0:
            return row.float()
        return self.processed(row) + gumbel(self._tokens[: row.shape[-1]], self.params.seed, position, self._on_host)

    def processed(self, row: Tensor) -> Tensor:
        """The logits [vocab], float32, of the distribution that is sampled: after temperature (above 0), top-k and
        top-p."""
        p = self.params
        return kept_by_top_p(kept_by_top_k(row.float() / p.temperature, p.top_k), p.top_p)

    def draw(self, weights: Tensor, position: int) -> int:
        """A token, drawn in proportion to weights [vocab]."""
        noise = gumbel(self._tokens[: weights.shape[-1]], self.params.seed, position, self._on_host)
        return first_argmax(weights.log() + noise, self._on_host)

    def uniform(self, position: int) -> float:
        """A number in (0, 1), a function of seed and position."""
        return ((splitmix64(splitmix64(self.params.seed) ^ position) >> 11) + 0.5) * 2.0**-53

    def __call__(self, row: Tensor, position: int) -> int:
        if known := self.at_once(row[None], (), position):
            return known[0]
        columns, scores = self._scores_in_reach(row, position)
        best = first_argmax(scores, self._on_host)
        return best if columns is None else int(columns[best])

    def at_once(self, rows: Tensor, draft: Sequence[int], position: int) -> list[int]:
        """See `interfaces.Choice`; often none."""
        return [] if self._chooser is None else self._chooser(rows, draft, position)

    def best(self, row: Tensor, position: int, num: int) -> list[tuple[int, float]]:
        """The same choice with its score, noise included, then up to `num` - 1 of the next best in reach."""
        columns, scores = self._scores_in_reach(row, position)
        first = first_argmax(scores, self._on_host)
        top = scores.topk(min(num, len(scores)))
        picked = [(first, float(scores[first]))]
        picked += [(i, s) for i, s in zip(top.indices.tolist(), top.values.tolist(), strict=True) if i != first]
        return [(i if columns is None else int(columns[i]), s) for i, s in picked[:num] if s > -math.inf]

    def _scores_in_reach(self, row: Tensor, position: int) -> tuple[Any, Tensor]:
        """(columns, their `scores`): on the CPU without tokens that cannot win, since noise is bounded, and a few
        thousand of 262,144 are in reach. columns None: all of them."""
        if self._on_host and self.params.temperature > 0:
            bits = None if self.is_filtered else LikelyBits.of(row, self.params.temperature)
            likely = bits or Likely(self.processed(row))
            if math.isfinite(likely.top):
                near = likely.at_least(likely.top - NEAR)
                known = (likely.scaled(near) + self._noise(near, position)).max()
                reach = likely.at_least(float(known) - MAX_NOISE)
                if 2 * len(reach) < row.shape[-1]:
                    return reach, likely.scaled(reach) + self._noise(reach, position)
        return None, self.scores(row, position)

    def _noise(self, columns: Any, position: int) -> Tensor:
        tokens = torch.zeros(-(-len(columns) // VECTOR) * VECTOR, dtype=torch.int32)
        tokens[: len(columns)] = self._tokens[torch.from_numpy(columns)]
        return gumbel(tokens, self.params.seed, position)[: len(columns)]
