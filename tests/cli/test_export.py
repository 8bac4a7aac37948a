"""The command export: a page that holds the recording as it is, a table that holds its steps, and errors in a
sentence."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.player import player
from app.recorded import RACES
from engine.cli import main as cli
from engine.recordings.recording import loads
from engine.recordings.steps_csv import steps_csv
from tests.helpers import ROOT, races

RACE = RACES / "csv_to_json.json"
PACKED = re.compile(r'<script type="text/plain" id="recording">([^<]*)</script>')
HOSTILE = (
    "</script><script>window.ran=1</script>",
    "</title></style></noscript><img src=x onerror=window.ran=1>",
    "<!--<script>",
    "\u2028${window.ran=1}{{constructor}}`",
    "@@race@@ @@title@@ @@program@@",
    "'\"&amp; javascript:alert(1)",
)


class Tags(HTMLParser):
    """All tags of a page with their attributes, and all text but that of style and scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[Any] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:
            self.texts.append(data)


def labelled(label: str) -> dict[str, Any]:
    """A race whose every name and sentence is that one."""
    race = json.loads(json.dumps(races.fixed_race()))
    for part, key in ((race["model"], "name"), (race["device"], "name"), (race, "created"), (race, "commit")):
        part[key] = label
    for verdict in race["verdicts"].values():
        verdict["sentence"] = label
    for lane in race["spec"]["lanes"]:
        lane["drafter"] = label if lane["role"] == "speculative" else lane["drafter"]
    return race


def test_the_command_writes_both_files_without_torch_or_gradio(tmp_path: Path) -> None:
    """A recording that is not the one that was given, as its bytes; or seconds of imports for a file of text."""
    for name in ("torch", "gradio"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(77)")
    html, table = tmp_path / "race.html", tmp_path / "race.csv"
    html.write_text("an old one")
    command = [sys.executable, "-m", "engine", "export", str(RACE), "--html", str(html), "--csv", str(table)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.count("\n") == 2
    (packed,) = PACKED.findall(html.read_text(encoding="utf-8"))
    assert gzip.decompress(b64decode(packed)) == RACE.read_bytes()
    assert table.read_bytes().decode() == steps_csv(loads(RACE.read_bytes()))


def test_without_the_folder_of_the_page_there_is_one_sentence(tmp_path: Path) -> None:
    """A bare machine with the engine alone would ask for a package named app."""
    (tmp_path / "engine").symlink_to(ROOT / "engine")
    (tmp_path / "app.py").touch()
    command = [sys.executable, "-m", "engine", "export", str(RACE), "--html", "out.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        1,
        "error: this needs the folder app/ beside engine/, which is not there\n",
    )


def test_a_recording_is_not_replaced_by_its_own_export(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """One slip of the hand, and the race is gone."""
    race = tmp_path / "race.json"
    race.write_bytes(RACE.read_bytes())
    monkeypatch.chdir(tmp_path)
    for arguments in (["--html", "race.json"], ["--csv", "./race.json"], ["--html", "x", "--csv", "x"]):
        assert cli.main(["export", str(race), *arguments]) == 2
        assert "must be different files" in capsys.readouterr().err
    assert race.read_bytes() == RACE.read_bytes() and not (tmp_path / "x").exists()


def test_no_label_of_a_recording_becomes_markup() -> None:
    """A stranger's race would bring a script, or end the page's title or program."""
    plain = Tags(player(json.dumps(labelled("x")).encode()))
    assert len(plain.tags) > 100
    for label in HOSTILE:
        page = player(json.dumps(labelled(label)).encode())
        assert Tags(page).tags == plain.tags
        assert f"A recorded race of Photofinish: {label}, {label}" in "".join(Tags(page).texts)
        assert page.count("@@") == plain_marks(label)


def plain_marks(label: str) -> int:
    """How often @@ stands in a page: in the program's own pattern, and where the label is told."""
    program = player(json.dumps(labelled("x")).encode()).count("@@")
    told = Tags(player(json.dumps(labelled("0x0")).encode())).texts
    return program + label.count("@@") * "".join(told).count("0x0")


@given(races.recordings() | races.recordings(failing=True) | races.servers_races(), st.sampled_from(["", "=", "-"]))
def test_the_table_is_the_steps(recording: dict[str, Any], sign: str) -> None:
    """A step left out or in another order, a number that was rounded, or a cell that a spreadsheet computes."""
    for event in recording["events"]:
        event["lane"] = sign + event["lane"]
    rows = list(csv.DictReader(io.StringIO(steps_csv(recording), newline="")))
    steps = [event for event in recording["events"] if event["type"] == "step"]
    assert [values(row) for row in rows] == [told(step) for step in steps]
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "-", "@", "\t"))]


def values(row: dict[str, str]) -> list[Any]:
    """What a reader of the table gets."""
    ids = ([int(token) for token in row[name].split()] for name in ("drafted", "token_ids"))
    counts = ("step", "position", "num_drafted", "num_accepted", "num_committed")
    width = int(row["width"]) if row["width"] else None
    times = (float(row[name]) for name in ("draft_s", "verify_s", "clock_s"))
    return [row["lane"], *(int(row[name]) for name in counts), width, *times, *ids, json.loads(row["text"])]


def told(step: dict[str, Any]) -> list[Any]:
    """The same of a recording's step."""
    drafted = step.get("num_drafted", len(step["drafted"]))
    return [
        "'" * step["lane"].startswith(("=", "+", "-", "@", "\t", "\r")) + step["lane"],
        *(step["index"], step["position"], drafted, step["num_accepted"], len(step["token_ids"]), step["width"]),
        *(step["draft_s"], step["verify_s"], step["clock_s"], step["drafted"], step["token_ids"]),
        "".join(step["pieces"]),
    ]
