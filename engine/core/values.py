"""What a value may be: a test, and the words for what passes it. Specs, files, requests and options share them, so that
a limit has one sentence. Standard library only."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

from .errors import UsageError, short


@dataclass(frozen=True)
class Shape:
    """A test of a value, and a description of what passes it."""

    wanted: str
    holds: Callable[[Any], bool]

    def check(self, name: str, value: Any) -> Any:
        """The same value. Raises UsageError unless it passes."""
        if self.holds(value):
            return value
        raise UsageError(f"{name} must be {self.wanted}, not {short(value)}")


FLAG = Shape("true or false", lambda value: type(value) is bool)


def integer(low: int, high: int, *words: str, wanted: str = "") -> Shape:
    """An integer in the limits or one of `words`, of which the description names the first."""
    wanted = wanted or f"{' or '.join([*words[:1], 'an integer'])} from {low} to {high}"
    return Shape(wanted, lambda value: (type(value) is int and low <= value <= high) or value in words)


def number(low: float, high: float, wanted: str = "") -> Shape:
    """A number in the limits, which no NaN is."""
    return Shape(
        wanted or f"a number from {low:.15g} to {high:.15g}",
        lambda value: type(value) in (int, float) and low <= value <= high,
    )


def text(most: int) -> Shape:
    return Shape(f"a string of at most {most} characters", lambda value: isinstance(value, str) and len(value) <= most)


def one_of(names: Iterable[str]) -> Shape:
    names = tuple(names)
    return Shape(f"one of {', '.join(names)}", lambda value: value in names)


def items(wanted: str, shape: Shape, sizes: Container[int]) -> Shape:
    """A list of one of these sizes."""
    return Shape(wanted, lambda value: isinstance(value, list) and len(value) in sizes and all(map(shape.holds, value)))


def members(wanted: str, shape: Shape) -> Shape:
    """An object with any names."""
    return Shape(wanted, lambda value: isinstance(value, dict) and all(map(shape.holds, value.values())))
