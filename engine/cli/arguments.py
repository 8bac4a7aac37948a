"""The building blocks of commands: options as values, conversions with our own messages, a parser with one-line errors.

Standard library only. A conversion raises argparse.ArgumentTypeError with a sentence that names the value and the
limits or choices."""

import argparse
import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ..core import values
from ..core.errors import UsageError
from ..core.spec import AUTO, TREE, tree_size
from ..core.values import Shape
from ..loading.sources import hub_names

MAX_SHOWN = 80


class Option:
    """One option of a command: its names and argparse's keyword arguments."""

    def __init__(self, *names: str, **details: Any) -> None:
        self.names, self.details = names, details


def setting(name: str, type: Callable[[str], Any], help: str, default: Any = None, **more: Any) -> Option:
    """An option with a value, as in "--seed N"."""
    name, metavar = name.split()
    return Option(name, metavar=metavar, type=type, help=help, default=default, **more)


def repeated(name: str, type: Callable[[str], Any], help: str, **more: Any) -> Option:
    """A `setting` that may be given again; all values are kept."""
    return setting(name, type, help, [], action="append", **more)


def switch(name: str, help: str) -> Option:
    """An option without a value, off unless given."""
    return Option(name, action="store_true", help=help)


@dataclass(frozen=True)
class Command:
    """A command: its options, the function that runs it (returning the exit status), and the end of its help."""

    options: tuple[Option, ...]
    run: Callable[[argparse.Namespace], int]
    notes: str = ""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are UsageErrors of one line. A value that looks like an option is given as --name=value."""

    def __init__(self, prog: str, description: str, options: Sequence[Option], notes: str = "") -> None:
        super().__init__(prog=prog, description=description, epilog=notes, allow_abbrev=False)
        for option in options:
            self.add_argument(*option.names, **option.details)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Raises UsageError for arguments that cannot be used, SystemExit for --help."""
        try:
            return self.parse_args(arguments)
        except UsageError:
            raise
        except ValueError:  # argparse drops such a value, then looks for it
            self.error("a value must not be just two dashes")


def typed(shape: Shape, read: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """A conversion to what `read` makes of a text, which must have this shape."""

    def convert(text: str) -> Any:
        value = read(text)
        if shape.holds(value):
            return value
        raise ArgumentTypeError(f"must be {shape.wanted}, not {shown(text)}")

    return convert


def whole(text: str) -> int | None:
    """Decimal digits, nothing else: no 3.5, no 1_000, no 1e3."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else None


def decimal(text: str) -> float:
    """A number, NaN for anything else."""
    try:
        return float(text) if "_" not in text else math.nan
    except ValueError:
        return math.nan


def integer(low: int, high: int) -> Callable[[str], int]:
    return typed(values.integer(low, high), whole)


def number(low: float, high: float, wanted: str = "") -> Callable[[str], float]:
    return typed(values.number(low, high, wanted), decimal)


def draft_size(low: int, high: int, trees: bool = True) -> Callable[[str], int | str]:
    """The word auto, tree:N, or what `integer` takes. trees: whether tree:N is one."""
    words = f"auto, {TREE}N" if trees else AUTO

    def convert(text: str) -> int | str:
        try:
            return text if text == AUTO or (trees and tree_size(text)) else integer(low, high)(text)
        except (ArgumentTypeError, UsageError) as error:
            raise ArgumentTypeError(f"must be {words} or an integer from {low} to {high}, not {shown(text)}") from error

    return convert


def not_empty(text: str) -> str:
    """Anything but ""; file names may hold bytes that are not text."""
    if text:
        return text
    raise ArgumentTypeError("must not be empty")


def words(text: str) -> str:
    """Text, not empty, that can be written into a recording."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ArgumentTypeError(f"must be UTF-8 text, not {shown(text)}") from error
    return not_empty(text)


def model(text: str) -> str:
    """A target or a drafter: see `hub_names`."""
    return hub_names(words(text))


def list_of(text: str) -> list[str]:
    """Comma-separated things, each of them once."""
    given = model(text).split(",")
    if len(set(given)) != len(given) or not all(given):
        raise ArgumentTypeError(f"must be a list with commas, each thing in it once, not {shown(text)}")
    return given


def shown(text: str) -> str:
    """A value for an error message."""
    return repr(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…")
