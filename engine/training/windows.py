"""Windows: token sequences of at most `length` tokens to train on, cut from texts."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

MIN_TOKENS = 32


def cut(tokenizer: Any, texts: Iterable[str], length: int, rng: random.Random) -> Iterator[list[int]]:
    """Every text in pieces of `length` tokens, the first shortened at random so that pieces start anywhere; pieces
    below MIN_TOKENS are dropped. Every piece begins as the tokenizer begins a text."""
    start = start_ids(tokenizer)
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        size, first = length - len(start), 0
        end = size if len(ids) <= size else rng.randint(max(MIN_TOKENS, size // 2), size)
        while first < len(ids):
            piece = ids[first:end]
            if len(piece) >= MIN_TOKENS:
                yield [*start, *piece]
            first, end = end, end + size


def start_ids(tokenizer: Any) -> list[int]:
    """What the tokenizer puts before every text."""
    return tokenizer("a")["input_ids"][: -len(tokenizer("a", add_special_tokens=False)["input_ids"])]
