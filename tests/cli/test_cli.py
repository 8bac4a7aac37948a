"""The command line refuses bad input in one line, fast and before anything heavy is imported, and ends cleanly however
it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.cli import main as cli
from engine.cli.arguments import Command, Parser, option
from engine.cli.commands import LOAD, RACE, REPLAY, read_prompt
from engine.cli.verify import VERIFY
from engine.errors import RaceError, UsageError
from engine.recordings import recording as recordings
from tests.helpers import ROOT, races

ENGINE = [sys.executable, "-m", "engine"]


@pytest.fixture(scope="session")
def no_torch(tmp_path_factory) -> dict[str, str]:
    """An environment in which importing torch ends the process with status 77."""
    folder = tmp_path_factory.mktemp("no_torch")
    (folder / "torch.py").write_text("import os; os._exit(77)")
    return {**os.environ, "PYTHONPATH": str(folder)}


def engine(*arguments: str | bytes, **details) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ENGINE, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=60, **details)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            "nonsense",
            "unknown command 'nonsense'; choose one of: bench, export, load, race, replay, study, study-prompts, "
            "sweep, train, verify",
        ),
        ("race", "exactly one prompt, by --prompt TEXT or --prompt-file FILE, not none"),
        ("race --prompt a --prompt b", "exactly one prompt"),
        ("race --prompt a --prompt-file b", "exactly one prompt"),
        ("race --prompt=", "the prompt is empty"),
        ("race --prompt-file missing.txt", "'missing.txt': No such file"),
        ("race --prompt-file engine", "'engine': Is a directory"),
        ("race --prompt-file /dev/zero", "'/dev/zero' is larger than 16 MB"),
        (["race", "--prompt", "a\udcff"], "lone surrogate"),
        ("race --prompt a --k 3.5", "--k: must be auto or an integer from 0 to 63, not '3.5'"),
        ("race --prompt a --k -1", "not '-1'"),
        ("race --prompt a --k 64", "not '64'"),
        ("race --prompt a --k 1_0", "not '1_0'"),
        ("race --prompt a --k ٣", "not '٣'"),
        ("race --prompt a --k 0", "needs k of 1 to 63 or auto, not 0"),
        ("race --prompt a --width 65", "--width: must be auto or an integer from 1 to 64, not '65'"),
        ("race --prompt a --width wide", "not 'wide'"),
        ("race --prompt a --width 4", "width 4 cannot hold k=7 drafts"),
        ("race --prompt a --temperature -0.1", "--temperature: must be a number from 0 to 100, not '-0.1'"),
        ("race --prompt a --temperature nan", "not 'nan'"),
        ("race --prompt a --temperature inf", "not 'inf'"),
        ("race --prompt a --temperature 1e-9", "0 (greedy) or at least 0.001"),
        ("race --prompt a --temperature hot", "not 'hot'"),
        ("race --prompt a --top-p 0", "--top-p: must be a number above 0 and at most 1, not '0'"),
        ("race --prompt a --top-p nan", "not 'nan'"),
        ("race --prompt a --top-k -1", "--top-k: must be an integer from 0"),
        ("race --prompt a --seed -1", "--seed: must be an integer from 0"),
        ("race --prompt a --max-new-tokens 0", "--max-new-tokens: must be an integer from 1 to 100000, not '0'"),
        ("race --prompt a --max-new-tokens 100001", "not '100001'"),
        ("race --prompt a --drafter nonsense", "unknown drafter 'nonsense'; choose one of: "),
        ("race --prompt a --dtype int4", "--dtype: must be one of auto, bfloat16, float16, float32, int8, not 'int4'"),
        ("race --prompt a --device tpu", "--device: must be one of auto, cpu, cuda, cuda:N, mps, not 'tpu'"),
        ("race --prompt a --threads 0", "--threads: must be an integer from 1 to 64, not '0'"),
        ("race --prompt a --threads 65", "not '65'"),
        ("race --prompt a --stop=", "--stop: must not be empty"),
        (["race", "--prompt", "a", "--stop", "\udcff"], "--stop: must be UTF-8 text"),
        ("race --prompt a " + "--stop x " * 17, "up to 16 strings"),
        ("race --prompt a --save missing/race.json", "cannot save to 'missing/race.json': No such file"),
        ("race --prompt a --save engine", "cannot save to 'engine': it is a folder"),
        ("race --prompt a --fast", "unrecognized arguments: --fast"),
        ("race --prompt a --ka 3", "unrecognized arguments: --ka"),
        ("race --prompt a --temp 1", "unrecognized arguments: --temp"),
        ("race --prompt a --k --json", "--k: expected one argument"),
        (["race", "--prompt", "a", "--k", "1\n2\x1b[31m"], "not '1\\n2\\x1b[31m'"),
        ("verify", "the following arguments are required: FILE"),
        ("verify missing.json --json", "cannot read the recording 'missing.json'"),
        ("verify engine/cli/main.py", "not JSON"),
        ("replay missing.json", "cannot read the recording 'missing.json'"),
        (
            "replay x --speed -1",
            "--speed: must be a number from 0.001 to 1000000, or 0 for as fast as possible, not '-1'",
        ),
        ("replay x --speed nan", "not 'nan'"),
        ("load --target=", "--target: must not be empty"),
        ("export x.json", "nothing to write: give --html OUT.html, --csv OUT.csv, or both"),
        ("export missing.json --html x.html", "cannot read the recording 'missing.json'"),
        ("export engine/cli/main.py --csv x.csv", "not JSON"),
        ("export x.json --html engine", "cannot save to 'engine': it is a folder"),
        ("export x.json --csv=", "--csv: must not be empty"),
    ],
)
def test_unusable_arguments_give_status_2_and_one_line(arguments, words, no_torch):
    """Nothing on stdout, one line on stderr that names the value and the choices, and no torch in between (it would
    take seconds)."""
    done = engine(*(arguments.split() if isinstance(arguments, str) else arguments), env=no_torch)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and words in done.stderr, done.stderr


@pytest.mark.parametrize("content", [b"\xff", b"ab\xc3", b"\x00text", b"\xed\xa0\x80"])
def test_a_prompt_file_that_is_no_text_is_refused(tmp_path, content):
    """Binary data, cut characters, NUL and encoded surrogates are named; nothing is replaced in silence."""
    path = tmp_path / "prompt"
    path.write_bytes(content)
    done = engine("race", "--prompt-file", str(path))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("text", ["  two\r\nlines\r", "\ufeffmark", "\n", "---\n", "naïve 猫"])
def test_the_prompt_is_used_byte_for_byte(tmp_path, text, monkeypatch):
    """No newline translated, no space stripped, no mark removed: from the command line, a file or stdin."""
    path = tmp_path / "prompt.txt"
    path.write_bytes(text.encode())
    assert read_prompt(Namespace(prompt=[text], prompt_file=[])) == text
    assert read_prompt(Namespace(prompt=[], prompt_file=[str(path)])) == text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert read_prompt(Namespace(prompt=[], prompt_file=["-"])) == text


@pytest.mark.parametrize("text", ["-x", "--k=3", "-5", "---", "--", "- item", "--prompt-files", "@file", "%s", "-h3"])
def test_a_value_may_begin_with_a_dash(text):
    """A prompt that looks like an option is still the prompt."""
    options = Parser("test", RACE, "").parse(["--prompt", text, "--k", "3", "--stop", text])
    assert (options.prompt, options.k, options.stop) == ([text], 3, [text])
    assert Parser("test", RACE, "").parse([f"--prompt={text}"]).prompt == [text]


words_of_options = st.sampled_from(
    [name for command in (RACE, VERIFY, REPLAY, LOAD) for each in command.options for name in each.names]
)


@given(
    st.sampled_from([RACE, VERIFY, REPLAY, LOAD]),
    st.lists(words_of_options | st.text() | st.sampled_from(["-1", "1e400", "=", "--", "-", "9" * 5000]), max_size=6),
)
@example(REPLAY, ["file", "--speed", "1e400"])
def test_no_arguments_break_the_parser(command, arguments):
    """Any words at all are parsed, refused in a sentence, or ask for help."""
    try:
        Parser("test", command, "").parse([a for a in arguments if a not in ("-h", "--help")])
    except UsageError as error:
        assert "\n" not in cli.one_line(str(error)) and cli.one_line(str(error)).isprintable()


def test_the_trap_for_torch_works(no_torch, tmp_path):
    """With good arguments a race does come to torch: the tests above would notice it."""
    assert engine("race", "--prompt", "a", "--target", str(tmp_path), env=no_torch).returncode == 77


@pytest.mark.slow
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


def fail(options: Namespace) -> int:
    raise {
        "usage": UsageError("u"),
        "race": RaceError("two\nlines \x1b[2J"),
        "bug": KeyError("k"),
        "ctrl-c": KeyboardInterrupt(),
        "memory": MemoryError(),
    }[options.how]


FAIL = Command((option("how"),), fail)


@pytest.mark.parametrize(
    "how, status, line",
    [
        ("usage", 2, "error: u"),
        ("race", 1, "error: two lines \\x1b[2J"),
        ("bug", 1, "internal error: KeyError: 'k'; run again with --debug to see the traceback"),
        ("memory", 1, "internal error: MemoryError: ; run again with --debug to see the traceback"),
        ("ctrl-c", 130, "interrupted"),
    ],
)
def test_however_a_command_ends_there_is_one_line(monkeypatch, capsys, how, status, line):
    """A later command joins by one line of the table; its failures become a status and one line, with --debug a
    traceback too."""
    monkeypatch.setitem(cli.COMMANDS, "fail", ("tests.cli.test_cli:FAIL", "fails"))
    assert cli.main(["fail", how]) == status
    assert capsys.readouterr() == ("", line + "\n")
    assert cli.main(["fail", how, "--debug"]) == status
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("Traceback") and err.endswith(line + "\n")


@pytest.fixture
def saved(tmp_path) -> str:
    """A recording on disk."""
    path = tmp_path / "race.json"
    recordings.write(path, races.fixed_race())
    return str(path)


def test_replay_prints_the_result_of_the_race(saved, capsys):
    """Text and numbers without --json, the summary and nothing else with it; a recording says that it is one."""
    assert cli.main(["replay", saved, "--speed", "0"]) == 0
    out, err = capsys.readouterr()
    assert "RECORDED" in out and "abcd" in out and err == ""
    done = engine("replay", saved, "--json")
    assert done.returncode == 0 and done.stderr == ""
    assert json.loads(done.stdout) == json.loads(json.dumps(recordings.summary(races.fixed_race())))


def test_a_reader_that_goes_away_is_no_error(saved):
    """`| head` closes the pipe: no traceback and no complaint at exit."""
    for arguments in (["--help"], ["race", "--help"], ["replay", saved, "--json"], ["replay", saved, "--speed", "0"]):
        with subprocess.Popen(
            [*ENGINE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
        ) as process:
            process.stdout.close()
            assert process.stderr.read() == b""
            process.wait()
            assert process.returncode in (0, 1)


def test_a_result_that_cannot_be_written_is_an_error(saved):
    """A full disk behind stdout is said, with status 1: a script must not take the missing result for one."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*ENGINE, "replay", saved, "--json"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
    assert done.returncode == 1
    assert done.stderr == "error: cannot write the result to stdout: No space left on device\n"


def test_ctrl_c_ends_a_replay_cleanly(saved):
    """SIGINT in the middle of a paced replay: status 130, one line, no traceback."""
    with subprocess.Popen(
        [*ENGINE, "replay", saved, "--speed", "0.001"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"interrupted\n"
        assert process.wait() == 130


def test_output_survives_a_terminal_without_unicode(saved):
    """In the C locale characters are escaped, not fatal."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = engine("replay", saved, "--speed", "0", env=environment)
    assert done.returncode == 0 and done.stderr == ""
