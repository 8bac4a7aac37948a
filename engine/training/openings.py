"""Beginnings of texts for the target to write: the first words of a kind of text (openings.json), pieces of the user's
own texts, and nothing at all. The shorter a beginning, the more of the text is the target's own choice, and the more
kinds of text a head learns."""

import json
import random
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from ..core.errors import UsageError

SHARES = {"words": 0.62, "texts": 0.34, "nothing": 0.04}
# Everyday proportions, with more structured text than that: speculation is used most for it.
KINDS = {
    "code": 0.2, "json": 0.12, "sql": 0.1, "prose": 0.2, "dialogue": 0.11, "translation": 0.06, "questions": 0.1,
    "mathematics": 0.06, "documents": 0.05,
}  # fmt: skip
SUFFIXES = (".txt", ".md", ".rst", ".py", ".json", ".sql", ".csv", ".html", ".js", ".c", ".go")
MAX_FILE_BYTES = 400_000
PIECE_CHARACTERS, PIECE_TOKENS = 600, (6, 64)


def openings(tokenizer: Any, seed: int, data: Path | None = None) -> Iterator[list[int]]:
    """Token ids of beginnings, without end, each as the tokenizer begins a text; decided by the seed.

    data: a folder whose text files give a third of them. Raises UsageError if it has none."""
    rng = random.Random(seed)
    sources = {"words": _words(tokenizer, rng), "nothing": cycle([tokenizer("")["input_ids"]])}
    if data is not None:
        sources["texts"] = _pieces(tokenizer, rng, _files(data))
    shares = {name: SHARES[name] for name in sources}
    while True:
        ids = next(sources[_one_of(shares, rng)])
        if ids:
            yield list(ids)


def _one_of(shares: dict[str, float], rng: random.Random) -> str:
    return rng.choices(list(shares), list(shares.values()))[0]


def _words(tokenizer: Any, rng: random.Random) -> Iterator[list[int]]:
    by_kind: dict[str, list[str]] = json.loads((Path(__file__).parent / "openings.json").read_text(encoding="utf-8"))
    while True:
        yield tokenizer(rng.choice(by_kind[_one_of(KINDS, rng)]))["input_ids"]


def _files(data: Path) -> list[Path]:
    paths = [path for path in data.rglob("*") if path.suffix in SUFFIXES and path.stat().st_size <= MAX_FILE_BYTES]
    if not paths:
        raise UsageError(
            f"there is no training text in {str(data)!r}; choose a folder of {', '.join(SUFFIXES)} files of up to "
            f"{MAX_FILE_BYTES:,} bytes"
        )
    return sorted(paths)


def _pieces(tokenizer: Any, rng: random.Random, paths: list[Path]) -> Iterator[list[int]]:
    while True:
        text = rng.choice(paths).read_text(encoding="utf-8-sig", errors="ignore")
        first = rng.randrange(max(1, len(text)))
        yield tokenizer(text[first : first + PIECE_CHARACTERS])["input_ids"][: rng.randint(*PIECE_TOKENS)]
