"""Real races from the command line, on the small trained target: what is printed, saved, verified and replayed, and how
a race fails."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from functools import partial
from pathlib import Path

import pytest

from app.catalogue.catalogue import Pair
from app.catalogue.request import RaceRequest
from app.jobs.backend import TorchBackend
from engine.cli import main as cli
from engine.cli import run
from engine.cli.terminal import ProgressLine
from engine.core.events import Started
from engine.core.spec import RaceSpec, SamplingParams, standard_lanes
from engine.progress import RACING, silent
from engine.recordings import recording as recordings
from engine.runner import target
from engine.text import encode_prompt
from tests.helpers import ROOT

TARGET = str(ROOT / "tests/fixtures/trained/target")
RACE = ["race", "--prompt", "def f(x):\n", "--target", TARGET]
RACE += shlex.split("--max-new-tokens 24 --dtype float32 --threads 1")


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> str:
    """An audited, sampled race, run once, on disk."""
    path = str(tmp_path_factory.mktemp("races") / "race.json")
    assert cli.main([*RACE, "--audit", "--temperature", "0.9", "--seed", "5", "--save", path, "--json"]) == 0
    return path


def printed(capsys, *arguments: str, status: int = 0) -> dict:
    assert cli.main(list(arguments)) == status
    out, err = capsys.readouterr()
    assert (err == "") == (status == 0) and err.count("\n") <= 1
    return json.loads(out)


def test_json_is_the_result_and_nothing_else(saved, capsys):
    """A script would read more than one object, or a replay print another result than the race."""
    summary = printed(capsys, "replay", saved, "--json")
    assert summary["verdict"]["kind"] == "identical_bits" and summary["verdict"]["rows_different"] == 0
    options = {"seed": 5, "temperature": 0.9, "audit": True, "dtype": "float32", "device": "cpu"}
    assert {name: summary[name] for name in options} == options
    baseline, speculative = summary["lanes"]["baseline"], summary["lanes"]["speculative"]
    assert baseline["token_ids"] == speculative["token_ids"] and baseline["text"] == speculative["text"]
    assert 1 <= baseline["num_tokens"] <= 24 and summary["speedup"] > 0
    again = printed(capsys, *RACE, "--audit", "--temperature", "0.9", "--seed", "5", "--json")
    assert again["lanes"]["speculative"]["token_ids"] == speculative["token_ids"], "the seed decides the tokens"


def test_verify_gets_the_same_tokens_and_bits(saved, capsys):
    """This machine agrees with itself, in words and as JSON."""
    result = printed(capsys, "verify", saved, "--json")
    assert result["same_tokens"] and result["digest"]["same"]
    lanes = [result["lanes"][name] for name in ("baseline", "speculative")]
    assert all(lane["rows_different"] == 0 and lane["rows_compared"] == lane["num_tokens"] for lane in lanes)
    assert cli.main(["verify", saved]) == 0
    assert "same tokens: this machine reproduces the recorded tokens" in capsys.readouterr().out


def test_verify_finds_a_forged_token(saved, capsys, tmp_path):
    """A recording whose tokens this model never wrote: status 1, and lane and position are named."""
    recording = recordings.read(saved).fields
    del recording["spec"]["lanes"][1:], recording["synthetic"][:], recording["candidates"]
    recording.update(verdicts={}, events=[e for e in recording["events"] if e["lane"] == "plain"])
    recording["spec"]["lanes"][0]["width"] = recording["widths"]["plain_width"]
    step = next(e for e in recording["events"] if e["type"] == "step" and e["position"] == 3)
    step["token_ids"] = [step["token_ids"][0] ^ 1]
    path = tmp_path / "forged.json"
    recordings.write(path, recordings.Recording.of(recording))
    result = printed(capsys, "verify", str(path), "--json", status=1)
    assert not result["same_tokens"] and result["lanes"]["plain"]["first_difference"]["position"] == 3
    assert cli.main(["verify", str(path)]) == 1
    said = "error: different: lane 'plain' diverges from the recording at position 3: token "
    assert capsys.readouterr().err.startswith(said)


UNKNOWN = ({"token_ids": [2**31 - 1]}, "outside the model's vocabulary")


@pytest.mark.parametrize("change, words", [UNKNOWN, ({"text": ""}, "the prompt is empty"), ({"text": "a\0"}, "NUL")])
def test_a_hostile_prompt_in_a_recording_is_refused(saved, capsys, tmp_path, change, words):
    """Token ids that the model does not have, and text that is no prompt, are named before they reach the model."""
    recording = recordings.read(saved).fields
    recording["prompt"].update(change)
    for event in recording["events"]:
        event.pop("copied", None)
        if event["type"] == "started":
            event["num_prompt_tokens"] = len(recording["prompt"]["token_ids"])
    recordings.write(tmp_path / "hostile.json", recordings.Recording.of(recording))
    assert cli.main(["verify", str(tmp_path / "hostile.json")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err and err.count("\n") == 1


def test_every_option_reaches_the_race(capsys, tmp_path):
    """Width, k, drafter, stop string, sampling and solo as asked for, in the recording."""
    path = tmp_path / "race.json"
    asked = shlex.split("--drafter none --k 3 --width 8 --top-k 50 --top-p 0.9 --stop return --stop zzz --solo --chat")
    summary = printed(capsys, *RACE, *asked, "--save", str(path), "--json")
    spec = recordings.read(path).spec
    assert spec.solo and not spec.audit
    assert (spec.params.top_k, spec.params.top_p, spec.params.stop) == (50, 0.9, ("return", "zzz"))
    assert [lane.width for lane in spec.lanes] == ["fastest", 8, 8]
    assert [lane.drafter for lane in spec.lanes] == ["none"] * 3
    assert summary["width"] == 8 and "return" not in summary["lanes"]["baseline"]["text"]
    assert summary["lanes"]["speculative"]["acceptance_rate"] is None


def test_a_chat_may_leave_thinking_out(capsys, tmp_path):
    """Many heads were trained on answers without thinking: they would be judged by thoughts, here and on the page."""
    folder, thoughts = (
        tmp_path / "target",
        "{{ messages[0].content }}{% if enable_thinking is not false %} hm{% endif %}",
    )
    shutil.copytree(TARGET, folder)
    (folder / "chat_template.jinja").write_text(thoughts)
    asked, prompts = [*RACE, "--target", str(folder), "--chat", "--save", str(tmp_path / "a"), "--json"], []
    for more in ([], ["--no-thinking"]):
        printed(capsys, *asked, *more)
        prompts.append(recordings.read(tmp_path / "a")["prompt"]["token_ids"])
    pair = Pair("", "", str(folder), "ngram", 3, "", True, thinking=False)
    request = RaceRequest("", "def f(x):\n", True, pair, recordings.read(tmp_path / "a").spec)
    prompts.append(list(TorchBackend("float32", "cpu").prepare(request, silent).prompt.token_ids))
    assert prompts[0][: len(prompts[1])] == prompts[1] == prompts[2] != prompts[0]


REFUSED = [
    ("--target", "missing/folder", "missing/folder"), ("--target", str(ROOT / "engine"), "is no model"),
    ("--max-new-tokens", "100000", "positions"), ("--drafter", "synthetic:2", "2"), ("--device", "cuda:99", "cuda:99"),
]  # fmt: skip


@pytest.mark.parametrize("option, value, words", REFUSED)
def test_what_only_the_model_can_refuse_is_refused_in_one_line(capsys, option, value, words):
    """Found out after loading began: still status 2 and one line, and the next race works."""
    assert cli.main([*RACE, option, value, "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and words in err


def test_a_full_disk_loses_the_file_and_not_the_result(capsys, tmp_path):
    """A race of minutes would print nothing because its file could not be written."""
    summary = printed(capsys, *RACE, "--json", "--save", "/dev/full", status=1)
    assert summary["lanes"]["speculative"]["num_tokens"] > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_it_decodes_ends_it_cleanly(number, monkeypatch, capsys):
    """A signal between two steps: status 130, one line, and the next race works."""
    with monkeypatch.context() as patch:
        stop = lambda line, stage, share: os.kill(os.getpid(), number) if stage == RACING else None  # noqa: E731
        patch.setattr(ProgressLine, "__call__", stop)
        assert cli.main(RACE) == 130
    assert capsys.readouterr() == ("", "interrupted\n")
    assert printed(capsys, *RACE, "--json")["lanes"]["baseline"]["num_tokens"] > 0


def test_ctrl_c_while_it_loads_ends_it_cleanly():
    """SIGINT while torch and the model are still being read: status 130 and one line."""
    command = [sys.executable, "-m", "engine", *RACE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        while "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (130, b"", b"interrupted\n")


def test_a_long_prompt_shows_how_much_of_it_is_read(monkeypatch):
    """The terminal would look frozen for seconds."""
    monkeypatch.setattr(target, "PREFILL_CHUNK", 16)
    said: list[tuple[str, float | None]] = []
    monkeypatch.setattr(ProgressLine, "__call__", lambda line, *report: said.append(report))
    spec = RaceSpec(standard_lanes("ngram", 3), SamplingParams(max_new_tokens=4))
    text = "class Reader:\n    pass\n" * 8
    model = Namespace(target=TARGET, dtype="float32", device="cpu", threads=1)
    prompt_of = partial(encode_prompt, text=text)
    recording = run.run(lambda progress: run.set_up(model, spec, prompt_of, progress))
    num_tokens = next(e.event.num_prompt_tokens for e in recording.events if isinstance(e.event, Started)) - 1
    for lane in spec.lanes:
        shares = [share for stage, share in said if stage.endswith(f": lane {lane.name}")]
        assert shares == [done / num_tokens for done in range(16, num_tokens, 16)] and len(shares) > 2
    assert [stage for stage, _ in said].count(RACING) == len(recording.events)
