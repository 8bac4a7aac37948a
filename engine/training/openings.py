"""Beginnings of texts for the target to write: the first words of a kind of text (openings.json), our own prompts cut
anywhere, pieces of texts, and nothing at all. The shorter a beginning, the more of the text is the target's own choice,
and the more kinds of text a head learns."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from .made_prompts import prompts
from .python_texts import BUILTIN, all_texts
from .windows import cut, start_ids

SOURCES = {"words": 0.62, "prompts": 0.21, "texts": 0.13, "nothing": 0.04}
# Everyday proportions, with more structured text than that: speculation is used most for it.
KINDS = {
    "code": 0.2, "json": 0.12, "sql": 0.1, "prose": 0.2, "dialogue": 0.11, "translation": 0.06, "questions": 0.1,
    "mathematics": 0.06, "documents": 0.05,
}  # fmt: skip
KEPT = {"csv": 0.6, "chat": 0.6, "essay": 0.5, "summary": 0.5}  # fewer prompts of kinds that are similar to others
PROMPT_TOKENS, TEXT_TOKENS = (12, 96), (6, 64)
PIECE, PIECES_KEPT = 128, 0.15


def openings(tokenizer: Any, seed: int) -> Iterator[list[int]]:
    """Token ids of beginnings, without end, each as the tokenizer begins a text; decided by the seed."""
    rng = random.Random(seed)
    sources = {
        "words": _words(tokenizer, rng),
        "prompts": _prompts(tokenizer, rng),
        "texts": _texts(tokenizer, rng),
        "nothing": cycle([start_ids(tokenizer)]),
    }
    while True:
        ids = next(sources[_one_of(SOURCES, rng)])
        if ids:
            yield list(ids)


def _one_of(shares: dict[str, float], rng: random.Random) -> str:
    return rng.choices(list(shares), list(shares.values()))[0]


def _words(tokenizer: Any, rng: random.Random) -> Iterator[list[int]]:
    by_kind: dict[str, list[str]] = json.loads((Path(__file__).parent / "openings.json").read_text(encoding="utf-8"))
    while True:
        yield tokenizer(rng.choice(by_kind[_one_of(KINDS, rng)]))["input_ids"]


def _prompts(tokenizer: Any, rng: random.Random) -> Iterator[list[int]]:
    for kind, text in prompts(rng.randrange(2**32)):
        if rng.random() < KEPT.get(kind, 1.0):
            yield tokenizer(text)["input_ids"][: rng.randint(*PROMPT_TOKENS)]


def _texts(tokenizer: Any, rng: random.Random) -> Iterator[list[int]]:
    while True:
        for piece in cut(tokenizer, all_texts([BUILTIN], rng.randrange(2**32)), PIECE, rng):
            if rng.random() < PIECES_KEPT:
                yield piece[: rng.randint(*TEXT_TOKENS)]
