"""A study in a file: a head line with its definition, then a line for each row, as prompts are finished; or its result,
one JSON object. Standard library only."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import RaceError, UsageError
from ...drafters import check as check_drafter
from ...recordings.recording import OUTPUT_SCHEMA, check_writable, write_bytes
from ...recordings.words import prompts_words
from ...strict_json import OBJECT, TEXT, IfThere, fits, parse, read_quick, short
from .pays import report
from .rows import Row, row_of

FORMAT, SCHEMA = "photofinish-study", 1
MAX_BYTES = 16 * 1024**2


@dataclass(frozen=True)
class SavedStudy:
    """A study that was read from a file. said: what it ran on in words, see `Study.about`; empty if unknown."""

    target: str
    drafters: tuple[str, ...]
    rows: tuple[Row, ...]
    said: Mapping[str, Any]


def result(
    rows: Sequence[Row], target: str, said: Mapping[str, Any], temperature: float | None = None
) -> dict[str, Any]:
    """A study's result, as --json and the page save it, from at least one row. temperature: None if not known."""
    return {
        "schema": OUTPUT_SCHEMA,
        "format": FORMAT,
        "target": target,
        "said": said,
        "rows": [row.to_json() for row in rows],
        **report(rows, target, temperature),
    }


def dated(said: Mapping[str, Any], num: int, name: str) -> dict[str, Any]:
    """What a study says about itself, with its number of prompts, the name of their file, and the time: now."""
    created, words = prompts_words(num, name)
    circumstances = "; ".join(filter(None, [said.get("circumstances"), words]))
    return {**said, "circumstances": circumstances, "created": created}


def open_study(text: str) -> SavedStudy:
    """The study in a result or in a `StudyFile`'s file; its report is computed again. Raises UsageError."""
    head, *lines = text.strip().encode("utf-8", "surrogatepass").split(b"\n")
    whole = parse(head, MAX_BYTES)
    fits(whole, {"about": {"said": IfThere(OBJECT)}} if lines else {"rows": [OBJECT], "said": OBJECT})
    if whole.get("format") != FORMAT:
        raise UsageError(f"its format is {short(whole.get('format'))}, not {FORMAT!r}")
    fits(whole, {"target": TEXT})
    said = whole["about"].get("said", {}) if lines else whole["said"]
    fits(
        said,
        {"scope": IfThere(TEXT), "circumstances": IfThere(TEXT), "created": IfThere(TEXT), "ribbons": IfThere([TEXT])},
        "said",
    )
    rows = tuple(row_of(parse(line, MAX_BYTES)) for line in lines) if lines else tuple(map(row_of, whole["rows"]))
    if not rows:
        raise UsageError("it has no finished prompt")
    for drafter in (drafters := tuple(dict.fromkeys(row.drafter for row in rows))):
        if not said.get("on_servers"):
            check_drafter(drafter)
    return SavedStudy(whole["target"], drafters, rows, said)


class StudyFile:
    """The study in a file. settings: what defines it, as far as known before the model is loaded.
    num_drafters: rows per prompt.

    `rows`: those of finished prompts, without leftovers of an interrupted write. `about`: an earlier run's notes.
    Raises UsageError for a file with anything else, naming what differs, and for one that cannot be written."""

    def __init__(self, path: str, settings: Mapping[str, Any], num_drafters: int) -> None:
        self._path, self._head = Path(os.path.realpath(path)), {"format": FORMAT, "schema": SCHEMA, **settings}
        self.rows: list[Row] = []
        self.about: dict[str, Any] = {}
        self._was: dict[str, Any] | None = None
        check_writable(path)
        if not self._path.exists():
            return
        if not self._path.is_file():
            raise UsageError(f"cannot save to {short(path)}: a study goes on in a file, and that is none")
        try:
            data = read_quick(self._path, MAX_BYTES)
            if not data:
                return
            head, *lines = (data.rpartition(b"\n")[0] or data).split(b"\n")
            self._was = parse(head, MAX_BYTES)
            fits(self._was, {"about": OBJECT})
            self._check_same(self._head)
            rows = [row_of(parse(line, MAX_BYTES)) for line in lines]
        except UsageError as error:
            raise self._refused(error) from error
        num = Counter(row.line for row in rows)
        self.rows = [row for row in rows if num[row.line] == num_drafters]
        self.about = self._was["about"]

    def begin(self, ran_on: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Call it before the first `append`. ran_on: the weights and the machine, which must equal an earlier run's.
        Raises UsageError, or RaceError if the file cannot be written."""
        if self._was is not None:
            try:
                self._check_same(ran_on)
            except UsageError as error:
                raise self._refused(error) from error
        head = {**self._head, **ran_on, "about": about}
        write_bytes(self._path, _lines([head, *(row.to_json() for row in self.rows)]))

    def append(self, rows: Sequence[Row]) -> None:
        """Write a finished prompt's rows. Raises RaceError if the file cannot be written."""
        try:
            with open(self._path, "ab") as file:
                file.write(_lines([row.to_json() for row in rows]))
        except OSError as error:
            raise RaceError(f"cannot write {str(self._path)!r}: {error.strerror or error}") from error

    def _refused(self, error: UsageError) -> UsageError:
        return UsageError(f"cannot go on with {short(str(self._path))}: {error}; choose another file to save to")

    def _check_same(self, wanted: Mapping[str, Any]) -> None:
        assert self._was is not None
        for name, value in wanted.items():
            if self._was.get(name) != value:
                raise UsageError(f"it is another study: its {name} is {_word(self._was.get(name))}, not {_word(value)}")


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else short(value)


def _lines(values: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(value, allow_nan=False)}\n" for value in values).encode()
