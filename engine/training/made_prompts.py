"""Our own prompts, made from parts (made_prompts.json) by a seeded generator, one kind after another: JSON, SQL, code,
prose, chat, summaries. The target continues them. Held-out prompts (`assets/prompts/held_out.json`) were written by
hand and deliberately share none of these parts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

_PARTS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
TABLES: dict[str, list[str]] = _PARTS["tables"]  # name -> fields
FIRST, LAST, CITIES, TEAMS, STATUS, THINGS = itemgetter("first", "last", "cities", "teams", "status", "things")(_PARTS)
VERBS, NOUNS, PEOPLE, PLACES, TURNS = itemgetter("verbs", "nouns", "people", "places", "turns")(_PARTS)
TOPICS, ASKS, REMARKS = itemgetter("topics", "asks", "remarks")(_PARTS)


def prompts(seed: int) -> Iterator[tuple[str, str]]:
    """Endless (kind, prompt), every kind in turn, decided by the seed."""
    rng = random.Random(seed)
    while True:
        for kind, make in MAKERS.items():
            yield kind, make(rng)


def _person(rng: random.Random) -> str:
    return f"{rng.choice(FIRST)} {rng.choice(LAST)}"


def _value(rng: random.Random, field: str) -> object:
    if field.endswith("id") or field in ("quantity", "stock", "seats", "pages", "priority"):
        return rng.randint(1, 9999)
    if field in ("amount", "price", "total", "weight", "reading", "battery"):
        return round(rng.uniform(1, 900), 2)
    if field.endswith(("_at", "_on", "login", "published")):
        return f"20{rng.randint(10, 25)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    if field in ("is_active", "paid"):
        return rng.random() < 0.5
    if field in ("name", "author", "customer"):
        return _person(rng)
    if field in ("city", "origin", "destination"):
        return rng.choice(CITIES)
    if field == "email":
        return f"{rng.choice(FIRST).lower()}.{rng.choice(LAST).lower()}@example.com"
    if field == "status":
        return rng.choice(STATUS)
    return rng.choice(THINGS)


def _rows(rng: random.Random, count: int) -> tuple[str, list[dict[str, object]]]:
    table = rng.choice(list(TABLES))
    fields = rng.sample(TABLES[table], rng.randint(3, len(TABLES[table])))
    return table, [{field: _value(rng, field) for field in fields} for _ in range(count)]


def _json(rng: random.Random) -> str:
    table, rows = _rows(rng, rng.randint(2, 4))
    indent = rng.choice((None, None, 1, 2, 4))
    text = json.dumps({table: rows} if rng.random() < 0.4 else rows, indent=indent)
    response = f"GET /api/{table}\n\nHTTP/1.1 200 OK\nContent-Type: application/json\n\n"
    start = rng.choice((f"The {table} as JSON:\n", f"```json\n// {table}.json\n", response, ""))
    return start + text[: int(len(text) * rng.uniform(0.4, 0.95))]


def _csv(rng: random.Random) -> str:
    table, rows = _rows(rng, rng.randint(4, 7))
    header = list(rows[0])
    lines = [",".join(header), *(",".join(str(row[field]) for field in header) for row in rows)]
    shown = rng.randint(1, 3)
    form: Callable[[dict[str, object]], str] = rng.choice(
        (
            json.dumps,
            lambda row: "- " + "; ".join(f"{k}: {v}" for k, v in row.items()),
            lambda row: "| " + " | ".join(map(str, row.values())) + " |",
        )
    )
    task = rng.choice(("Convert these rows", "Rewrite each line", "Turn the CSV into records"))
    return "\n".join((f"{task}.\n", *lines, f"\n{table}:", *map(form, rows[:shown]), ""))


def _sql(rng: random.Random) -> str:
    table = rng.choice(list(TABLES))
    fields = TABLES[table]
    a, b, c = rng.sample(fields, 3)
    joined = rng.choice([t for t in TABLES if t != table])
    starts = (
        f"CREATE TABLE {table} (\n    id INTEGER PRIMARY KEY,\n    {a} TEXT NOT NULL,\n",
        f"SELECT {a}, {b}, COUNT(*) AS n\nFROM {table}\nWHERE {c} IS NOT NULL\n",
        f"-- {table} per {a}, newest first\nSELECT t.{a}, t.{b}, o.{rng.choice(TABLES[joined])}\nFROM {table} AS "
        f"t\nJOIN {joined} AS o ON",
        f"INSERT INTO {table} ({', '.join(fields)}) "
        f"VALUES\n({', '.join(repr(_value(rng, f)) for f in fields)}),\n"
        f"({', '.join(repr(_value(rng, f)) for f in fields)}),\n",
        f"UPDATE {table}\nSET {a} = {_value(rng, a)!r}\nWHERE {b} = {_value(rng, b)!r};\n\nUPDATE {table}\n",
        f"WITH recent AS (\n    SELECT {a}, {b}\n    FROM {table}\n    WHERE {c} > {_value(rng, c)!r}\n)\n",
    )
    return rng.choice(starts)


def _code(rng: random.Random) -> str:
    verb, noun, second, kind = rng.choice(VERBS), rng.choice(NOUNS), rng.choice(NOUNS), rng.choice(NOUNS).title()
    fields = "\n".join(
        f"    {name}: {rng.choice(('int', 'str', 'float', 'list[str]', 'bool'))}" for name in rng.sample(NOUNS, 3)
    )
    starts = (
        f'def {verb}_{noun}s({noun}s, {second}=None):\n    """{verb.title()} the {noun}s and return the {second}."""\n',
        f"import os\nimport sys\n\n\nclass {kind}:\n    def __init__(self, {noun}, {second}):\n        self.{noun} = "
        f"{noun}\n        self.{second} = {second}\n\n    def {verb}(self):\n",
        f"@dataclass\nclass {kind}:\n{fields}\n\n    def {verb}(self) -> ",
        f'function {verb}{noun.title()}({noun}, options) {{\n  if (!{noun}) {{\n    throw new Error("no {noun}");\n '
        " }\n",
        f"import unittest\n\nfrom {noun}s import {verb}_{second}\n\n\nclass "
        f"Test{verb.title()}{second.title()}(unittest.TestCase):\n    def test_empty(self):\n",
        f"#include <stdio.h>\n#include <stdlib.h>\n\nstatic int {verb}_{noun}(struct {noun} *{noun[0]}, size_t "
        f"n)\n{{\n    ",
        f'package main\n\nimport (\n\t"fmt"\n\t"os"\n)\n\n// {verb.title()}{noun.title()} returns the '
        f"{second}.\nfunc {verb.title()}{noun.title()}(",
        f'<ul class="{noun}s">\n  <li><a href="/{noun}/1">{noun.title()} 1</a></li>\n',
    )
    return rng.choice(starts)


def _prose(rng: random.Random) -> str:
    who, where, turn, topic = rng.choice(PEOPLE), rng.choice(PLACES), rng.choice(TURNS), rng.choice(TOPICS)
    starts = (
        f"In {where}, {who} {turn}.",
        f"{who[0].upper()}{who[1:]} {turn}. Nobody in {where} spoke of it afterwards, but",
        f"It was {rng.choice(('late', 'early', 'almost dark', 'the coldest week of the year'))} when {who} came to "
        f"{where}.\n\n",
        f"{topic[0].upper()}{topic[1:]}\n\nMost people have never asked themselves "
        f"{topic if topic.startswith(('how', 'why', 'what')) else 'about ' + topic}. ",
        f"The short answer to the question of {topic} is",
        f"# {topic.title()}\n\n## Introduction\n\n",
    )
    return rng.choice(starts)


def _chat(rng: random.Random) -> str:
    named = (rng.choice(FIRST), rng.choice(FIRST))
    a, b = rng.choice((("User", "Assistant"), ("Q", "A"), named, ("Customer", "Agent")))
    ask = rng.choice(ASKS).format(t=rng.choice(TOPICS))
    greetings = f"{a}: Hello!\n{b}: Hello, how can I help?\n", f"{a}: Do you have a minute?\n{b}: Of course.\n"
    first = rng.choice(("", *greetings))
    return f"{first}{a}: {ask}\n{b}:"


def _summary(rng: random.Random) -> str:
    who, city, team = _person(rng), rng.choice(CITIES), rng.choice(TEAMS)
    text = (
        f"The {team} office in {city} will close for {rng.randint(2, 9)} weeks while the roof is repaired. {who}, "
        f"who leads the {team} group, said that "
        f"{rng.randint(12, 90)} people would work from {rng.choice(CITIES)} until then. The repair will cost "
        f"{rng.randint(2, 40)}0,000 euros, of which the insurer pays "
        f"{rng.choice(('half', 'a third', 'nothing', 'most'))}. "
        f"{rng.choice(REMARKS)}."
    )
    head = rng.choice(("Article", "Report", "Minutes"))
    task = rng.choice(("Summary", "In one sentence", "Key points", "Questions about the text"))
    return f"{head}:\n{text}\n\n{task}:"


MAKERS: dict[str, Callable[[random.Random], str]] = {
    "json": _json, "code": _code, "sql": _sql, "prose": _prose,
    "csv": _csv, "chat": _chat, "essay": _prose, "summary": _summary,
}  # fmt: skip
