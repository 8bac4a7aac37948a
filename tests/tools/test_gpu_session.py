"""`python -m tools.gpu`: a part that crashes or hangs costs the others nothing, and all parts run on the stand-in."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.core.events import LaneEvent, Step
from tests.helpers import ROOT
from tests.helpers.pretended_gpu import pretended
from tools.gpu import trial
from tools.gpu.__main__ import CALLS, RESERVE_S, SECONDS, Planned, Session, main
from tools.gpu.part import Part, Stages
from tools.gpu.races import judged

# Every function that a part runs -> the name of the first such part; the others differ in their rung only.
PARTS = {part.run: name for parts in CALLS.values() for name, part in reversed(parts.items())}
IN_OTHERS = (":imports", ":one", ":train")  # which other tests run
NVIDIA_SMI = """#!/bin/sh
case "$*" in *power.draw*) echo "1980, 3201, 612.5, [N/A]";; *) echo "a GPU, 580.1";; esac
"""


def one(name: str, limit_s: float = 60, **more: Any) -> Planned:
    """A part of tests/helpers/gpu_parts.py."""
    return Planned(f"a test's {name}", f"tests.helpers.gpu_parts:{name}", limit_s, **more)


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of a GPU's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(NVIDIA_SMI)
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder / "nvidia-smi"


def run(
    out: Path, parts: dict[str, Planned], *more: str
) -> tuple[int, dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Exit status, what became of each part, and its rows."""
    status = main(["--out", str(out), *more], {1: parts})
    assert sorted(path.name for path in out.iterdir()) == ["gpu_1.json", "gpu_1.jsonl", "gpu_1.log"]
    ended = json.loads((out / "gpu_1.json").read_text())
    assert {"commit", "dirty", "gpu", "torch", "triton"} <= ended["about"].keys()
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ended["parts"]}
    for line in (out / "gpu_1.jsonl").read_text().splitlines():
        rows[json.loads(line)["part"]].append(json.loads(line))
    return status, ended["parts"], rows


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_part_that_dies_or_hangs_costs_no_other(tmp_path, capsys):
    """Ten minutes on a GPU would be lost: errors of CUDA stay with their process, and kernels can hang for good."""
    names = ("finds", "raises", "is_killed", "hangs", "is_wrong")
    parts = {name: one(name, 2 if name == "hangs" else 60, rung="graphs") for name in names} | {"last": one("finds")}
    status, ended, rows = run(tmp_path, parts, "--seconds", "120")
    states = {name: part["state"] for name, part in ended.items()}
    assert status == 1
    assert list(states.values()) == ["done", "failed", "killed", "timed out", "wrong", "done"]
    assert all(ended[name]["says"][0] == "number 1" for name in names[:4]), "what was measured before is kept"
    assert "illegal memory access" in ended["raises"]["last_lines"][-1] and ended["is_killed"]["why"] == "SIGKILL"
    assert any("in hangs" in line for line in ended["hangs"]["last_lines"]), "where it hung"
    assert not is_alive(rows["hangs"][0]["child"]), "the next part would share the device with what it started"
    assert [row["ok"] for row in rows["is_wrong"]] == [False, True, False]
    table = capsys.readouterr().out.rpartition("\n\n")[2]
    assert all(table.count(f"{name:20} ") == 1 for name in states)


def test_the_session_ends_in_its_time(tmp_path):
    """A call that runs over is killed. A part with too little time must say what it left out, or not begin."""
    started = time.monotonic()
    status, ended, rows = run(tmp_path, {"slow": one("is_slow", 5), "late": one("finds")}, "--seconds", "12")
    assert time.monotonic() - started < 12 and status == 1
    assert ended["slow"]["state"] == "done" and "left out" in rows["slow"][-1]["says"]
    assert ended["late"]["state"] == "skipped" and not rows["late"]


def test_what_imports_take_is_not_taken_from_the_measurements(tmp_path):
    """A cold disk would cost a minute of a call, and then its last part; or a call run on until it is killed."""
    first = {"imports": one("is_slow", 4, on_clock=False, rung="graphs"), "late": one("finds", 5)}
    _, ended, _ = run(tmp_path / "a", first, "--seconds", "11")
    assert ended["imports"]["seconds"] > 0.5 and ended["late"]["state"] == "done"
    session = Session(tmp_path / "b", "gpu_1", 590.0, "", False)
    for _ in range(2):
        session._killed_at = session._ends_at + 1
        before = session._ends_at
        session._run("imports", one("is_slow", 4, on_clock=False))
        assert before < session._ends_at <= session._killed_at


def rungs(parts: dict[str, Planned], tmp_path: Path) -> list[str]:
    """The parts in the order in which they ran, those on Triton's kernels marked."""
    _, ended, rows = run(tmp_path, parts)
    for name, part in ended.items():
        if "switches" in (first := [*rows[name], {}][0]):
            assert any("TRITON" in switch for switch in first["switches"]) == (part["rung"] == "graphs")
    return [f"{name}{'*' * (part['rung'] == 'triton')}" for name, part in ended.items()]


def test_torchs_kernels_run_only_where_tritons_fail(tmp_path):
    """Minutes would go to what nobody needs; or one kernel that crashes take down every measurement, torch's too."""
    fine = {"first": one("finds"), "torch's": one("finds", rung="graphs")}
    assert rungs(fine, tmp_path / "a") == ["first*", "torch's"]
    one_fails = {"raises": one("raises"), "hangs": one("hangs", 1), "any": one("finds")}
    assert rungs(one_fails, tmp_path / "b") == ["raises*", "raises-graphs", "hangs*", "any*"]


ENDED = """
import signal, sys
import tools.gpu.__main__ as session
session.CALLS[1] = {"hangs": session.Planned("", "tests.helpers.gpu_parts:hangs", 60)}
signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
session.main()
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_results_are_there_when_the_session_itself_is_ended(how, tmp_path):
    """A call cut off would come back empty. After SIGTERM nothing runs on; after SIGKILL nobody could see to that."""
    process = subprocess.Popen([sys.executable, "-c", ENDED, "--out", str(tmp_path)], cwd=ROOT)
    file, rows, until = tmp_path / "gpu_1.jsonl", [], time.monotonic() + 30
    while not rows and time.monotonic() < until:
        time.sleep(0.05)
        rows = file.read_text().splitlines() if file.exists() else []
    process.send_signal(how)
    process.wait(10)
    row = json.loads(rows[0])
    assert row["says"] == "number 1" and json.loads((tmp_path / "gpu_1.json").read_text())["parts"]["hangs"]
    if how == signal.SIGTERM:
        assert not is_alive(row["child"])
    else:
        os.killpg(os.getpgid(row["child"]), signal.SIGKILL)


def test_parts_fit_into_a_call_and_help_names_them(capsys):
    """The parts at the end would be skipped; a table that a formatter ran together would not say what is measured."""
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    for parts in CALLS.values():
        assert sum(part.limit_s for part in parts.values() if part.on_clock) <= SECONDS - RESERVE_S
        assert all(f"{name} {part.limit_s:.0f} s {part.about}".split() in lines for name, part in parts.items())


def test_a_lane_that_writes_other_tokens_is_called_wrong():
    """The session would report that all is well on a GPU where a drafter changes the text."""

    def lane(name: str, *tokens: int) -> list[LaneEvent]:
        done = (Step(i, i, (), 0, (token,), 0.1, 0.1, 4) for i, token in enumerate(tokens))
        return [LaneEvent(name, 0.0, step) for step in done]

    def verdict(own: list[int], kind: str, exact: bool = True, **failed: str) -> tuple[bool, int | None]:
        widths = SimpleNamespace(plan=SimpleNamespace(exact=exact, width=4, note=""))
        events = [*lane("baseline", 1, 2, 3), *lane("speculative", *own)]
        verdicts = {"speculative": {"kind": kind}}
        done = SimpleNamespace(race=SimpleNamespace(widths=widths), events=events, failed=failed, verdicts=verdicts)
        ok, _, numbers = judged(done)
        return ok, numbers.get("tokens_differ")

    assert verdict([1, 2, 3], "identical_bits") == (True, 0)
    assert verdict([1, 5, 3], "different") == verdict([1, 5, 3], "near_tie") == (False, 1)
    assert verdict([1, 2], "identical_bits") == (False, 1), "a text that stops early is another text"
    assert verdict([1, 5, 3], "near_tie", exact=False)[0] and not verdict([1, 5, 3], "different", False)[0]
    assert not verdict([1, 2, 3], "identical_bits", plain="an illegal memory access")[0]


def test_seconds_of_every_stage_are_kept():
    """What a user waits for would be in no row, or in another stage's."""
    stages = Stages()
    for name in ("reading", "trying", "reading"):
        stages(name, None)
        time.sleep(0.1 if name == "trying" else 0.06)
    says = str(stages)
    assert says.startswith("reading 0.1, trying 0.1") and "first" not in says
    assert stages.seconds["reading"] > 0.11 and 0.09 < stages.seconds["trying"] < stages.seconds["reading"] + 0.05


def test_rows_that_are_not_torchs_are_a_fault(tmp_path, monkeypatch):
    """A head's kernels could compute anything: it costs acceptance, and no text shows it."""
    rows = iter([torch.eye(4), torch.eye(4), torch.eye(4), torch.eye(4).flip(0)])
    monkeypatch.setattr(trial, "_rows", lambda *unused: next(rows))
    monkeypatch.setattr(trial, "load_head", lambda *unused: None)
    monkeypatch.setattr(trial, "head", lambda *unused: tmp_path)
    part = Part("trial", tmp_path / "rows.jsonl", 60, True, tmp_path)
    for num_wrong in (0, 1):
        trial.compare(part, None, "eagle3")
        assert part.num_wrong == num_wrong


# The real parts


def test_a_race_runs_through_in_a_session(tmp_path, monkeypatch):
    """The dry run would not work as a user starts it."""
    monkeypatch.setenv("PHOTOFINISH_CACHE", str(tmp_path / "cache"))
    parts = {name: CALLS[1][name] for name in ("imports", "race")}
    status, ended, rows = run(tmp_path / "out", parts, "--pretend")
    assert status == 0 and [part["state"] for part in ended.values()] == ["done", "done"]
    assert len(rows["imports"]) == 3 and "identical_bits" in ended["race"]["says"][0]


@pytest.mark.parametrize("what", [run for run in PARTS if not run.endswith(IN_OTHERS)])
def test_every_part_runs_through_on_the_stand_in(what, tmp_path, monkeypatch, nvidia_smi):
    """Minutes on a GPU would end in a misspelt word; or a part would measure torch's kernels and call them ours."""
    monkeypatch.setenv("PHOTOFINISH_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "out"
    parts = ("tools.gpu.training:train", what) if what.endswith(":evaluate") else (what,)
    for run_of in parts:
        out.mkdir(exist_ok=True)
        (out / "rows.jsonl").write_text("")
        part = Part(PARTS[run_of], out / "rows.jsonl", 600, True, tmp_path)
        module, function, *argument = run_of.split(":", 2)
        with pretended(part):
            getattr(import_module(module), function)(part, *argument)
    says = [json.loads(line)["says"] for line in (out / "rows.jsonl").read_text().splitlines()]
    assert says and part.num_wrong == 0 and not [line for line in says if line.startswith("left out")], says
    assert any("GpuDecoder" in line for line in says) == (PARTS[what] == "race-8b")
    sampled = (
        "clocks.sm 1980 (1980 to 1980) MHz, clocks.mem 3201 (3201 to 3201) MHz, power.draw 612.5 (612.5 to 612.5) W"
    )
    assert any(line.endswith(sampled) for line in says) == PARTS[what].startswith("race-")
    if what.endswith(":evaluate"):
        assert sorted(path.name for path in (out / "head").iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("part", ["trial:trial", "races:one", "races:ten", "races:correctness"])
def test_small_models_are_exact_on_this_device(part, tmp_path):
    """Racing kernels, graphs that repeat, widths that are no class: tokens would differ from the baseline's."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    rows = str(tmp_path / "rows.jsonl")
    command = [sys.executable, "-m", "tools.gpu.part", f"tools.gpu.{part}", "a part", rows, "600"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
