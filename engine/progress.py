"""How slow parts say what they are doing. Standard library only."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float | None], None]
"""Called with a sentence on what happens, and how much of it is done: a share from 0 to 1, or None where nobody
knows."""


def silent(stage: str, share: float | None) -> None:
    """The Progress that tells nobody."""
