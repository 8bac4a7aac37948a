"""What a check-up found. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["fault", "doubt", "ok"]
LEVELS: tuple[Level, ...] = ("fault", "doubt", "ok")
"""The worst first."""


@dataclass(frozen=True)
class Finding:
    """One line of the checklist.

    check: what was looked at, in a word or two.
    says: the evidence, a sentence with figures.
    change: what to do about it, the exact option or edit; "" for nothing."""

    level: Level
    check: str
    says: str
    change: str = ""


def first(findings: Sequence[Finding]) -> Finding | None:
    """The finding to act on: the earliest of the worst; None if all is well. Checks come in the order of causes, so an
    earlier fault explains later ones."""
    return next((each for level in LEVELS[:2] for each in findings if each.level == level), None)


def is_faulty(findings: Sequence[Finding]) -> bool:
    return any(each.level == "fault" for each in findings)


def to_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [asdict(each) for each in findings]
