"""A study of prompts in a file: as it goes on, or its result, one JSON object. Standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import UsageError
from ...drafters import check as check_drafter
from ...recordings.recording import OUTPUT_SCHEMA
from ...recordings.words import prompts_words
from ...strict_json import OBJECT, TEXT, IfThere, fits, parse, short
from ..study_file import MAX_BYTES, StudyFile
from .pays import report
from .rows import Row, row_of

FORMAT, SCHEMA = "photofinish-study", 1


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
    fits(
        said,
        {"scope": IfThere(TEXT), "circumstances": IfThere(TEXT), "created": IfThere(TEXT), "ribbons": IfThere([TEXT])},
        "said",
    )
    rows = [*map(row_of, (parse(line, MAX_BYTES) for line in lines) if lines else whole["rows"])]
    if not rows:
        raise UsageError("it has no finished prompt")
    for drafter in dict.fromkeys(row.drafter for row in rows if not said.get("on_servers")):
        check_drafter(drafter)
    return rows, whole["target"], said


def study_file(path: str, settings: Mapping[str, Any]) -> StudyFile[Row]:
    """The study in a file, from which it can be resumed. settings: what defines it, as far as known before the model is
    loaded. Raises UsageError."""
    return StudyFile(path, {"format": FORMAT, "schema": SCHEMA, **settings}, row_of)


def finished(rows: Sequence[Row], num_drafters: int) -> list[Row]:
    """The rows of prompts that have one for each drafter."""
    num = Counter(row.line for row in rows)
    return [row for row in rows if num[row.line] == num_drafters]
