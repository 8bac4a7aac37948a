"""Where attention splits a cache's columns among its programs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import triton

from .runtime import MOST_ROWS

BLOCK = 8192
"""Values of keys that a program reads at a time at most, and as many of values: 16 kB each."""
MOST_COLUMNS = 64
PROGRAMS = 128
"""Splits are as long as this number of programs allows when all columns are seen: about one per multiprocessor of an
H200."""
MOST_BLOCKS = 16


@dataclass(frozen=True, slots=True)
class Splits:
    """How a cache's columns are split, by its shape and the window alone."""

    columns: int
    blocks: int
    slots: int
    """The most splits that rows of one tile can see."""

    @property
    def split(self) -> int:
        """Columns of a split."""
        return self.columns * self.blocks


def splits_of(length: int, kv_heads: int, dim: int, window: int | None) -> Splits:
    """Splits of a power of two blocks, as long as possible with enough programs over all visible columns."""
    columns = min(MOST_COLUMNS, BLOCK // triton.next_power_of_2(dim))
    extent = length if window is None else min(length, window)
    blocks = 1
    while blocks < MOST_BLOCKS and kv_heads * math.ceil(extent / (2 * blocks * columns)) >= PROGRAMS:
        blocks *= 2
    num_splits = math.ceil(length / (columns * blocks))
    most_seen = num_splits if window is None else (window + MOST_ROWS - 3) // (columns * blocks) + 2
    return Splits(columns, blocks, min(num_splits, most_seen))
