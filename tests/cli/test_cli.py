"""The command line reads what it is given, and ends cleanly however it ends; `export` writes the recording as it is.
(What is refused: test_refusals.py.)"""

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.jobs.recorded import RACES
from engine.cli import main as cli
from engine.cli.arguments import Command, Option, Parser
from engine.cli.commands import RACE, REPLAY, read_prompt
from engine.cli.verify import VERIFY
from engine.core.errors import NO_MEMORY, RaceError, UsageError
from engine.recordings import recording as recordings
from engine.recordings.recording import Recording, checked
from engine.recordings.steps_csv import steps_csv
from tests.helpers import ROOT, races

ENGINE = [sys.executable, "-m", "engine"]


def engine(*arguments: str | bytes, **details) -> subprocess.CompletedProcess[str]:
    details = {"cwd": ROOT, **details}
    return subprocess.run([*ENGINE, *arguments], capture_output=True, text=True, timeout=60, **details)


@pytest.mark.parametrize("text", ["  two\r\nlines\r", "a\ufeffmark", "\n", "---\n", "naïve 猫"])
def test_the_prompt_is_used_byte_for_byte(tmp_path, text, monkeypatch):
    """No newline translated, no space stripped, no mark removed: from the command line, a file or stdin."""
    path = tmp_path / "prompt.txt"
    path.write_bytes(text.encode())
    assert read_prompt(Namespace(prompt=[text], prompt_file=[])) == text
    assert read_prompt(Namespace(prompt=[], prompt_file=[str(path)])) == text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert read_prompt(Namespace(prompt=[], prompt_file=["-"])) == text


@pytest.mark.parametrize("text", ["-5", "- item", "-- a = b", "@file", "%s", "-x", "--k=3", "---", "-h3"])
def test_a_value_may_begin_with_a_dash(text):
    """A prompt that looks like an option is still the prompt, at the latest behind an equals sign."""
    options = Parser("test", "", RACE.options).parse([f"--prompt={text}", "--k", "3", f"--stop={text}"])
    assert (options.prompt, options.k, options.stop) == ([text], 3, [text])
    if " " in text or text[0] != "-":
        assert Parser("test", "", RACE.options).parse(["--prompt", text, "--k", "3"]).prompt == [text]


OPTIONS = [option for command in (RACE, VERIFY, REPLAY) for option in command.options]
words_of_options = st.sampled_from([name for option in OPTIONS for name in option.names])
odd_words = st.sampled_from(["-1", "1e400", "=", "--", "-", "9" * 5000, "--stop=--"])


@given(st.sampled_from([RACE, VERIFY, REPLAY]), st.lists(words_of_options | st.text() | odd_words, max_size=6))
@example(RACE, ["--temperature", "1e400"])
def test_no_arguments_break_the_parser(command, arguments):
    """Any words at all are parsed, refused in a sentence, or ask for help."""
    try:
        Parser("test", "", command.options).parse([a for a in arguments if a not in ("-h", "--help")])
    except UsageError as error:
        assert "\n" not in cli.one_line(str(error)) and cli.one_line(str(error)).isprintable()


def test_help_is_fast_and_complete():
    """The overview names every command within half a second; each command's own help works."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        done = engine("--help")
        times.append(time.perf_counter() - started)
    assert min(times) < 0.5
    assert done.returncode == 0 and done.stderr == ""
    for command in cli.COMMANDS:
        assert f"  {command}  " in done.stdout
        help_ = engine(command, "--help")
        assert help_.returncode == 0 and "--debug" in help_.stdout and help_.stderr == ""
    assert "'different' (a fault)" in " ".join(engine("race", "--help").stdout.split())


BUG = "internal error: KeyError: 'k'; run again with --debug to see the traceback"
ENDS: dict[str, tuple[BaseException, int, str]] = {
    "usage": (UsageError("u"), 2, "error: u"),
    "race": (RaceError("two\nlines \x1b[2J"), 1, "error: two lines \\x1b[2J"),
    "bug": (KeyError("k"), 1, BUG),
    "memory": (MemoryError(), 1, f"error: {NO_MEMORY} (MemoryError)"),
    "ctrl-c": (KeyboardInterrupt(), 130, "interrupted"),
}


def fail(options: Namespace) -> int:
    raise ENDS[options.how][0]


@pytest.mark.parametrize("how", ENDS)
def test_however_a_command_ends_there_is_one_line(monkeypatch, capsys, how):
    """A failure would have no status or more than one line, or --debug no traceback."""
    _, status, line = ENDS[how]
    monkeypatch.setitem(cli.COMMANDS, "fail", ("", "fails"))
    monkeypatch.setattr(cli, "resolve_name", lambda name: Command((Option("how"),), fail))
    assert cli.main(["fail", how]) == status
    assert capsys.readouterr() == ("", line + "\n")
    assert cli.main(["fail", how, "--debug"]) == status
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("Traceback") and err.endswith(line + "\n")


@pytest.fixture
def saved(tmp_path) -> str:
    """A recording on disk."""
    path = tmp_path / "race.json"
    recordings.write(path, Recording.of(races.fixed_race()))
    return str(path)


def test_replay_prints_the_result_of_the_race(saved, capsys):
    """Text and numbers without --json, the summary and nothing else with it; a recording says that it is one."""
    assert cli.main(["replay", saved]) == 0
    out, err = capsys.readouterr()
    assert "RECORDED" in out and "abcd" in out and err == ""
    done = engine("replay", saved, "--json")
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads(done.stdout) == json.loads(json.dumps(recordings.summary(Recording.of(races.fixed_race()))))


def test_a_reader_that_goes_away_is_no_error(saved):
    """`| head` closes the pipe: no traceback and no complaint at exit."""
    for arguments in (["--help"], ["race", "--help"], ["replay", saved, "--json"], ["replay", saved]):
        command = [*ENGINE, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
            process.stdout.close()
            assert process.stderr.read() == b""
            process.wait()
            assert process.returncode in (0, 1)


def test_a_result_that_cannot_be_written_is_an_error(saved):
    """A full disk behind stdout is said, with status 1: a script must not take the missing result for one."""
    with open("/dev/full", "w") as full:
        replay = [*ENGINE, "replay", saved, "--json"]
        done = subprocess.run(replay, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr == "error: cannot write the result to stdout: No space left on device\n"


def test_output_survives_a_terminal_without_unicode(saved):
    """In the C locale characters are escaped, not fatal."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = engine("replay", saved, env=environment)
    assert done.returncode == 0 and done.stderr == ""


# export

SHIPPED = RACES / "csv_to_json.json"
PACKED = re.compile(r'<script type="text/plain" id="recording">([^<]*)</script>')


def test_the_command_writes_both_files_without_torch_or_gradio(tmp_path: Path) -> None:
    """A recording that is not the one that was given, as its bytes; or seconds of imports for a file of text."""
    for name in ("torch", "gradio"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(77)")
    html, table = tmp_path / "race.html", tmp_path / "race.csv"
    html.write_text("an old one")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = engine("export", str(SHIPPED), "--html", str(html), "--csv", str(table), env=environment)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.count("\n") == 2
    (packed,) = PACKED.findall(html.read_text(encoding="utf-8"))
    assert gzip.decompress(b64decode(packed)) == checked(SHIPPED.read_bytes()).text.encode()
    assert table.read_bytes().decode() == steps_csv(checked(SHIPPED.read_bytes()))
    piped = engine("export", str(SHIPPED), "--csv", "/dev/stdout", env=environment)
    assert piped.stdout.splitlines() == table.read_text().splitlines(), piped.stderr


def test_without_the_folder_of_the_page_there_is_one_sentence(tmp_path: Path) -> None:
    """A bare machine with the engine alone would ask for a package named app."""
    (tmp_path / "engine").symlink_to(ROOT / "engine")
    (tmp_path / "app.py").touch()
    done = engine("export", str(SHIPPED), "--html", "out.html", cwd=tmp_path)
    error = "error: this needs the folder app/ next to engine/, which is missing\n"
    assert (done.returncode, done.stderr) == (1, error)


def test_a_recording_is_not_replaced_by_its_own_export(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """One slip of the hand, and the race is gone."""
    race = tmp_path / "race.json"
    race.write_bytes(SHIPPED.read_bytes())
    monkeypatch.chdir(tmp_path)
    for arguments in (["--html", "race.json"], ["--csv", "./race.json"], ["--html", "x", "--csv", "x"]):
        assert cli.main(["export", str(race), *arguments]) == 2
        assert "must be different files" in capsys.readouterr().err
    assert race.read_bytes() == SHIPPED.read_bytes() and not (tmp_path / "x").exists()


@given(
    races.recordings() | races.recordings(failing=True) | races.servers_races(), st.sampled_from(["", "=", "-", "＝"])
)
def test_the_table_is_the_steps(recording: dict[str, Any], sign: str) -> None:
    """A step left out or in another order, a number that was rounded, or a cell that a spreadsheet computes."""
    for event in recording["events"]:
        event["lane"] = sign + event["lane"]
    rows = list(csv.DictReader(io.StringIO(steps_csv(Recording.of(recording)).removeprefix("\ufeff"), newline="")))
    wanted = [cells(event) for event in recording["events"] if event["type"] == "step"]
    assert [{name: row[name] for name in cells} for row, cells in zip(rows, wanted, strict=True)] == wanted
    assert not [cell for row in rows for cell in row.values() if cell.startswith(tuple("=+-@\t＝"))]


def cells(step: dict[str, Any]) -> dict[str, str]:
    """What a step's row must have."""
    numbers = {name: step[name] for name in ("position", "num_accepted", "draft_s", "verify_s", "clock_s")}
    numbers |= {"step": step["index"], "num_committed": len(step["token_ids"])}
    numbers |= {"num_drafted": step.get("num_drafted", len(step["drafted"]))}
    return {
        "lane": "'" * (step["lane"][:1] in [*"=+-@\t\r\n＝"]) + step["lane"],
        "width": "" if step["width"] is None else str(step["width"]),
        **{name: str(number) for name, number in numbers.items()},
        **{name: " ".join(map(str, step[name])) for name in ("drafted", "token_ids")},
        "text": json.dumps("".join(step["pieces"]), ensure_ascii=False),
    }
