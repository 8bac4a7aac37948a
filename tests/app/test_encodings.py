"""Files from Windows: marks, carriage returns, UTF-16."""

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.catalogue.limits import read_limits
from app.page.exported import exported as page_of
from engine.cli.commands import read_prompt
from engine.core.errors import UsageError
from engine.recordings import recording
from engine.strict_json import decoded
from engine.studies.prompts import study_file
from engine.studies.prompts.rows import Row
from tests.helpers import races

RACE = json.dumps({**races.fixed_race(), "commit": "é→猫\U0001f680"}, indent=1, ensure_ascii=False)
ROW = Row(1, "é", "prompts", "ngram", "auto", 2.0, 0.01, 0.5, 2.0, 8, True)
HEAD = {"format": study_file.FORMAT, "schema": study_file.SCHEMA, "about": {"note": "é"}}
# Of each kind of file: its name, a text with lines, and what is read of it.
KINDS: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "recording": ("race.json", RACE, lambda path: recording.read(path).text),
    "exported page": ("race.html", page_of(recording.checked(RACE.encode())), lambda path: recording.read(path).text),
    "limits": ("limits.toml", 'pairs = "loaded"  # é\nrace_s = 90\n', lambda path: read_limits(str(path))),
    "prompt": ("prompt.txt", "é→猫", lambda path: read_prompt(Namespace(prompt=[], prompt_file=[str(path)]))),
    "study": (
        "study.jsonl",
        f"{json.dumps(HEAD)}\n{json.dumps(ROW.to_json(), ensure_ascii=False)}\n",
        lambda path: vars(study_file.StudyFile(str(path), {})),
    ),
    "result": ("result.json", json.dumps(study_file.result([ROW], "m", {"scope": "é"})) + "\n", lambda path:
        study_file.open_study(decoded(path.read_bytes()))),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_windows_has_saved_says_the_same(kind: str, tmp_path: Path) -> None:
    """Limits, or a race, that went through Notepad, Excel or PowerShell would be refused as no such file."""
    name, text, read = KINDS[kind]
    path = tmp_path / name
    path.write_bytes(text.encode())
    wanted = read(path)
    for encoding in ("utf-8-sig", "utf-16"):
        path.write_bytes(text.replace("\n", "\r\n").encode(encoding))
        if encoding == "utf-16" and kind == "study":
            with pytest.raises(UsageError, match="UTF-16"):
                read(path)
        else:
            assert read(path) == wanted
