"""Where commands write: a progress line on stderr, results on stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import RaceError

if TYPE_CHECKING:
    from rich.console import Console

    from .terminal import ProgressLine

SHOWN_FAULTS = 3


def progress_line() -> ProgressLine:
    """A `Progress` as a context manager: drawn on stderr if that is a terminal, silent otherwise."""
    from .terminal import ProgressLine

    return ProgressLine(console(stderr=True))


def console(stderr: bool = False) -> Console:
    """Where results are printed. It interprets neither markup nor emoji codes."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_json(value: Mapping[str, Any]) -> None:
    """The one JSON object of --json."""
    try:
        print(json.dumps(value, allow_nan=False), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RaceError(f"cannot write the result to stdout: {error.strerror or error}") from error


def number(value: float | None, digits: int, unit: str = "", factor: float = 1) -> str:
    """A number in a table; "-" if there is none."""
    return "-" if value is None else f"{value * factor:.{digits}f}{unit}"


def times(value: float | None) -> str:
    """A ratio in a table."""
    return number(value, 2, "x")


def first_of(faults: Sequence[str]) -> str:
    """The first faults of many, and how many more there are."""
    more = len(faults) - SHOWN_FAULTS
    return "; ".join(faults[:SHOWN_FAULTS]) + (f"; and {more} more" if more > 0 else "")
