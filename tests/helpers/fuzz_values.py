"""Values for a page's functions, drawn by what the page says that they take: what it would send, what it nearly would,
and what nobody should."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from app.jobs.recorded import RACES
from tests.helpers.hostile_recordings import lanes, race, singly, small
from tests.helpers.pageserver import TARGET

NUMBERS = (
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 0, -1, 7.5, 2**31, 2**63, -(2**63), 10**30, 10**400),
    *("7", "7.0", " 7", "٣", "1e5", "0x7", "1_0", "-0", "9" * 400, "NaN", "", True, False, None),
)
TEXTS = (
    *(
        "",
        " ",
        "\0",
        "a\0b",
        "\ud800",
        "\udfff\ud800",
        "a\u202eb",
        "\ufeff",
        "\r\n\r\n",
        "\x1b[31m",
        "é" * 7,
        "🏁" * 99,
    ),
    *("<img src=x onerror=alert(1)>", "</script>", "${7*7}{{7*7}}", "%s%n", "'; --", "__proto__", "constructor", "[]"),
    *("../../etc/passwd", "/etc/passwd", "file:///etc/passwd", "C:\\x", "%2e%2e/x", "http://127.0.0.1:1/v1", "null"),
    *("synthetic:0.5+" * 9, "synthetic:" + "0" * 5_000, "hybrid:ngram+ngram", "draft_model:/", "eagle3:../x", "none@0"),
    *("x" * 20_001, "\0" * 20_000, "word " * 50_000, "\n" * 60_000, '"' * 9_999, "a\n" * 25_000),
)
LEAVES = (*NUMBERS, *TEXTS[:40])
PROMPTS = ("la la la", "def f(x):\n    return", "é 🏁\n", '{"a": 1}\n' * 20)


class Field(NamedTuple):
    """A value that a function takes. kind: the type of its component. good: values that the page may send; else low and
    high limit them."""

    kind: str
    good: Sequence[Any] = ()
    low: float = 0
    high: float = 1


def odd(rng: random.Random, depth: int = 0) -> Any:
    """A value that no function expects."""
    if depth > 4 or rng.random() < 0.6:
        return rng.choice(LEAVES)
    if rng.random() < 0.05:
        deep: Any = 7
        for _ in range(rng.choice((9, 99))):
            deep = [deep]
        return deep
    if rng.random() < 0.1:
        return {"path": rng.choice(TEXTS[:40]), "meta": rng.choice(({"_type": "gradio.FileData"}, rng.choice(LEAVES)))}
    inner = [odd(rng, depth + 1) for _ in range(rng.choice((0, 1, 2, 5, 40)))]
    if rng.random() < 0.5:
        return inner
    return {rng.choice(("path", "__type__", "meta", "key", "url", str(i))): each for i, each in enumerate(inner)}


def value(rng: random.Random, field: Field) -> Any:
    """Mostly a good value of the field, or one nearly good."""
    chance = rng.random()
    if chance > 0.92:
        return odd(rng)
    good = _good(rng, field)
    return good if chance < 0.75 else _nearly(rng, field, good)


def _good(rng: random.Random, field: Field) -> Any:
    if field.kind == "checkboxgroup":
        return rng.sample(field.good, rng.randrange(min(3, len(field.good)) + 1))
    if field.good:
        return rng.choice(field.good)
    whole = rng.randint(math.ceil(field.low), int(field.high))
    return whole if rng.random() < 0.5 else rng.uniform(field.low, field.high)


def _nearly(rng: random.Random, field: Field, good: Any) -> Any:
    if isinstance(good, str):
        cut = good[: rng.randrange(len(good) + 1)]
        return rng.choice(
            (f" {good}", good + "\0", good.upper(), good * 2, [good], {"value": good}, cut, cut + "\ud800")
        )
    if isinstance(good, bool):
        return rng.choice((int(good), str(good), "true", None, [good]))
    if isinstance(good, list):
        return rng.choice(
            (good * 9, [good], str(good), [*good, rng.choice(LEAVES)], dict.fromkeys(map(str, good)), None)
        )
    return rng.choice((field.low - 1, field.high + 1, str(good), good + 1e-9, *NUMBERS))


# ---- what comes with a click: the event's data

FILE: dict[str, Sequence[Any]] = {
    "name": ("a.txt", "b.jsonl", "c.csv"),
    "text": ("la la la\nfa fa fa\n", '{"prompt": "la la"}\n', '{"messages": [{"role": "user", "content": "hi"}]}\n'),
    "flatten": (True, False),
    "whole": (True, False),
}
NAMED: dict[str, Sequence[Any]] = {"request": ("1", "2"), "key": (), "lane": ("speculative", "plain", "")}
EVENTS: dict[str, dict[str, Sequence[Any]]] = {
    **dict.fromkeys(("again", "charts", "why"), NAMED),
    "check_up": {**FILE, "text": (None, *FILE["text"])},
    "study": {**FILE, "limit": (1, 2), "max_new_tokens": (8,), "kept": (None, "{}"), "look": (True, False)},
    "load": {
        "users": ("1", "1,5"),
        "requests": (1, 2),
        "max_new_tokens": (8,),
        "dollars": (None, 1.5),
        "kept": (None,),
        "text": (None, *FILE["text"]),
        "name": FILE["name"],
        "words": (8,),
    },
}
"""By function: the members that the page sends. A key is one of a recording on the server."""


def event(rng: random.Random, function: str, keys: Sequence[str]) -> Any:
    """The data of an event, for the function with this name."""
    members = EVENTS.get(function.rstrip("_0123456789"))
    if members is None or rng.random() < 0.1:
        return odd(rng) if rng.random() < 0.3 else None
    if function == "again":  # else the model of the page's own recordings would be loaded first, of a GB
        keys = [key for key in keys if not key.startswith("recorded-")]
    data = {name: rng.choice(good or keys) for name, good in members.items()}
    if function == "study" and rng.random() < 0.2:
        data = {"saved": rng.choice(TEXTS)}
    while rng.random() < 0.3:
        name = rng.choice([*data, "extra"])
        data[name] = odd(rng)
        if rng.random() < 0.3:
            del data[name]
    return data


# ---- recordings

BASES = (
    *(
        small(),
        race(lanes(s=singly([7] * 30, drafted=[7, 8], num_accepted=1))),
        race(singly([0] * 9), drafter="server"),
    ),
    json.loads((RACES / "csv_to_json.json").read_text(encoding="utf-8").replace('"gemma-3-270m"', f'"{TARGET}"', 1)),
)
BYTES = (b"\0", b"\xff", b"[", b"{", b"[" * 5_000, b"NaN", b"1e999", b'"\\ud800"', b"-", b"9" * 30, b'"', b",")


def recording(rng: random.Random) -> bytes:
    """A recording, as it is or damaged: a value or a few replaced, dropped or repeated; or its bytes cut or changed."""
    base = copy.deepcopy(rng.choices(BASES, (9, 9, 9, 1))[0])
    while rng.random() < 0.6:
        _damage(rng, base)
    return torn(rng, json.dumps(base).encode())


def torn(rng: random.Random, text: bytes) -> bytes:
    """At times cut, changed or begun twice."""
    while text and rng.random() < 0.05:
        at = rng.randrange(len(text))
        text = rng.choice((text[:at], text[:at] + rng.choice(BYTES) + text[at + rng.randrange(3) :], text[at:] + text))
    return text


def _damage(rng: random.Random, base: Any) -> None:
    place, inner = base, base
    while isinstance(inner, (dict, list)) and inner and rng.random() < 0.9:
        place, key = inner, rng.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
        inner = place[key]
    if place is inner:
        return
    chance = rng.random()
    if chance < 0.5:
        place[key] = odd(rng) if chance < 0.3 else rng.choice(NUMBERS)
    elif chance < 0.7:
        del place[key]
    elif isinstance(place, list):
        place.insert(rng.randrange(len(place) + 1), copy.deepcopy(inner))
    else:
        place[rng.choice(("extra", "__proto__", *place))] = copy.deepcopy(inner)
