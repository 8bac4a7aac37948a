"""Each part of the Triton kernels is tried in a process of its own before it is used: what is wrong, or ends
that process, stays off, and this process goes on."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.cache import ENVIRONMENT_VARIABLE
from engine.core.errors import RaceError
from engine.kernels.cpu.build import has_kernels
from engine.kernels.cuda import attention, available, sample
from engine.kernels.cuda.kernels import CudaKernels
from engine.kernels.cuda.linear import GpuLinear
from engine.runner import kernel_trial, trial_process
from engine.runner import prepare as preparing
from engine.runner.prepared import Prepared
from tests.helpers import gpu_kernels  # noqa: F401  it switches the interpreter on
from tests.helpers.fake_cuda import CUDA, fake_cuda, on_cuda
from tests.helpers.tiny import fresh

PARTS = ("linears", "attention", "decoder", "sampler")  # of a model without linear layers
WHOLE = CudaKernels(CUDA, torch.bfloat16, against="")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    has_kernels()  # the CPU's are compiled once for all tests, not into this cache
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))


@cache
def bare() -> Prepared:
    """A tiny model on torch's kernels, on the stand-in."""
    model = fresh("qwen3", torch.bfloat16)
    with fake_cuda():
        made = preparing.prepare(on_cuda(model), CudaKernels(CUDA, torch.bfloat16, against="x"))
    assert WHOLE.parts(made.model) == PARTS
    return made


# This process

CHILD = """
import json, os, signal, sys, time
def say(**line): print(json.dumps(line), flush=True)
open({log!r}, "a").write("started ")
{start}
request = json.load(sys.stdin)
for part in request["parts"]:
    if part not in request["off"]:
        say(trying=part)
        if part == "attention":
            {attention}
say(done=True)
"""
OFF = 'say(off=part, why="it is wrong")'
HANGS, KILLED = "time.sleep(60)", "os.kill(os.getpid(), signal.SIGKILL)"


class Child:
    """A scripted process in the place of the one that tries, and what is made of it."""

    def __init__(self, patch: pytest.MonkeyPatch, log: Path) -> None:
        self._patch, self._log = patch, log
        patch.setattr(kernel_trial, "PART_S", 1)

    def verdict(self, attention: str = "pass", start: str = "pass") -> tuple[dict[str, str], int]:
        """What stays off, and how many processes it took."""
        script = CHILD.format(attention=attention, start=start, log=str(self._log))
        self._patch.setattr(kernel_trial, "COMMAND", (sys.executable, "-S", "-c", script))
        self._log.write_text("")
        model = bare().model
        with fake_cuda():
            return kernel_trial.tried(model, WHOLE), self._log.read_text().count("started")


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Child:
    return Child(monkeypatch, tmp_path / "log")


@pytest.mark.parametrize(
    ("does", "why", "num"),
    [
        ("pass", "", 1),
        (OFF, "it is wrong", 1),
        (f"{OFF}; sys.exit(1)", "it is wrong", 2),
        (KILLED, "its process ended with SIGKILL", 2),
        ("sys.exit(3)", "its process ended with status 3", 2),
        (HANGS, "no answer for 1 s", 2),
        ('sys.stdout.write("{"); sys.exit(3)', "its process ended with status 3", 2),
    ],
    ids=["right", "wrong", "wrong, and the device is lost", "killed", "ended", "hangs", "half a line"],
)
def test_a_part_that_fails_stays_off_and_the_verdict_is_kept(child: Child, does: str, why: str, num: int) -> None:
    """The page would hang or die with the kernel; or each start try it again; or what is right stay off."""
    off = {"attention": why} if why else {}
    assert child.verdict(does) == (off, num)
    assert child.verdict(HANGS) == (off, 0)


@pytest.mark.parametrize(
    ("start", "why"),
    [
        (HANGS, "no answer for 1 s"),
        ("raise OSError", "its process ended with status 1"),
        ('say(gave_up="no memory"); sys.exit()', "no memory"),
        ("pass", "FileNotFoundError"),
    ],
    ids=["hangs", "ends", "gives up", "does not start"],
)
def test_where_nothing_can_be_tried_all_is_off_until_the_next_load(
    child: Child, start: str, why: str, monkeypatch: pytest.MonkeyPatch, caplog: Any, capfd: Any
) -> None:
    """Kernels that nobody has tried would run; or a moment without memory would cost them for good; or a terminal show
    the process's traceback, or the log lose it."""
    with monkeypatch.context() as patch:
        if start == HANGS:
            patch.setattr(kernel_trial, "START_S", 1)
        if why.startswith("File"):
            patch.setattr(subprocess, "Popen", lambda *unused, **more: Path("/nothing/is/there").read_text())
        off, _ = child.verdict(start=start)
    assert ("Traceback" in caplog.text) == start.startswith("raise") and not capfd.readouterr().err
    assert off.keys() == set(PARTS) and all(text.startswith(f"it could not be tried: {why}") for text in off.values())
    assert child.verdict() == ({}, 1)


def test_a_damaged_verdict_is_ignored(child: Child, tmp_path: Path) -> None:
    """A load would fail, or switch on what was found to be wrong."""
    assert child.verdict(OFF)[1] == 1
    (file,) = tmp_path.glob("trial-*.json")
    for content in ("", "{", "[]", '{"off": 7}', '{"off": {"attention": 7}}', '{"off": {"no part": "x"}}'):
        file.write_text(content)
        assert child.verdict(OFF) == ({"attention": "it is wrong"}, 1)


def test_another_driver_or_model_is_tried_anew(child: Child, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was right under one driver, or for one size, would be believed of another."""
    assert child.verdict()[1] == 1
    monkeypatch.setattr("engine.kernels.cuda.kernels._driver", lambda: "another")
    assert child.verdict()[1] == 1
    monkeypatch.setattr(bare().model.config, "hidden_size", 65)
    assert child.verdict()[1] == 1 and child.verdict()[1] == 0


def test_the_model_that_is_tried_has_a_layer_of_each_kind() -> None:
    """Kernels of a kind that stands behind the first layers would run untried; a whole model does not fit twice."""
    config: Any = fresh("gemma3", torch.bfloat16).config
    config.num_hidden_layers, config.layer_types = 12, (["sliding_attention"] * 5 + ["full_attention"]) * 2
    few = kernel_trial._with_few_layers(config)
    assert few["num_hidden_layers"] == 6 and few["layer_types"] == config.layer_types[:6]
    config.layer_types = ["full_attention"] * 12
    assert kernel_trial._with_few_layers(config)["num_hidden_layers"] == 2


# The other process


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = trial_process._drawn
    monkeypatch.setattr(
        trial_process, "_drawn", lambda config, dtype, device: on_cuda(drawn(config, dtype, torch.device("cpu")))
    )


def found(off: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """The lines of the other process, run here on the interpreter, but for what it is at."""
    model = bare().model
    with fake_cuda(run_kernels=True):
        request = json.loads(json.dumps(kernel_trial._request(model, PARTS)))
        return [line for line in trial_process.trial({**request, "off": off or {}}) if "trying" not in line]


def fail(*unused: Any, **more: Any) -> Any:
    raise RuntimeError("it fails")


def nothing(query: Any, *unused: Any) -> Any:
    return torch.zeros_like(query).transpose(1, 2)


def without_noise(rows: Any, tokens: Any, keys: Any, temperature: float, pick: Any = sample.pick_rows) -> Any:
    return pick(rows, tokens, torch.zeros_like(keys), temperature)


FAULTY = [
    (GpuLinear, "forward", fail, "linears", "RuntimeError: it fails"),
    (attention, "attend_rows", nothing, "attention", "Qwen3ForCausalLM: a step of width 2 over 18 columns is wrong"),
    (sample, "pick_rows", without_noise, "sampler", "of 8 tokens chosen at temperature 0.8"),
]


@pytest.mark.parametrize(("owner", "name", "fault", "part", "why"), FAULTY, ids=["raises", "numbers", "tokens"])
def test_a_part_that_is_wrong_is_found(
    quick: None, monkeypatch: pytest.MonkeyPatch, owner, name, fault, part, why
) -> None:
    """It would run in every race, in both lanes alike, so no verdict sees it: another model or other odds."""
    monkeypatch.setattr(owner, name, fault)
    off, done = found({other: "" for other in PARTS if other != part})
    assert off["off"] == part and off["why"].startswith(why) and done == {"done": True}


def test_right_kernels_pass(quick: None) -> None:
    """Nothing of Triton's would ever run."""
    assert found() == [{"done": True}]


def test_what_keeps_triton_from_running_is_named_with_its_remedy(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A visitor would read that /usr/bin/gcc returned non-zero exit status 1."""

    def compiles(*unused: Any) -> None:
        raise subprocess.CalledProcessError(1, ["/usr/bin/gcc"])

    monkeypatch.setattr(sample, "pick_rows", compiles)
    monkeypatch.setattr(available.sysconfig, "get_paths", lambda: {"include": "/nothing/is/here"})
    remedy = "it compiles a small launcher, and /nothing/is/here/Python.h is missing; install python3-dev"
    with pytest.raises(RaceError, match=f"^Triton does not run here: {remedy}$"):  # and is tried again at the next load
        found()


def test_a_lost_device_ends_the_process_and_no_memory_gives_up(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part after it would be called wrong, and stay off for good."""
    monkeypatch.setattr(GpuLinear, "forward", fail)
    monkeypatch.setattr(CudaKernels, "synchronize", fail)
    assert found() == [{"off": "linears", "why": "RuntimeError: it fails"}]

    def full(*unused: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(GpuLinear, "forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        found()


# Both


def test_a_load_tries_the_parts_apart_once_and_says_what_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process would try another model than the one that is loaded, or its words be lost on the way."""
    model = fresh("qwen3", torch.bfloat16)
    monkeypatch.setattr(kernel_trial, "COMMAND", (sys.executable, "-m", "tests.helpers.pretended_trial"))
    monkeypatch.setattr(preparing, "_check_faithful", lambda *unused: None)  # launches write nothing here
    monkeypatch.setattr(preparing, "check_agreement", lambda unused: None)
    told: list[str] = []
    for is_first in (True, False):
        with fake_cuda(tries=True):
            told.clear()
            made = preparing.prepare(on_cuda(copy.deepcopy(model)), progress=lambda text, share: told.append(text))
        assert made.kernels.off == {"attention": "it is wrong here"}
        assert "linears: 13 Triton; attention: torch's; " in (says := made.kernels.runs(made.model)["sentence"])
        both = "; no Triton attention: it is wrong here; no Triton decoder: it needs the Triton attention"
        assert says.endswith(both)
        assert is_first == any("once for this machine" in text for text in told)
