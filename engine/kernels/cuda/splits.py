"""Where attention cuts the columns of a cache, for its programs to share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import triton

from .runtime import MOST_ROWS

BLOCK = 8192
"""Values of keys that a program reads at a time at most, and as many of values: 16 kB each."""
MOST_COLUMNS = 64
PROGRAMS = 128
"""Splits are as long as leaves this many, if all columns are seen: about one for each of an H200's multiprocessors."""
MOST_BLOCKS = 16


@dataclass(frozen=True, slots=True)
class Splits:
    """How the columns of a cache are divided: by its shape and the window alone."""

    columns: int
    blocks: int
    slots: int
    """Splits that rows of one tile can see at most."""

    @property
    def split(self) -> int:
        """Columns of a split."""
        return self.columns * self.blocks


def splits_of(length: int, kv_heads: int, dim: int, window: int | None) -> Splits:
    """Splits of as many blocks, a power of two, as leave programs enough where all columns that can be seen are."""
    columns = min(MOST_COLUMNS, BLOCK // triton.next_power_of_2(dim))
    extent = length if window is None else min(length, window)
    blocks = 1
    while blocks < MOST_BLOCKS and kv_heads * math.ceil(extent / (2 * blocks * columns)) >= PROGRAMS:
        blocks *= 2
    num_splits = math.ceil(length / (columns * blocks))
    most_seen = num_splits if window is None else (window + MOST_ROWS - 3) // (columns * blocks) + 2
    return Splits(columns, blocks, min(num_splits, most_seen))
