"""Where commands write: a progress line on stderr, results on stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import RaceError

if TYPE_CHECKING:
    from rich.console import Console

    from .terminal import ProgressLine


def progress_line() -> ProgressLine:
    """A `Progress` as a context manager: drawn on stderr if that is a terminal, silent otherwise."""
    from rich.console import Console

    from .terminal import ProgressLine

    return ProgressLine(Console(stderr=True, highlight=False, markup=False, emoji=False))


def console() -> Console:
    """Where results are printed. It interprets neither markup nor emoji codes."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def print_json(value: Mapping[str, Any]) -> None:
    """The one JSON object of --json."""
    try:
        print(json.dumps(value, allow_nan=False), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RaceError(f"cannot write the result to stdout: {error.strerror or error}") from error
