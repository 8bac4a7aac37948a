"""Keeps secrets about a server from readers: its key, its URL, its host's names. Pure; standard library only."""

from __future__ import annotations

import re
from collections.abc import Collection

HIDDEN = "[hidden]"


def hide(text: str, secrets: Collection[str]) -> str:
    """The text with every secret, in upper or lower case, replaced by HIDDEN."""
    return _pattern(secrets).sub(HIDDEN, text) if secrets else text


class Hiding:
    """`hide` for a text that comes in parts: what may begin a secret is kept back until more comes, or `flush`."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._secrets, self._held = secrets, ""

    def feed(self, part: str) -> str:
        text = self._held + part
        done = max((match.end() for match in _pattern(self._secrets).finditer(text)), default=0) if self._secrets else 0
        longest = max(map(len, self._secrets), default=0)
        starts = range(max(done, len(text) - longest + 1), len(text))
        end = next((i for i in starts if self._begins(text[i:].lower())), len(text))
        self._held = text[end:]
        return hide(text[:end], self._secrets)

    def _begins(self, tail: str) -> bool:
        return any(secret.lower().startswith(tail) for secret in self._secrets)

    def flush(self) -> str:
        rest, self._held = self._held, ""
        return rest


def _pattern(secrets: Collection[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True))), re.IGNORECASE)
