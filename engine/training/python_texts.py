"""Text that comes with every Python (the standard library's source and its reference documentation), and text files
that the user names."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..core.errors import UsageError
from .made_prompts import prompts

BUILTIN = "builtin"
PROMPTS = "prompts"
PROMPTS_A_TEXT = 4
MAX_FILE_BYTES = 400_000
SUFFIXES = (".txt", ".md", ".rst", ".py", ".json", ".sql", ".csv", ".html", ".js", ".c", ".go")


def texts_of(data: str, seed: int) -> Iterator[str]:
    """Texts of `builtin`, of `prompts` (our own, several of one kind after another, without end), of a file, or of a
    folder's text files, in an order decided by the seed. Raises UsageError for a missing file or folder."""
    if data == BUILTIN:
        paths = [
            p
            for p in Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")
            if not {"site-packages", "test", "tests", "pydoc_data", "idlelib"} & set(p.parts)
        ]
        yield from _interleaved(_read(paths, seed), _documentation(seed))
        return
    if data == PROMPTS:
        yield from _own(seed)
        return
    path = Path(data)
    if path.is_file():
        yield path.read_text(encoding="utf-8-sig", errors="ignore")
    elif path.is_dir():
        yield from _read([p for p in path.rglob("*") if p.suffix in SUFFIXES], seed)
    else:
        raise UsageError(
            f"there is no training text at {data!r}; choose {BUILTIN}, {PROMPTS}, a file or a folder of "
            f"{', '.join(SUFFIXES)} files"
        )


def all_texts(data: Sequence[str], seed: int) -> Iterator[str]:
    """A text from each in turn, until all are exhausted."""
    yield from _interleaved(*(texts_of(source, seed) for source in data))


def _read(paths: list[Path], seed: int) -> Iterator[str]:
    paths = sorted(paths)
    random.Random(seed).shuffle(paths)
    for path in paths:
        if path.stat().st_size <= MAX_FILE_BYTES:
            yield path.read_text(encoding="utf-8-sig", errors="ignore")


def _own(seed: int) -> Iterator[str]:
    waiting: dict[str, list[str]] = {}
    for kind, text in prompts(seed + 1):  # not those that the target continues
        waiting.setdefault(kind, []).append(text)
        if len(waiting[kind]) == PROMPTS_A_TEXT:
            yield "\n\n".join(waiting.pop(kind))


def _documentation(seed: int) -> Iterator[str]:
    from pydoc_data.topics import topics

    names = sorted(topics)
    random.Random(seed).shuffle(names)
    for name in names:
        yield topics[name]


def _interleaved(*sources: Iterator[str]) -> Iterator[str]:
    live = list(sources)
    while live:
        for source in list(live):
            text = next(source, None)
            if text is None:
                live.remove(source)
            else:
                yield text
