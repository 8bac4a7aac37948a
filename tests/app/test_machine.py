"""What the page detects of this machine, with a stand-in for nvidia-smi, and who can reach the page."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.catalogue.catalogue import load
from app.catalogue.machine import CACHES, NO_ZERO_GPU, NOTES, Machine, enter_space
from app.page.sentences import refused, safe
from engine.cache import cache_dir
from engine.kernels.usable import GPU_TOOL, may_have_gpu
from engine.loading.sources import DEFAULT_TARGET
from engine.session.threads import leave_a_core
from tests.helpers import ROOT


@pytest.mark.parametrize("hidden", [None, "", "-1"])
def test_a_gpu_is_suspected_and_not_asked(hidden: str | None, monkeypatch, tmp_path: Path) -> None:
    """With a broken driver nvidia-smi hangs, and its answer is not what torch can use: it is not run. Whoever hides the
    GPU from this program must not wait for torch, and not load a model onto it."""
    tool = tmp_path / GPU_TOOL
    tool.write_text("#!/bin/sh\nexec sleep 30\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    started = time.monotonic()
    assert may_have_gpu() == (hidden is None)
    assert time.monotonic() - started < 1
    offers = load(Machine(hidden is None)).offers
    assert all(offer.reason for offer in offers if offer.pair.target != DEFAULT_TARGET)


ON_WINDOWS = (
    "import app.jobs.server_races, runpy, sys; sys.platform = 'win32'; sys.argv = ['app.py']; "
    "runpy.run_path('app.py', run_name='__main__')"
)


@pytest.mark.parametrize(
    ("arguments", "zero_gpu", "says"), [(["app.py"], "true", NO_ZERO_GPU), (["-c", ON_WINDOWS], "", NOTES["win32"])]
)
def test_where_the_page_cannot_run_it_says_so(arguments: list[str], zero_gpu: str, says: str) -> None:
    """Hugging Face ends a Space that lends its GPU for single calls with "No @spaces.GPU function detected", and its
    owner looks for a fault here; on Windows it would come up and fail at its first race, with a traceback."""
    command, environment = [sys.executable, *arguments], {**os.environ, "SPACES_ZERO_GPU": zero_gpu}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"app.py: {says}\n")


def test_a_space_keeps_its_caches_in_its_storage(tmp_path, monkeypatch) -> None:
    """Every restart of a Space would download its models and compile its kernels again; or a page on somebody's own
    machine would write to a /data that is for something else; or the owner's own choice would be ignored."""
    for name in (*CACHES, "SPACE_ID", "SPACES_ZERO_GPU"):
        monkeypatch.setenv(name, "")  # so that what is set below is undone
        monkeypatch.delenv(name)
    enter_space(tmp_path)
    monkeypatch.setenv("SPACE_ID", "owner/name")
    enter_space(tmp_path / "missing")
    assert not set(CACHES) & set(os.environ)
    monkeypatch.setenv("HF_HOME", "/elsewhere")
    enter_space(tmp_path)
    assert cache_dir() == tmp_path / "photofinish" and os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "triton")
    assert os.environ["HF_HOME"] == "/elsewhere"


def test_a_space_and_a_container_have_the_same_caches() -> None:
    """A cache that the Dockerfile gains would be left in a Space's container, and lost at each restart."""
    line = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("ENV HF_HOME="))
    assert [f"{name}=/data/{folder}" for name, folder in CACHES.items()] == line.split()[1:4]


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_another_system_is_named_on_the_page(system, monkeypatch) -> None:
    """Who runs it on a Mac would take its figures for the Mac's best; on Windows the default model cannot be made."""
    monkeypatch.setattr("sys.platform", system)
    catalogue = load(Machine())
    assert catalogue.note == NOTES[system] and safe(catalogue.note) in refused(catalogue.offers, catalogue.note)


def test_what_is_not_on_offer_is_said_once_for_each_model() -> None:
    """Settings would repeat a reason for every drafter of a model, or refuse a model that is on offer with another."""
    catalogue = load(Machine())
    rows = refused(catalogue.offers).split("<li>")[1:]
    left = {offer.pair.target for offer in catalogue.offers} - {pair.target for pair in catalogue.runnable}
    assert len(rows) == len(set(rows)) == len(left) > 5
    assert all(row.count("<strong>") == 1 and "button" not in row and ".</li>" in row for row in rows)


@pytest.mark.parametrize(("cores", "num", "left"), [(8, 64, 7), (8, 2, 2), (2, 2, 1), (1, 1, 1), (None, 4, 1)])
def test_a_core_is_left_to_the_browser(cores, num, left, monkeypatch) -> None:
    """With a thread on every core each step waits for the browser; with no thread left nothing runs."""
    chosen: list[int] = []
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr("torch.get_num_threads", lambda: num)
    monkeypatch.setattr("torch.set_num_threads", chosen.append)
    leave_a_core()
    assert chosen == [left]
