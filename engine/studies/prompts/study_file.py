"""A study of prompts in a file: as it goes on, or its result, one JSON object. Standard library only."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import RaceError, UsageError, short
from ...drafters import check as check_drafter
from ...recordings.recording import OUTPUT_SCHEMA, check_writable, write_bytes
from ...recordings.words import prompts_words
from ...strict_json import OBJECT, TEXT, IfThere, fits, parse, read_quick
from .pays import report
from .rows import Row, row_of

FORMAT, SCHEMA = "photofinish-study", 1
MAX_BYTES = 16 * 1024**2
SAID = {**dict.fromkeys(("scope", "circumstances", "created"), IfThere(TEXT)), "ribbons": IfThere([TEXT])}


def result(
    rows: Sequence[Row], target: str, said: Mapping[str, Any], temperature: float | None = None
) -> dict[str, Any]:
    """A study's result, as --json and the page save it, from at least one row. said: what it ran on in words, see
    `Study.about`; empty if unknown. temperature: None if not known."""
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
    return {**said, "circumstances": "; ".join(filter(None, [said.get("circumstances"), words])), "created": created}


def open_study(text: str) -> tuple[list[Row], str, dict[str, Any]]:
    """What `result` takes, of the study in a result or in a `StudyFile`'s file. Raises UsageError."""
    head, *lines = text.strip().encode("utf-8", "surrogatepass").split(b"\n")
    whole = parse(head, MAX_BYTES)
    fits(whole, {"about": {"said": IfThere(OBJECT)}} if lines else {"rows": [OBJECT], "said": OBJECT})
    if whole.get("format") != FORMAT:
        raise UsageError(f"its format is {short(whole.get('format'))}, not {FORMAT!r}")
    fits(whole, {"target": TEXT})
    said = whole["about"].get("said", {}) if lines else whole["said"]
    fits(said, SAID, "said")
    rows = [*map(row_of, (parse(line, MAX_BYTES) for line in lines) if lines else whole["rows"])]
    if not rows:
        raise UsageError("it has no finished prompt")
    for drafter in dict.fromkeys(row.drafter for row in rows if not said.get("on_servers")):
        check_drafter(drafter)
    return rows, whole["target"], said


def finished(rows: Sequence[Row], num_drafters: int) -> list[Row]:
    """The rows of prompts that have one for each drafter."""
    num = Counter(row.line for row in rows)
    return [row for row in rows if num[row.line] == num_drafters]


class StudyFile:
    """A study in a file, from which it can be resumed: JSON lines, first its definition, then its rows as they come.

    settings: what two runs must share to be parts of one study, as far as known before the model is loaded.
    rows: an earlier run's, without the leftovers of an interrupted write. about: that run's notes.
    Raises UsageError for a file with anything else, naming what differs, and for one that cannot be written."""

    def __init__(self, path: str, settings: Mapping[str, Any]) -> None:
        definition = {"format": FORMAT, "schema": SCHEMA, **settings}
        self._path, self._definition = Path(os.path.realpath(path)), json.loads(json.dumps(definition))
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
            self._check_same(self._definition)
            self.rows = [row_of(parse(line, MAX_BYTES)) for line in lines]
        except UsageError as error:
            raise self._refused(error) from error
        self.about = self._was["about"]

    def begin(self, rows: Iterable[Row], more: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Write the definition and these rows; call it before the first `append`. more: what defines the study too and
        is known only now; it must equal an earlier run's. about: notes, which need not. Raises UsageError, or RaceError
        if the file cannot be written."""
        if self._was is not None:
            try:
                self._check_same(more)
            except UsageError as error:
                raise self._refused(error) from error
        definition = {**self._definition, **more, "about": about}
        write_bytes(self._path, _lines([definition, *(row.to_json() for row in rows)]))

    def append(self, rows: Iterable[Row]) -> None:
        """Write rows behind the others. Raises RaceError if the file cannot be written."""
        try:
            with open(self._path, "ab") as file:
                file.write(_lines(row.to_json() for row in rows))
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


def _lines(values: Iterable[Any]) -> bytes:
    return "".join(f"{json.dumps(value, allow_nan=False)}\n" for value in values).encode()
