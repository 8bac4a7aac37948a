"""How the kernels come to be: compiled once, found again, or done without, with a reason."""

from __future__ import annotations

import copy
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from engine.cli.verify import compare
from engine.kernels.choose import choose
from engine.kernels.cpu import build, decoder, linear
from engine.kernels.cpu.build import NoKernels
from engine.kernels.cpu.packing import PackedLinear, onednn_packs, pack
from engine.measure import environment
from engine.recordings.check import check
from tests.helpers import ROOT, races
from tests.helpers.native_kernels import needs_kernels
from tests.helpers.tiny import PACKED, TRAINED

CC = shutil.which("cc") or shutil.which("gcc")
needs_a_compiler = pytest.mark.skipif(CC is None, reason="there is no C compiler here")
SOURCE = "int answer(void) { return 42; }\n"
BEST, OLDER = (frozenset(needed) for needed in build.NEEDED.values())


@pytest.fixture
def folder(monkeypatch, tmp_path: Path) -> Path:
    """A cache of one's own, one small source, and a processor that will do."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "answer.c").write_text(SOURCE)
    monkeypatch.setattr(build, "FOLDER", sources)
    monkeypatch.setattr(build, "processor_flags", lambda: BEST)
    monkeypatch.setenv("PHOTOFINISH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(build.OFF, raising=False)
    monkeypatch.delenv("CC", raising=False)
    return tmp_path


def script(folder: Path, text: str) -> str:
    """A compiler that tells its version, and otherwise does what `text` says."""
    path = folder / "a compiler"
    path.write_text(
        '#!/bin/sh\ncase "$*" in *--version) echo "a compiler 1.0"; exit 0;; esac\necho "$*" >> '
        f"{folder}/calls\n{text}\n"
    )
    path.chmod(0o755)
    return f"'{path}'"


def num_calls(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines()) if (folder / "calls").exists() else 0


def found() -> tuple[object, str] | str:
    """What a new process would find."""
    return build._found.__wrapped__()


# Without them


def absent(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", str(folder / "nothing"))


def none(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("PATH", str(folder))


def failing(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", script(folder, "echo 'internal compiler error' >&2; exit 1"))


def hanging(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", script(folder, "exec sleep 20"))
    patch.setattr(build, "COMPILE_S", 0.3)


def idle(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", "sh -c :")


def unwritable(folder: Path, patch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("")
    patch.setenv("CC", script(folder, "exit 1"))
    patch.setenv("PHOTOFINISH_CACHE", str(folder / "file" / "cache"))


def homeless(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", script(folder, "exit 1"))
    patch.delenv("PHOTOFINISH_CACHE")
    patch.delenv("XDG_CACHE_HOME", raising=False)
    patch.setenv("HOME", "nowhere")


def damaged(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", script(folder, "while [ $# -gt 1 ]; do [ $1 = -o ] && echo damaged > $2; shift; done"))


def off(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv(build.OFF, "0")


def another_processor(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build, "processor_flags", lambda: (BEST | OLDER) - {"avx512bw", "fma"})


def another_machine(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("platform.machine", lambda: "aarch64")


WITHOUT: dict[Callable, str] = {
    absent: "does not run",
    none: "no C compiler",
    failing: "failed",
    hanging: "took more than 0 s",
    idle: "cannot be kept or loaded",
    unwritable: "cannot be kept or loaded",
    homeless: "no home folder",
    damaged: "cannot be kept or loaded",
    off: f"switched off by {build.OFF}=0",
    another_processor: "neither AVX-512 (without avx512bw) nor AVX2 and FMA (without fma)",
    another_machine: "the processor is aarch64, not an x86 with AVX-512 or AVX2 and FMA",
}


@pytest.mark.parametrize("state", WITHOUT, ids=lambda state: state.__name__)
def test_without_kernels_there_is_a_reason(state, folder, monkeypatch, caplog):
    """A missing compiler would end the program; or nobody know why it is slow."""
    caplog.set_level(logging.INFO, build.__name__)
    state(folder, monkeypatch)
    why = found()
    assert isinstance(why, str) and WITHOUT[state] in why
    said = [record for record in caplog.records if "steps run on torch's kernels" in record.message]
    assert len(said) == 1 and why in said[0].message and not said[0].exc_info
    if state is failing:
        assert "internal compiler error" in caplog.text


@needs_a_compiler
@pytest.mark.parametrize("flags", [BEST, OLDER], ids=["AVX-512", "AVX2"])
def test_one_instruction_set_is_enough(flags, folder, monkeypatch):
    """Most laptops have AVX2 only, and some AVX-512 is not whole: both would run torch's kernels."""
    monkeypatch.setattr(build, "processor_flags", lambda: flags | {"avx512f"})
    assert build.reason_against_processor() == "" and not isinstance(found(), str)


def test_without_kernels_models_are_packed_as_before(monkeypatch):
    """Where kernels are missing, half of a model would be without its linears."""

    def none() -> None:
        raise NoKernels("there are none")

    for module in (linear, decoder):
        monkeypatch.setattr(module, "library", none)
    model = nn.ModuleDict({"a": nn.Linear(8, 8, dtype=torch.bfloat16)}).requires_grad_(False)
    assert linear.reason_against(model["a"]) == "there are none"
    packs = onednn_packs(torch.bfloat16)
    assert pack(model) == packs and type(model["a"]) is (PackedLinear if packs else nn.Linear)


STEP = """
import json, logging, sys
import torch
logging.basicConfig(level=logging.INFO)
from engine.kernels.choose import choose
from engine.models.loading import load
from engine.kernels.cpu import build
from engine.target.target import StaticTarget
prepared = load(sys.argv[1], "bfloat16", "cpu").prepared
target = StaticTarget(prepared, 256, (1, 4))
target.extend([1, 2, 3], 0)
logits, _ = target.extend([4, 5], 2)
known = bool(prepared.kernels.describe(prepared.model))
found = [type(prepared.model.get_decoder()).__name__, bool(logits.isfinite().all()), build.description(), known]
print(json.dumps([*found, choose(torch.device("cpu")).best_dtype()]))
"""


@pytest.mark.slow
def test_the_engine_runs_with_a_compiler_that_fails(folder):
    """The whole engine, in a process of its own: the first thing that a visitor without a working compiler sees."""
    if not (build.has_kernels() or onednn_packs(torch.bfloat16)):
        pytest.skip("bfloat16 linears are not to be had here")
    more = {
        "CC": script(folder, "echo 'internal compiler error' >&2; exit 1"),
        "PHOTOFINISH_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", STEP, str(TRAINED)],
        cwd=ROOT,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    kind, finite, description, recorded, dtype = json.loads(done.stdout)
    assert (kind, finite, description, recorded) == ("FusedDecoder", True, "", False) and dtype in (
        "bfloat16",
        "float32",
    )
    assert done.stderr.count("steps run on torch's kernels") == 1 and "Traceback" not in done.stderr


# Compiled once


@needs_a_compiler
def test_what_was_compiled_is_found_again(folder, monkeypatch):
    """Every start would take as long as the first; or run what another source, another flag or another
    processor gave."""
    monkeypatch.setenv("CC", script(folder, f'exec {CC} "$@"'))
    library, description = found()
    assert library.answer() == 42 and "a compiler 1.0" in description
    calls = num_calls(folder)
    assert found()[1] == description and num_calls(folder) == calls == 2
    (build.FOLDER / "answer.c").write_text(SOURCE.replace("42", "43"))
    assert found()[0].answer() == 43 and num_calls(folder) == calls + 2
    (build.FOLDER / "more.h").write_text("/* included, perhaps */")
    assert found()[1] != description and num_calls(folder) == calls + 4
    monkeypatch.setenv("CC", f"{os.environ['CC']} -DANYTHING")
    assert found()[0].answer() == 43 and num_calls(folder) == calls + 6
    monkeypatch.setattr(build, "processor_flags", lambda: BEST | {"avx1024"})
    found()
    assert num_calls(folder) == calls + 8
    kept = sorted((folder / "cache" / "native").iterdir())
    assert len(kept) == 5 and all(path.suffix == ".so" for path in kept)


COMPILE = """
import sys
from pathlib import Path
from engine.kernels.cpu import build
build.FOLDER = Path(sys.argv[1])
build._compile([sys.argv[2]], Path(sys.argv[3]))
assert "torch" not in sys.modules
import ctypes
print(ctypes.CDLL(sys.argv[3]).answer())
"""


@needs_a_compiler
def test_two_processes_compile_at_once(folder):
    """One would load half of the other's file."""
    compiler = script(folder, f'sleep 0.2; exec {CC} "$@"').strip("'")
    path = folder / "cache" / "native" / "kernels.so"
    command = [sys.executable, "-c", COMPILE, str(build.FOLDER), compiler, str(path)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in running] == ["42\n", "42\n"]
    assert num_calls(folder) == 4 and list(path.parent.iterdir()) == [path]


@needs_kernels
def test_there_is_one_library_of_threads():
    """Two of them would each keep threads that spin while the other's work, on the same cores."""
    build.library()
    mapped = {
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if re.search(r"/lib(gomp|omp|iomp5)\b[^/]*$", line)
    }
    assert len(mapped) == 1


# What is recorded of them


def test_records_and_readers_know_the_kernels():
    """Who gets other bits wants to know that the kernels were others; a recording from before there were any is still
    one."""
    has_kernels, versions = build.has_kernels(), environment.versions(PACKED.describe())
    assert versions.get("kernels", "") == build.description() and ("kernels" in versions) == has_kernels
    assert choose(torch.device("cpu")).best_dtype() == "bfloat16" or not build.has_kernels()
    before, here = races.fixed_race(), races.fixed_race()
    here["versions"]["kernels"] = "12345678, a compiler 1.0"
    for recording in (before, here):
        assert check(copy.deepcopy(recording)) == recording
    assert compare(before, here)["differences"] == ["kernels: None there, 12345678, a compiler 1.0 here"]
