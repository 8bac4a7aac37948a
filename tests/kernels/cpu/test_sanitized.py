"""The compiled kernels under the address and undefined-behaviour sanitizers, and without a compiler's warning."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.kernels.cpu import build
from tests.helpers import ROOT
from tests.helpers.native_kernels import WITHOUT, needs_byte_kernels

WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Wundef", "-Wdouble-promotion", "-Wstrict-prototypes", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-sanitize=null,pointer-overflow")
SANITIZERS += ("-fno-sanitize=object-size,alignment", "-O1", "-g1", "-fno-omit-frame-pointer")
# What is left out doubles the time that compiling takes, and finds little that the address sanitizer does not. Its
# checks as calls rather than inline take half the time to compile, and these runs are short.
SANITIZERS += ("--param=asan-instrumentation-with-call-threshold=0",)
CC = shutil.which("gcc")
LIMIT_S = 300

pytestmark = [needs_byte_kernels, pytest.mark.skipif(CC is None, reason="there is no gcc here")]


@pytest.fixture(scope="module")
def instrumented(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process whose kernels a compiler instruments, taking warnings for errors."""
    folder = tmp_path_factory.mktemp("sanitized")
    libraries = [
        subprocess.run([str(CC), f"-print-file-name={name}.so"], capture_output=True, text=True, check=True).stdout
        for name in ("libasan", "libubsan")
    ]
    if not all(Path(library.strip()).is_absolute() for library in libraries):
        pytest.skip("this gcc has no sanitizers")
    compiler = folder / "cc"
    preload = 'case "$*" in *-shared*|*-c*) unset LD_PRELOAD;; esac'  # the compiler itself is not under test
    compiler.write_text(f'#!/bin/sh\n{preload}\nexec {CC} "$@" {" ".join((*WARNINGS, *SANITIZERS))}\n')
    compiler.chmod(0o755)
    return {
        **os.environ,
        "CC": str(compiler),
        "PHOTOFINISH_CACHE": str(folder / "cache"),
        "LD_PRELOAD": ":".join(library.strip() for library in libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's and torch's own
        "OMP_NUM_THREADS": "1",
    }


PICKS_OF_FIVE = """
import sys, torch, pathlib
from engine.kernels.cpu import build, picks
build.FOLDER = pathlib.Path(sys.argv[1])
picks.NativePicks(torch.arange(5, dtype=torch.int32).numpy(), 0.8, 1)(torch.zeros(1, 5).bfloat16(), [3], 1)
"""


def run(instrumented: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=instrumented, capture_output=True, text=True, timeout=LIMIT_S)


def test_odd_shapes_and_races_are_silent(instrumented):
    """A read beyond a row's end would give other bits on another day, or end a visitor's page."""
    done = run(instrumented, "-m", "tests.helpers.sanitized")
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split("\n")[-2] == "races ran" and "runtime error" not in done.stderr


def test_a_planted_read_beyond_the_end_is_reported(instrumented, tmp_path):
    """The test above would be silent, whatever the kernels do."""
    for name in ("vectors.h", "avx512.h", "hash.h", "picks.c"):
        shutil.copy(build.FOLDER / name, tmp_path)
    source = (tmp_path / "picks.c").read_text()
    assert source.count("return left >= LANES ? widen(row)") == 1
    (tmp_path / "picks.c").write_text(source.replace("return left >= LANES ? widen", "return left >= 0 ? widen"))
    done = run(instrumented, "-c", PICKS_OF_FIVE, str(tmp_path))
    assert done.returncode and "heap-buffer-overflow" in done.stderr and "picks.c" in done.stderr, done.stderr[-4000:]


def test_other_processors_kernels_compile_without_a_warning():
    """A warning is often a fault, and a user's compiler prints it into the log."""
    for flags, patterns in WITHOUT.values():
        for source in (path for pattern in patterns for path in build.FOLDER.glob(pattern) if path.suffix == ".c"):
            command = [str(CC), *build.FLAGS, *WARNINGS, *flags, "-fsyntax-only", str(source)]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
