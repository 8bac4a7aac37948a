"""Results that the page saved, to be shown again: of a study of prompts, of servers under load, of a check-up, or
several of the same model or servers in one file. Each report is computed again from its rows."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.errors import UsageError, short
from engine.doctor.findings import open_report
from engine.strict_json import COUNT, NUMBER, OBJECT, AtMost, IfThere, Maybe, fits, parse
from engine.studies.load.level_metrics import report as load_report
from engine.studies.load.load_file import open_load
from engine.studies.prompts.study_file import open_study, result

from .limits import MAX_FILE_CHARS, check_file
from .request import MAX_ROW_CHARS, MAX_ROWS, are_short

FORMAT = "photofinish-results"
OPENED = "Opened from a file, to be read only."
MAX_LEVELS = 100  # of a saved load; the command line makes more of them than this page
MAX_FINDINGS = 100
# What was asked for, which the page saves with a result: for the sentences that join several.
ASKED = {"temperature": IfThere(Maybe(NUMBER)), "max_new_tokens": IfThere(COUNT), "num_differing": IfThere(COUNT)}
_KIND = re.compile(r'.{0,200}?"format":\s*"photofinish-(\w{1,20})"', re.DOTALL)


def read_saved(text: object) -> list[dict[str, Any]]:
    """A frame for each result, with its `kind`. Raises UsageError."""
    text = check_file(text, "the saved result").strip()
    if _kind(text) != "results":
        return [_frame(text)]
    whole = parse(text.encode("utf-8", "surrogatepass"), 4 * MAX_FILE_CHARS)
    fits(whole, {"results": AtMost(len(_READERS), OBJECT)})
    frames = [_frame(json.dumps(part, ensure_ascii=False)) for part in whole["results"]]
    if not frames or len({frame["kind"] for frame in frames}) < len(frames):
        raise UsageError("it must have a result, and one of a kind")
    return frames


def _kind(text: str) -> str:
    match = _KIND.match(text)
    return match[1] if match else ""


def _frame(text: str) -> dict[str, Any]:
    kind = _kind(text)
    if kind not in _READERS:
        raise UsageError(f"it is no saved result: its kind is {short(kind)}, not one of {', '.join(_READERS)}")
    head = text.partition("\n")[0] if kind == "study" else text
    whole = parse(head.encode("utf-8", "surrogatepass"), 4 * MAX_FILE_CHARS)
    fits(whole, {"asked": IfThere(ASKED)})
    asked = {name: value for name, value in whole.get("asked", {}).items() if name in ASKED}
    frame = {"kind": kind, "state": "finished", "text": OPENED, "opened": True, "asked": asked}
    return {**frame, **_READERS[kind](text, asked)}


def _check_short(rows: Sequence[object], most: int, what: str) -> None:
    if not are_short(rows, most):
        raise UsageError(f"it has more than {most} {what}, or one of more than {MAX_ROW_CHARS} characters")


def _study(text: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    rows, target, said = open_study(text)
    _check_short([row.to_json() for row in rows], MAX_ROWS, "rows")
    num, drafters = len({row.line for row in rows}), list(dict.fromkeys(row.drafter for row in rows))
    report = result(rows, target, said, asked.get("temperature"))
    return {"num_prompts": num, "num_done": num, "target": target, "drafters": drafters, "report": report}


def _load(text: str, _: Mapping[str, Any]) -> Mapping[str, Any]:
    rows, lanes, said = open_load(text)
    _check_short(rows, MAX_LEVELS, "levels")
    return {"lanes": lanes, "model": said["model"], "report": load_report(rows, lanes, said)}


def _check_up(text: str, _: Mapping[str, Any]) -> Mapping[str, Any]:
    report = open_report(text)
    _check_short(report["findings"], MAX_FINDINGS, "findings")
    return {"report": report, "races": {}}


_READERS = {"study": _study, "load": _load, "checkup": _check_up}
