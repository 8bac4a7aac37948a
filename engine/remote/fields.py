"""A stranger's JSON, read field by field: what is not there, or of another type than it should be, is None (or ""), and
costs nothing but itself. Pure; standard library only."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")
MAX_COUNT = 2**31 - 1
# Where servers put what went wrong; the last ones are Cloudflare's, AWS's, Baidu's, Apigee's, MiniMax's and RFC 9457's.
OTHERS_WORDS = ("errors", "Message", "error_msg", "fault", "faultstring", "base_resp", "status_msg", "title")
WORDS = ("error", "message", "detail", "msg", "error_message", *OTHERS_WORDS)
MAX_DEPTH, MAX_SAID = 4, 3


def parsed(text: str | bytes) -> Any:
    """The JSON in a text; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def find(kind: type[T], value: Any, *path: str | int) -> T | None:
    """What is at this path, if it is of this type."""
    entry = _at(value, path)
    return entry if type(entry) is kind else None


def _at(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def count(value: Any, *path: str | int) -> int | None:
    """The count from 0 to MAX_COUNT at this path, which a server may write as 24.0."""
    entry = number(value, *path)
    return int(entry) if entry is not None and entry >= 0 and entry.is_integer() else None


def number(value: Any, *path: str | int) -> float | None:
    """The finite number at this path; Protobuf's JSON has counts as texts."""
    entry = _at(value, path)
    if type(entry) is str and re.fullmatch("[0-9]{1,10}", entry):
        entry = int(entry)
    is_number = type(entry) in (int, float)
    return float(entry) if is_number and abs(entry) <= MAX_COUNT and math.isfinite(entry) else None


def counts(value: Any, *path: str | int) -> tuple[int, ...] | None:
    """The list of counts at this path."""
    entries = find(list, value, *path)
    is_list = entries is not None and all(type(entry) is int and 0 <= entry <= MAX_COUNT for entry in entries)
    return tuple(entries) if is_list and entries is not None else None


def text(value: Any, *path: str | int) -> str:
    """The text at this path, with halves of characters replaced by U+FFFD."""
    return (find(str, value, *path) or "").encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def words_in(value: Any, depth: int = MAX_DEPTH) -> str:
    """A server's error message, in a line; "" if it has none. It may contain secrets: hide them before shortening
    it."""
    if isinstance(value, str):
        return " ".join(text(value).split())
    if isinstance(value, list) and depth:
        return "; ".join(filter(None, (words_in(entry, depth - 1) for entry in value[:MAX_SAID])))
    if not isinstance(value, dict) or not depth:
        return ""
    words = next((said for key in WORDS if (said := words_in(value.get(key), depth - 1))), "")
    place = [step for step in find(list, value, "loc") or () if isinstance(step, str)]  # FastAPI's
    return f"{'.'.join(place)}: {words}" if words and place else words
