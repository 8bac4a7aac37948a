"""How the kernels come to be: compiled once, found again, or done without, with a reason."""

import copy
import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.hardware import environment
from engine.kernels.choose import choose
from engine.kernels.cpu import build
from engine.recordings.check import check
from engine.recordings.compare import compare
from engine.recordings.recording import Recording
from tests.helpers import ROOT, full_disk, races
from tests.helpers.native_kernels import needs_kernels
from tests.helpers.pageserver import Page
from tests.helpers.tiny import PACKED, TRAINED

CC = shutil.which("cc") or shutil.which("gcc")
needs_a_compiler = pytest.mark.skipif(CC is None, reason="there is no C compiler here")
SOURCE = "int answer(void) { return 42; }\n"
BEST, OLDER = (frozenset(needed) for needed in build.NEEDED.values())
FAILS = "echo 'internal compiler error' >&2; exit 1"
DAMAGES = "while [ $# -gt 1 ]; do [ $1 = -o ] && echo damaged > $2; shift; done"


@pytest.fixture
def folder(monkeypatch, tmp_path: Path) -> Path:
    """A cache of one's own, one small source, and a processor that will do."""
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "answer.c").write_text(SOURCE)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(build, "FOLDER", tmp_path / "sources")
    monkeypatch.setattr(build, "processor_flags", lambda: BEST)
    monkeypatch.setenv("PHOTOFINISH_CACHE", str(tmp_path / "cache"))
    for name in (build.OFF, "CC", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def script(folder: Path, text: str) -> str:
    """A compiler that answers --version, and otherwise does what `text` says."""
    path = folder / "a compiler"
    path.write_text(
        '#!/bin/sh\ncase "$*" in *--version) echo "a compiler 1.0"; exit 0;; esac\necho "$*" >> '
        f"{folder}/calls\n{text}\n"
    )
    path.chmod(0o755)
    return f"'{path}'"


def num_calls(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines()) if (folder / "calls").exists() else 0


def lookup() -> tuple[object, str] | str:
    """What a new process would find."""
    return build._found.__wrapped__()


# Without them


def homeless(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.delenv("PHOTOFINISH_CACHE")
    patch.setenv("HOME", "nowhere")


def hanging(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("CC", script(folder, "exec sleep 20"))
    patch.setattr(build, "COMPILE_S", 0.3)


WITHOUT: dict[str, tuple[Callable[[Path, pytest.MonkeyPatch], object], str]] = {
    "no such compiler": (lambda folder, patch: patch.setenv("CC", str(folder / "nothing")), "does not run"),
    "no compiler": (lambda folder, patch: patch.setenv("PATH", str(folder)), "no C compiler"),
    "fails": (lambda folder, patch: patch.setenv("CC", script(folder, FAILS)), "failed"),
    "hangs": (hanging, "took more than 0 s"),
    "does nothing": (lambda folder, patch: patch.setenv("CC", "sh -c :"), "cannot be kept or loaded"),
    "no cache": (
        lambda folder, patch: patch.setenv("PHOTOFINISH_CACHE", str(folder / "file" / "cache")),
        "cannot be kept or loaded",
    ),
    "no home": (homeless, "no home folder"),
    "damaged": (lambda folder, patch: patch.setenv("CC", script(folder, DAMAGES)), "cannot be kept or loaded"),
    "off": (lambda folder, patch: patch.setenv(build.OFF, "0"), f"switched off by {build.OFF}=0"),
    "another processor": (
        lambda folder, patch: patch.setattr(build, "processor_flags", lambda: (BEST | OLDER) - {"avx512bw", "fma"}),
        "neither AVX-512 (without avx512bw) nor AVX2 and FMA (without fma)",
    ),
    "another machine": (
        lambda folder, patch: patch.setattr("platform.machine", lambda: "aarch64"),
        "the processor is aarch64, not an x86 with AVX-512 or AVX2 and FMA",
    ),
}
CHOSEN = ("off", "another processor", "another machine")  # Chosen, or not to be changed: nothing to warn of


@pytest.mark.parametrize("state", WITHOUT)
def test_without_kernels_there_is_a_reason(state, folder, monkeypatch, caplog):
    """A missing compiler would end the program; or the log not say why it is slow, where something can be done."""
    caplog.set_level(logging.INFO, build.__name__)
    if state in ("no cache", "no home"):
        monkeypatch.setenv("CC", script(folder, "exit 1"))
    prepare, says = WITHOUT[state]
    prepare(folder, monkeypatch)
    why = lookup()
    assert isinstance(why, str) and says in why
    logged = [record for record in caplog.records if "steps run on torch's kernels" in record.message]
    assert len(logged) == 1 and why in logged[0].message and not logged[0].exc_info
    assert logged[0].levelno == (logging.INFO if state in CHOSEN else logging.WARNING)
    assert state != "fails" or "internal compiler error" in caplog.text


@needs_a_compiler
@pytest.mark.parametrize("flags", [BEST, OLDER], ids=["AVX-512", "AVX2"])
def test_one_instruction_set_is_enough(flags, folder, monkeypatch):
    """Most laptops have AVX2 only, and some AVX-512 is not whole: both would run torch's kernels."""
    monkeypatch.setattr(build, "processor_flags", lambda: flags | {"avx512f"})
    assert build.reason_against_processor() == "" and not isinstance(lookup(), str)


def test_a_race_runs_with_a_compiler_that_fails(folder):
    """The first thing that a visitor without a working compiler sees would be a traceback."""
    more = {"CC": script(folder, FAILS), "PHOTOFINISH_CACHE": str(folder / "cache")}
    race = ["race", "--target", str(TRAINED), "--prompt", "def f(", "--max-new-tokens", "8", "--audit"]
    log = folder / "log"
    done = Page([*race, "--save", str(folder / "race.json")], {**os.environ, **more}, str(log), "engine")
    assert done.wait(120) == 0 and "Traceback" not in log.read_text(), log.read_text()
    assert log.read_text().count("steps run on torch's kernels") == 1
    recording = json.loads((folder / "race.json").read_text())
    assert "kernels" not in recording["versions"] and "FusedDecoder" in recording["runs"]["sentence"]
    assert recording["verdicts"]["speculative"]["kind"] == "identical_bits"


# Compiled once


@needs_a_compiler
def test_what_was_compiled_is_found_again(folder, monkeypatch):
    """Every start would take as long as the first; or run what another source, flag or processor gave."""
    monkeypatch.setenv("CC", script(folder, f'exec {CC} "$@"'))
    library, description = lookup()
    assert library.answer() == 42 and "a compiler 1.0" in description
    calls = num_calls(folder)
    assert lookup()[1] == description and num_calls(folder) == calls == 2
    (build.FOLDER / "answer.c").write_text(SOURCE.replace("42", "43"))
    assert lookup()[0].answer() == 43 and num_calls(folder) == calls + 2
    (build.FOLDER / "more.h").write_text("/* included, perhaps */")
    assert lookup()[1] != description and num_calls(folder) == calls + 4
    monkeypatch.setenv("CC", f"{os.environ['CC']} -DANYTHING")
    assert lookup()[0].answer() == 43 and num_calls(folder) == calls + 6
    monkeypatch.setattr(build, "processor_flags", lambda: BEST | {"avx1024"})
    lookup()
    assert num_calls(folder) == calls + 8
    kept = sorted((folder / "cache" / "native").iterdir())
    assert len(kept) == 5 and all(path.suffix == ".so" for path in kept)


def of_another_key(path: Path) -> bytes:
    """Whole, and of other sources: it knows another answer."""
    source = build.FOLDER / "answer.c"
    source.write_text(SOURCE.replace("42", "6"))
    other, _ = build._kept([CC])
    source.write_text(SOURCE)
    return other.read_bytes()


DAMAGE: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda path: b"",
    "half": lambda path: path.read_bytes()[: path.stat().st_size // 2],
    "noise": lambda path: random.Random(1).randbytes(path.stat().st_size),
    "a byte short": lambda path: path.read_bytes()[:-1],
    "of another key": of_another_key,
}
LOAD = """
import sys, types
from pathlib import Path
sys.modules["torch"] = types.ModuleType("torch")  # what is loaded here has no threads
from engine.kernels.cpu import build
build.FOLDER = Path(sys.argv[1])
build.processor_flags = lambda: frozenset().union(*build.NEEDED.values())
print(build.library().answer())
"""


@needs_a_compiler
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_library_is_compiled_again(damage, folder, monkeypatch):
    """Every start would die of SIGBUS, without a word; or run torch's kernels for ever; or another version's."""
    monkeypatch.setattr(build, "processor_flags", lambda: BEST | OLDER)
    path, _ = build._kept([CC])
    path.write_bytes(DAMAGE[damage](path))
    monkeypatch.setenv("CC", CC)
    command = [sys.executable, "-c", LOAD, str(build.FOLDER)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert done.stderr.count("is compiled again") == 1
    assert build._is_whole(path, build._key([CC])[0])


@needs_a_compiler
def test_a_full_disk_is_no_end_of_kernels(folder):
    """The library would be written in half, and end the next process that loads it; or never be compiled again."""
    with full_disk(2000):
        assert isinstance(lookup(), str)
    assert lookup()[0].answer() == 42
    assert [file.suffix for file in (folder / "cache" / "native").iterdir()] == [".so"]


@needs_a_compiler
def test_two_processes_compile_at_once(folder, monkeypatch):
    """One would load half of the other's file."""
    monkeypatch.setenv("CC", script(folder, f'sleep 0.5; exec {CC} "$@"'))
    command = [sys.executable, "-c", LOAD, str(build.FOLDER)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0] for process in running] == ["42\n", "42\n"]
    assert num_calls(folder) == 4 and len(list((folder / "cache" / "native").iterdir())) == 1


@needs_kernels
def test_there_is_one_library_of_threads():
    """Two of them would each keep threads that spin while the other's work, on the same cores."""
    build.library()
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert len({line.split()[-1] for line in maps if re.search(r"/lib(gomp|omp|iomp5)\b[^/]*$", line)}) == 1


def test_records_and_readers_know_the_kernels():
    """Nobody would see that other bits come from other kernels; a recording made without any must stay readable."""
    versions = environment.versions(PACKED.describe())
    assert versions.get("kernels", "") == build.description() and ("kernels" in versions) == build.has_kernels()
    assert choose(torch.device("cpu")).best_dtype() == "bfloat16" or not build.has_kernels()
    before, here = races.fixed_race(), races.fixed_race()
    here["versions"]["kernels"] = "12345678, a compiler 1.0"
    for recording in (before, here):
        check(copy.deepcopy(recording))
    difference = "kernels: None there, 12345678, a compiler 1.0 here"
    assert compare(Recording.of(before), Recording.of(here))["differences"] == [difference]
