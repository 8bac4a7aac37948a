"""Decodes untrusted files, parses JSON and checks it against a shape; errors name the field. Standard library only."""

import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from .core.errors import UsageError, short
from .core.spec import MAX_NAME
from .core.values import Shape, integer, members, number, text

MAX_INT = 2**63 - 1
MAX_TEXT = 1_000_000
MAX_DIGITS = 20  # digits of a checksum, the largest integer in a recording
# A file may have one bracket for each 20 bytes of its size limit, one quote for each 10, one comma for each 4. The
# page's longest race has one for each 38, 13 and 10 bytes; a file of nothing else takes a hundred times as long to
# parse as one long text.
BRACKETS, QUOTES, COMMAS = 20, 10, 4
UTF_16 = b"\xff\xfe", b"\xfe\xff"  # its marks
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def decoded(data: bytes, name: str = "it") -> str:
    """The text of a file in UTF-8, or in UTF-16 with its mark; a mark is no part of the text. name: what an error calls
    it. Raises UsageError."""
    is_utf_16 = data[:2] in UTF_16 and data[2:4] != b"\0\0"
    encoding = "UTF-16" if is_utf_16 else "UTF-8"
    if b"\0" in data[:4] and not is_utf_16:
        raise UsageError(f"{name} is not UTF-8 text, but has NULs like UTF-16 without its mark; save it as UTF-8")
    try:
        return data.decode("utf-16" if is_utf_16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start : error.start + 1]
        raise UsageError(f"{name} is not {encoding} text: byte {error.start} is {byte!r}; save it as UTF-8") from error


def gunzipped(data: bytes, most: int) -> bytes:
    """The content of gzip data, of which more than `most` bytes are cut; other data as it is. Raises UsageError."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.GzipFile(fileobj=BytesIO(data)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"it is a damaged gzip file: {error}") from error


def check_quick(data: bytes, most: int, what: str = "it") -> None:
    """Raise UsageError if a file is larger than `most` bytes, or has so many values that parsing would be slow. What
    passes takes at most 0.6 s and 0.2 GB to parse or refuse, if `most` is 16 MB. `what` names the file in the error."""
    if len(data) > most:
        raise UsageError(f"{what} is larger than {most / 1024**2:g} MB")
    counts = data.count(b"[") + data.count(b"{"), data.count(b'"'), data.count(b",")
    limits = most // BRACKETS, most // QUOTES, most // COMMAS
    if any(num > limit for num, limit in zip(counts, limits, strict=True)):
        raise UsageError(
            "{} has {} brackets, {} quotes and {} commas; at most {}, {} and {} can be read".format(
                what, *counts, *limits
            )
        )


def read_quick(path: Path, most: int) -> bytes:
    """The content of a file of lines that goes on in UTF-8. Raises UsageError for UTF-16, or from `check_quick`."""
    with path.open("rb") as file:
        data = file.read(most + 1)
    check_quick(data, most)
    if data[:2] in UTF_16:
        raise UsageError("it is UTF-16 text; save it as UTF-8")
    return data


def parse(data: bytes, max_bytes: int, has_nan: bool = False) -> Any:
    """The value of a JSON file. Raises UsageError for more than `max_bytes` and for what `check_quick` refuses, invalid
    JSON or text, NaN or infinity (but with has_nan), a repeated key, a lone surrogate, and nesting that would break a
    reader."""
    check_quick(data, max_bytes)
    words = decoded(data)
    try:
        constant: Callable[[str], Any] = float if has_nan else _no_constant
        value = json.loads(
            words, object_pairs_hook=_unique, parse_constant=constant, parse_float=_finite, parse_int=_integer
        )
        if _SURROGATE.search(words):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UsageError:
        raise
    except UnicodeEncodeError as error:
        raise UsageError("the text holds half a character (a lone surrogate)") from error
    except RecursionError as error:
        raise UsageError("it is nested too deeply") from error
    except ValueError as error:
        raise UsageError(f"it is not JSON: {error}") from error
    return value


@dataclass(frozen=True)
class AtMost:
    """A list of at most `num` values of a shape."""

    num: int
    shape: Any


@dataclass(frozen=True)
class Maybe:
    """A shape, or null."""

    shape: Any


@dataclass(frozen=True)
class IfThere:
    """The shape of an optional field."""

    shape: Any


TEXT, NAME = text(MAX_TEXT), text(MAX_NAME)
COUNT = integer(0, MAX_INT, wanted="a non-negative integer")
NUMBER = number(-MAX_INT, MAX_INT, "a finite number")
SHARE, CHANCE = number(0, 1), number(0, 1, "a probability")
OBJECT = Shape("an object", lambda value: isinstance(value, dict))
NAMES = members("an object of strings", NAME)


def fits(value: Any, shape: Any, path: str = "") -> None:
    """Raise UsageError, naming the field below `path`, unless `value` has the shape: a dict is an object with at least
    these keys (except those of an IfThere), `[s]` is a list of s, anything else a Shape, an AtMost or a Maybe."""
    if misfit := _misfit(value, shape):
        raise UsageError(f"{path}{misfit}" if path else f"it{misfit}" if misfit[0] == " " else misfit.removeprefix("."))


def _misfit(value: Any, shape: Any) -> str:
    """What is wrong, to follow the value's name; "" if nothing is."""
    if isinstance(shape, Shape):
        return "" if shape.holds(value) else f" must be {shape.wanted}, not {short(value)}"
    if isinstance(shape, Maybe):
        return "" if value is None else _misfit(value, shape.shape)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f" must be an object, not {short(value)}"
        for key, inner in shape.items():
            if key not in value:
                if not isinstance(inner, IfThere):
                    return f" lacks {key!r}"
            elif misfit := _misfit(value[key], inner.shape if isinstance(inner, IfThere) else inner):
                return f".{key}{misfit}"
        return ""
    if not isinstance(value, list):
        return f" must be a list, not {short(value)}"
    if isinstance(shape, AtMost) and len(value) > shape.num:
        return f" has {len(value)} entries; at most {shape.num} are allowed"
    inner = shape.shape if isinstance(shape, AtMost) else shape[0]
    if isinstance(inner, Shape) and all(map(inner.holds, value)):
        return ""
    return next((f"[]{misfit}" for item in value if (misfit := _misfit(item, inner))), "")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise UsageError(f"duplicate key {short(key)} in one object")
    return value


def _no_constant(name: str) -> Any:
    raise UsageError(f"it contains {name}, which is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise UsageError(f"the number {short(digits)} is out of range")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise UsageError(f"the integer {short(digits)} has more than {MAX_DIGITS} digits")
    return int(digits)
