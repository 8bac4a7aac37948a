"""JSON from strangers: parsed without trust, and checked against a shape with errors that name the field. Standard
library only."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .errors import UsageError

MAX_INT = 2**63 - 1
MAX_NAME = 10_000
MAX_DIGITS = 20
"""A checksum, the largest integer of a recording, has 20."""


def parse(data: bytes, max_bytes: int) -> Any:
    """The value of a JSON file: UTF-8, no NaN or infinity, no key twice, no half characters, no nesting that would
    break a reader. Raises UsageError."""
    if len(data) > max_bytes:
        raise UsageError(f"it is larger than {max_bytes / 1024**2:g} MB")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_integer,
        )
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UsageError:
        raise
    except UnicodeDecodeError as error:
        raise UsageError(f"it is not UTF-8 text (byte {error.start})") from error
    except UnicodeEncodeError as error:
        raise UsageError("it holds half a character (a lone surrogate)") from error
    except RecursionError as error:
        raise UsageError("it is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"it is not JSON: {error}") from error
    return value


@dataclass(frozen=True)
class Shape:
    """A test of a value, and the words for what passes it."""

    wanted: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Maybe:
    """A shape, or null."""

    shape: Any


@dataclass(frozen=True)
class IfThere:
    """The shape of a field that an object may lack."""

    shape: Any


TEXT = Shape("a string", lambda value: isinstance(value, str))
NAME = Shape(
    f"a string of at most {MAX_NAME} characters", lambda value: isinstance(value, str) and len(value) <= MAX_NAME
)
COUNT = Shape("a non-negative integer", lambda value: type(value) is int and 0 <= value <= MAX_INT)
NUMBER = Shape("a finite number", lambda value: type(value) in (int, float) and abs(value) <= MAX_INT)
FLAG = Shape("true or false", lambda value: type(value) is bool)
OBJECT = Shape("an object", lambda value: isinstance(value, dict))
NAMES = Shape("an object of strings", lambda value: isinstance(value, dict) and all(map(NAME.holds, value.values())))


def fits(value: Any, shape: Any, path: str = "") -> None:
    """Raise UsageError unless `value` has the shape: a dict is an object with at least these keys (those of an IfThere
    may be missing), `[s]` a list of s, else a Shape or a Maybe."""
    where = path or "it"
    if isinstance(shape, Maybe):
        if value is not None:
            fits(value, shape.shape, path)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise UsageError(f"{where} must be a list, not {short(value)}")
        for item in value:
            fits(item, shape[0], f"{path}[]")
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            raise UsageError(f"{where} must be an object, not {short(value)}")
        for key, inner in shape.items():
            if key in value:
                inner = inner.shape if isinstance(inner, IfThere) else inner
                fits(value[key], inner, f"{path}.{key}" if path else key)
            elif not isinstance(inner, IfThere):
                raise UsageError(f"{where} lacks {key!r}")
    elif not shape.holds(value):
        raise UsageError(f"{where} must be {shape.wanted}, not {short(value)}")


def kind(value: Any) -> str:
    """What JSON calls the type of a value."""
    return {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}.get(
        type(value), "a number"
    )


def short(value: Any) -> str:
    """A value as an error may show it: one line, 80 characters at most."""
    if isinstance(value, (dict, list)):
        return kind(value)
    return repr(value[:60] if isinstance(value, str) else value)[:80]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise UsageError(f"the key {short(key)} stands twice in one object")
        value[key] = item
    return value


def _no_constant(name: str) -> Any:
    raise UsageError(f"it holds {name}, which is no number of JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise UsageError(f"the number {short(digits)} is beyond what a computer can hold")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise UsageError(f"the integer {short(digits)} has more than {MAX_DIGITS} digits")
    return int(digits)
