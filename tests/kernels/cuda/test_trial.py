"""Triton kernels are tried in a process of their own: if they are wrong, or end it, they stay off, and this goes on."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from engine.cache import ENVIRONMENT_VARIABLE
from engine.core.errors import RaceError, UnsupportedModel
from engine.kernels.cpu.build import has_kernels
from engine.kernels.cuda import available, decoder, graphs, sample
from engine.kernels.cuda.kernels import CudaKernels
from engine.kernels.cuda.linear import GpuLinear
from engine.runner import kernel_trial, trial_process
from engine.runner import prepare as preparing
from engine.runner.prepared import Prepared
from tests.helpers import gpu_kernels  # noqa: F401  it switches the interpreter on
from tests.helpers.fake_cuda import CUDA, fake_cuda, on_cuda
from tests.helpers.tiny import fresh

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
        return preparing.prepare(on_cuda(model), CudaKernels(CUDA, torch.bfloat16, against="x"))


# This process

CHILD = """
import os, signal, sys, time
open({log!r}, "a").write("started ")
{does}
"""
WRONG = f'print("it is wrong"); sys.exit({kernel_trial.WRONG})'
HANGS, KILLED = "time.sleep(60)", "os.kill(os.getpid(), signal.SIGKILL)"
Verdict = Callable[..., tuple[str, int]]


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Verdict:
    """Why the kernels stay off after a scripted process in the place of the one that tries, and how many it took."""
    monkeypatch.setattr(kernel_trial, "LIMIT_S", 1)
    log = tmp_path / "log"

    def after(does: str = "pass") -> tuple[str, int]:
        command = (sys.executable, "-S", "-c", CHILD.format(does=does, log=str(log)))
        monkeypatch.setattr(kernel_trial, "COMMAND", command)
        log.write_text("")
        model = bare().model
        with fake_cuda():
            return kernel_trial.tried(model, WHOLE), log.read_text().count("started")

    return after


@pytest.mark.parametrize(
    ("does", "why"),
    [("pass", ""), (WRONG, "it is wrong"), (KILLED, "its process ended with SIGKILL"), (HANGS, "no answer for 1 s")],
    ids=["right", "wrong", "killed", "hangs"],
)
def test_kernels_that_fail_stay_off_and_the_verdict_is_kept(verdict: Verdict, does: str, why: str) -> None:
    """The page would hang or die with the kernel; or each start try it again; or what is right stay off."""
    assert verdict(does) == (why, 1)
    assert verdict(HANGS) == (why, 0)


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("raise OSError", "its process ended with status 1"),
        ('print("no memory"); sys.exit(1)', "no memory"),
        ("pass", "FileNotFoundError"),
    ],
    ids=["ends", "gives up", "does not start"],
)
def test_where_nothing_can_be_tried_they_are_off_until_the_next_load(
    verdict: Verdict, does: str, why: str, monkeypatch: pytest.MonkeyPatch, caplog: Any, capfd: Any
) -> None:
    """Untried kernels run; a moment without memory costs them for good; a terminal shows the trial's traceback."""
    with monkeypatch.context() as patch:
        if why.startswith("File"):
            patch.setattr(subprocess, "Popen", lambda *unused, **more: Path("/nothing/is/there").read_text())
        assert verdict(does)[0].startswith(f"it could not be tried: {why}")
    assert ("Traceback" in caplog.text) == does.startswith("raise") and not capfd.readouterr().err
    assert verdict() == ("", 1)


def test_a_damaged_verdict_is_ignored(verdict: Verdict, tmp_path: Path) -> None:
    """A load would fail, or switch on what was found to be wrong."""
    assert verdict(WRONG)[1] == 1
    (file,) = tmp_path.glob("trial-*.json")
    for content in ("", "{", "[]", '{"off": {}}', '{"why": 7}'):
        file.write_text(content)
        assert verdict(WRONG) == ("it is wrong", 1)


def test_another_driver_or_model_is_tried_anew(verdict: Verdict, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was right under one driver, or for one size, would be believed of another."""
    assert verdict()[1] == 1
    monkeypatch.setattr("engine.kernels.cuda.kernels._driver", lambda: "another")
    assert verdict()[1] == 1
    monkeypatch.setattr(bare().model.config, "hidden_size", 65)
    assert verdict()[1] == 1 and verdict()[1] == 0


def test_the_model_that_is_tried_has_a_layer_of_each_kind() -> None:
    """Kernels of a kind that stands behind the first layers would run untried; a whole model does not fit twice."""
    config: Any = fresh("gemma3", torch.bfloat16).config
    config.num_hidden_layers, config.layer_types = 12, (["sliding_attention"] * 5 + ["full_attention"]) * 2
    few = kernel_trial._with_few_layers(config)
    assert few["num_hidden_layers"] == 6 and few["layer_types"] == config.layer_types[:6]
    config.layer_types = ["full_attention"] * 12
    assert kernel_trial._with_few_layers(config)["num_hidden_layers"] == 2


# The other process


def on_the_stand_in(patch: pytest.MonkeyPatch) -> None:
    """What the other process draws is on the stand-in."""
    drawn = trial_process._drawn
    patch.setattr(
        trial_process, "_drawn", lambda config, dtype, device: on_cuda(drawn(config, dtype, torch.device("cpu")))
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_stand_in(monkeypatch)


def diagnosis() -> str:
    """What the other process finds wrong, run here on the interpreter."""
    model = bare().model
    with fake_cuda(run_kernels=True):
        return trial_process.what_is_wrong(json.loads(json.dumps(kernel_trial._request(*kernel_trial._about(model)))))


def nothing(*arguments: Any, attend: Any = decoder.attend) -> Any:
    return torch.zeros_like(attend(*arguments))


def without_noise(rows: Any, tokens: Any, keys: Any, *others: Any, pick: Any = sample.pick_rows) -> Any:
    return pick(rows, tokens, torch.zeros_like(keys), *others)


FAULTY = [
    (GpuLinear, "normed", Mock(side_effect=RuntimeError("it fails")), "RuntimeError: it fails"),
    (decoder, "attend", nothing, "Qwen3ForCausalLM: a step of width 2 over 18 columns is wrong"),
    (sample, "pick_rows", without_noise, "of 8 tokens chosen at temperature 0.8"),
]


@pytest.mark.parametrize(("owner", "name", "fault", "why"), FAULTY, ids=["raises", "numbers", "tokens"])
def test_what_is_wrong_is_found(quick: None, monkeypatch: pytest.MonkeyPatch, owner, name, fault, why) -> None:
    """It would run in every race, in both lanes alike, so no verdict sees it: another model or other odds."""
    monkeypatch.setattr(owner, name, fault)
    assert diagnosis().startswith(why)


def test_right_kernels_pass(quick: None) -> None:
    """Nothing of Triton's would ever run."""
    assert diagnosis() == ""


def test_what_keeps_triton_from_running_is_named_with_its_remedy(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A visitor would read that /usr/bin/gcc returned non-zero exit status 1."""
    monkeypatch.setattr(sample, "pick_rows", Mock(side_effect=subprocess.CalledProcessError(1, ["/usr/bin/gcc"])))
    monkeypatch.setattr(available.sysconfig, "get_paths", lambda: {"include": "/nothing/is/here"})
    remedy = "it compiles a small launcher, and /nothing/is/here/Python.h is missing; install python3-dev"
    with pytest.raises(RaceError, match=f"^Triton does not run here: {remedy}$"):  # and is tried again at the next load
        diagnosis()


def test_a_device_without_memory_is_no_verdict(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels would be called wrong, and stay off for good."""
    monkeypatch.setattr(GpuLinear, "normed", Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory")))
    with pytest.raises(torch.OutOfMemoryError):
        diagnosis()


# Both


def test_a_trial_that_nobody_waits_for_is_over_before_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be captured it would go on computing on the GPU, and be in the times of the first race."""
    monkeypatch.setattr(kernel_trial, "COMMAND", (sys.executable, "-S", "-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(preparing, "_check_graph", Mock(side_effect=RaceError("nothing can be captured")))
    model = fresh("qwen3", torch.bfloat16)
    with fake_cuda(tries=True):
        kernel_trial.begin(model.config, torch.bfloat16, CUDA)
        (trial,) = kernel_trial._begun.values()
        with pytest.raises(RaceError, match="nothing can be captured"):
            preparing.prepare(on_cuda(model))
    assert trial._process.returncode is not None and not kernel_trial._begun


def test_a_load_tries_the_kernels_once_and_says_why_they_stay_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process would try another model than the loaded one, lose its words, or do again what had begun."""
    model, started = fresh("qwen3", torch.bfloat16), Mock(side_effect=subprocess.Popen)
    monkeypatch.setattr(kernel_trial.subprocess, "Popen", started)
    monkeypatch.setattr(kernel_trial, "COMMAND", (sys.executable, "-m", "tests.kernels.cuda.test_trial"))
    texts: list[str] = []
    for is_first in (True, False):
        with fake_cuda(tries=True):
            texts.clear()
            kernel_trial.begin(model.config, torch.bfloat16, CUDA)
            assert started.call_count == 1
            made = preparing.prepare(on_cuda(copy.deepcopy(model)), progress=lambda text, share: texts.append(text))
        says = "linears: 13 torch; attention: torch's, over the whole cache; no Triton decoder: it is wrong here"
        assert made.kernels.runs(made.model).endswith(says)
        assert is_first == any("once for this machine" in text for text in texts)
    assert started.call_count == 1


if __name__ == "__main__":  # the other process, where the kernels are wrong
    with pytest.MonkeyPatch.context() as patch, fake_cuda():
        on_the_stand_in(patch)
        wrong = UnsupportedModel("it is wrong here")
        patch.setitem(trial_process.CHECKS, "steps, deep in the cache", Mock(side_effect=wrong))
        patch.setattr(graphs, "WARM_UPS", 1)
        sys.exit(trial_process.main())
