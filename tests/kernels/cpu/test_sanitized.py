"""The compiled kernels under the address and undefined-behaviour sanitizers, and without a compiler's warning.

    python -m tests.kernels.cpu.test_sanitized

uses them at odd shapes and in races, in a process whose kernels a compiler instruments."""

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.core.spec import SamplingParams, lanes_of
from engine.exactness import operators
from engine.kernels.cpu import build
from engine.kernels.cpu.attention import attend
from engine.kernels.cpu.bytes import ByteLinear
from engine.kernels.cpu.choose_token import Chooser
from engine.kernels.cpu.linear import NativeLinear
from engine.kernels.cpu.picks import NativePicks
from tests.helpers import ROOT
from tests.helpers.fakes import Empty, tokens_of
from tests.helpers.native_kernels import WITHOUT, linear_of, needs_byte_kernels, prepared, random
from tests.helpers.tiny import WINDOW, lane, random_ids, threads
from tests.helpers.trained import race_of, text_of
from tests.helpers.tree_drafts import TreeDrafter

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
    done = run(instrumented, "-m", "tests.kernels.cpu.test_sanitized")
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


# In the process whose kernels are instrumented

# Drafters and how much they draft.
DRAFTERS = {"ngram": 2, "synthetic": 3, "draft_model": 5, "eagle3": "tree:31", "dflash": 1, "hybrid": "tree:7"}
ROWS = (0, 1, 2, 3, 5, 13, 31)  # in a step: none, fewer than a vector or a tile, more than one


def odd_linears() -> None:
    """Inputs and outputs that fill no vector and no block; rows of infinities, whose sums are no integers."""
    for k, num in itertools.product((2, 6, 30, 62), (1, 3, 31, 33)):
        for rows in ROWS:
            NativeLinear(linear_of(num, k, bias=num % 2 == 1))(random(rows, k))
    for k, act in itertools.product((16, 48, 80, 144), (None, 0, 1)):
        plain = linear_of(33 if act is None else 64, k, bias=True)
        plain.weight[0], plain.weight[1, -1] = torch.inf, torch.nan
        for rows in ROWS:
            x = random(rows, k)
            for row, number in zip(x, (torch.inf, -torch.inf, torch.nan, 3e38), strict=False):
                row[: k // 2] = number
            ByteLinear(plain, act)(x)


def odd_attention() -> None:
    """Windows smaller than the step, and a cache that ends with it; groups of heads of which some go alone."""
    heads = ((1, 1), (3, 1), (3, 3), (10, 2))
    for (num_heads, kv), dim, rows, window in itertools.product(heads, (32, 96), ROWS, (None, 1, 3, 17)):
        for at in (0, 19):
            sides = [random(1, kv, at + rows, dim, seed=i) for i in (1, 2)]
            for sinks in (None, random(num_heads)):
                attend(random(rows, num_heads, dim), *sides, torch.tensor([at]), window, 0.1, sinks)


def odd_rows_of_logits() -> None:
    """Vocabularies that fill no vector, and rows with nothing but infinities or NaN."""
    for num, temperature in itertools.product((1, 2, 5, 31, 33, 511, 1025), (0.0, 0.8)):
        tokens = torch.arange(num, dtype=torch.int32)
        for ids, number in itertools.product((tokens, tokens.flip(0).contiguous()), (0.0, torch.inf, torch.nan)):
            rows = random(3, num, spread=3.0)
            rows[2, num // 2 :] = number
            Chooser(ids, temperature, 5, 40.0, 3.0)(rows, [0, 0], 7)
            NativePicks(ids.numpy(), temperature, 5)(rows[:2].clone(), [1, 2], min(3, num))


def chains_and_trees() -> None:
    """Steps of whole models: widths that fill no tile, windows that end within a draft, trees."""
    for name in ("gemma3", "qwen2", "mistral"):
        model, params = prepared(name), SamplingParams(0.8, seed=1, max_new_tokens=WINDOW + 8)
        prompt = random_ids(WINDOW // 2, model.vocab_size)
        for num_threads, widths in ((1, (1, 2, 3, 5, 31)), (2, (3, 31))):
            with threads(num_threads):
                text = tokens_of(lane(model, Empty(), prompt, widths[:1], params))
                tree = TreeDrafter(text, 1, model.vocab_size)
                assert tokens_of(lane(model, tree, prompt, widths, params, k=30)) == text, name


def races() -> None:
    """All drafters in one race, as the page runs it."""
    lanes = lanes_of((name, text_of(name), k) for name, k in DRAFTERS.items())
    race = race_of(lanes, dtype="bfloat16", audit=True, temperature=0.8, seed=3, max_new_tokens=24)
    list(race.events())
    for name, verdict in race.result()["verdicts"].items():
        assert verdict["kind"] == "identical_bits", (name, verdict["sentence"])


if __name__ == "__main__":
    build.library()  # raises what is wrong with it
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(operators, "LINEAR_ROWS", (16, 16))
        patch.setattr(operators, "ATTENTION_ROUNDS", (1, 1))
        for part in (odd_linears, odd_attention, odd_rows_of_logits, chains_and_trees, races):
            part()
            print(part.__name__, "ran", flush=True)
