"""The file of a study, from which it can be resumed: JSON lines, first the study's definition, then each level when it
begins and when it is over. Standard library only."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import RaceError, UsageError, short
from ...core.values import FLAG, items, members, number
from ...recordings.recording import OUTPUT_SCHEMA
from ...strict_json import (
    COUNT,
    NAME,
    NUMBER,
    OBJECT,
    TEXT,
    AtMost,
    IfThere,
    Maybe,
    fits,
    parse,
    read_quick,
)
from .level_metrics import FORMAT, HIGHER
from .study import MAX_OTHER, Key, Plan, Row, is_whole

MAX_BYTES = 16 * 1024**2
# Limits of an opened result: the number of lanes, the users of a level, and the size of a metric.
MAX_LANES, MAX_USERS, MOST = 4, 1000, 1e12
SAID = ("model", "created", "circumstances", "repeats")
ROW = {
    "lane": NAME,
    "acceptance_from": Maybe(NAME),
    "errors": members("an object of counts", COUNT),
    "fault": Maybe(TEXT),
    "wall_s": NUMBER,
    "asked_before": FLAG,
    "is_up": FLAG,
    **dict.fromkeys(("concurrency", "num_requests", "num_errors", "num_output_tokens"), COUNT),
    **{metric: Maybe(NUMBER) for metric in HIGHER},
    "rate_error": IfThere(Maybe(number(0, 10))),
    **dict.fromkeys(
        ("num_compared", "num_same_text", "num_textless", "num_buffered", "num_short"), IfThere(Maybe(COUNT))
    ),
    "answer_p95_s": IfThere(Maybe(NUMBER)),
    "acceptance_doubt": IfThere(Maybe(TEXT)),
    "other_prompts": IfThere(Maybe(items(f"at most {MAX_OTHER} counts", COUNT, range(MAX_OTHER + 1)))),
}  # the shape of a row


class StudyFile:
    """rows: of finished levels. begun: levels that an earlier run began and did not finish. Raises UsageError for a
    file that is not this study's, and RaceError if it cannot be written."""

    def __init__(self, path: str, plan: Plan) -> None:
        self._path, self.rows, self.begun = Path(path), list[Row](), set[Key]()
        about = json.loads(json.dumps(plan.about()))
        try:
            lines = self._read()
            if lines:
                _check_same(lines[0].get("study"), about)
            for line in lines[1:]:
                self._take(line, plan)
        except (UsageError, OSError) as error:
            words = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"cannot go on with the study in {path}: {words}") from error
        if not lines:
            self._write({"schema": OUTPUT_SCHEMA, "study": about})

    def begin(self, key: Key) -> None:
        self._write({"begun": {"lane": key[0], "concurrency": key[1]}})

    def add(self, row: Row) -> None:
        self._write({"row": row})
        self.rows.append(row)

    def _read(self) -> list[Mapping[str, Any]]:
        """Read the file's lines; remove a last one that was cut off."""
        if not self._path.exists() or not self._path.stat().st_size:
            return []
        whole, _, rest = read_quick(self._path, MAX_BYTES).rpartition(b"\n")
        if rest:
            with self._path.open("r+b") as file:
                file.truncate(len(whole) + 1 if whole else 0)
        lines = [parse(line, MAX_BYTES) for line in whole.splitlines()]
        if not all(isinstance(line, dict) for line in lines):
            raise UsageError("a line of it is no JSON object")
        return lines

    def _take(self, line: Mapping[str, Any], plan: Plan) -> None:
        if set(line) == {"begun"}:
            fits(line, {"begun": {"lane": NAME, "concurrency": COUNT}})
            self.begun.add(_key(line["begun"]))
        elif set(line) == {"row"}:
            row = checked_row(line["row"], plan.keys)
            self.rows = [kept for kept in self.rows if _key(kept) != _key(row)]
            if is_whole(row):
                self.rows.append(row)
                self.begun.discard(_key(row))
        else:
            raise UsageError("a line of it is neither a level's begin nor its row")

    def _write(self, value: Mapping[str, Any]) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(value, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RaceError(f"cannot write the study to {self._path}: {error.strerror or error}") from error


@dataclass(frozen=True)
class SavedLoad:
    """A study's result that was read from a file. said: see `Plan.said`."""

    lanes: tuple[str, ...]
    rows: tuple[Row, ...]
    said: Mapping[str, Any]


def open_load(text: str) -> SavedLoad:
    """The study in a result, as --json and the page save it; its report must be computed again. Raises UsageError."""
    whole = parse(text.encode("utf-8", "surrogatepass"), MAX_BYTES)
    fields = {**dict.fromkeys(SAID, TEXT), "temperature": IfThere(Maybe(NUMBER))}
    fits(whole, {"lanes": AtMost(MAX_LANES, NAME), "levels": [OBJECT], "said": fields})
    if whole.get("format") != FORMAT:
        raise UsageError(f"its format is {short(whole.get('format'))}, not {FORMAT!r}")
    lanes = whole["lanes"]
    keys = {(lane, num) for lane in lanes for num in range(1, MAX_USERS + 1)}
    rows = [checked_row(level, keys) for level in whole["levels"]]
    if not rows or len({_key(row) for row in rows}) < len(rows) or len(set(lanes)) < len(lanes):
        raise UsageError("it must have a level, and each lane and level once")
    for row in rows:
        for name in HIGHER:
            if row[name] and not 1 / MOST <= row[name] <= MOST:
                raise UsageError(f"{name} must be 0 or from {1 / MOST:g} to {MOST:g}, not {short(row[name])}")
    return SavedLoad(tuple(lanes), tuple(rows), {name: whole["said"].get(name) for name in fields})


def checked_row(row: Any, keys: Container[Key]) -> Row:
    """A row as from `study.row_of`, of one of these levels. Raises UsageError."""
    fits(row, ROW)
    if _key(row) not in keys:
        raise UsageError(f"this study has no level of {row['concurrency']} users in a lane {short(row['lane'])}")
    same, compared = row.get("num_same_text"), row.get("num_compared")
    if (same is None) != (compared is None) or (same or 0) > (compared or 0):
        raise UsageError(f"num_same_text must be at most num_compared, {short(compared)}, not {short(same)}")
    return row


def _key(row: Mapping[str, Any]) -> Key:
    return row["lane"], row["concurrency"]


def _check_same(theirs: Any, about: Mapping[str, Any]) -> None:
    if not isinstance(theirs, dict):
        raise UsageError("its first line does not say what it is a study of")
    for name, value in about.items():
        if theirs.get(name) != value:
            raise UsageError(f"it is a study with another value of {name}; give another file")
