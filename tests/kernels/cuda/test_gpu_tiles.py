"""Tiles decide bits: they come from a table or from shape and chip alone, never from a clock; and recordings tell
which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from engine.cache import ENVIRONMENT_VARIABLE
from engine.kernels.cuda import table
from engine.kernels.cuda.available import SWITCH, description
from engine.kernels.cuda.install import configurations, put_kernels
from engine.kernels.cuda.kernels import CudaKernels, TritonKernels
from engine.kernels.cuda.table import VARIABLE
from engine.kernels.cuda.tiles import H100, Chip, Config, candidates, default
from tests.helpers import fake_cuda as fake
from tests.helpers import gpu_kernels  # noqa: F401  it switches the interpreter on
from tests.helpers.fake_cuda import CUDA, fake_cuda, on_cuda

CHIP = {"chip": "a pretended GPU", "capability": [9, 0], "num_sms": 132}
"""The one of fake_cuda.py."""
SHAPES = [(96, 32, True), (64, 32, False)]
"""Outputs, inputs, bias."""


@pytest.fixture(autouse=True)
def no_table_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def model() -> nn.Module:
    """Two linears; it has to be put on the device."""
    return nn.Sequential(*(nn.Linear(k, n, bias, dtype=torch.bfloat16) for n, k, bias in SHAPES))


def loaded() -> nn.Module:
    """The same on the pretended device, with kernels."""
    made = on_cuda(model())
    put_kernels(made)
    return made


def entry(shape: tuple[int, int, bool], config: Any, **other: Any) -> dict[str, Any]:
    n, k, bias = shape
    return {**CHIP, "dtype": "bfloat16", "n": n, "k": k, "gated": False, "bias": bias, "config": config} | other


def second(shape: tuple[int, int, bool]) -> Config:
    """Tiles that are not the default ones."""
    return candidates(shape[0], shape[1], False)[1]


def defaults() -> list[Config]:
    return [default(n, k, False) for n, k, _ in SHAPES]


def configs(made: nn.Module) -> list[Config]:
    return [linear.config for linear in made.children()]  # type: ignore[misc]


@pytest.fixture(params=["named", "shipped"])
def write(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Writes the table that is read: a named file, or the one that ships."""
    file = tmp_path / "tiles.json"

    def write(entries: Any) -> None:
        file.write_text(entries if isinstance(entries, str) else json.dumps(entries))

    if request.param == "named":
        monkeypatch.setenv(VARIABLE, str(file))
    else:
        monkeypatch.setattr(table, "SHIPPED", file)
    return write


def test_no_clock_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Timing at load takes the fastest of near equals, and another one after the next restart: a recording would not
    verify."""
    found = set()
    for start, slope in enumerate((1.0, -1.0, 1.0)):
        times = iter(range(10_000))
        monkeypatch.setattr(
            fake.Event, "elapsed_time", lambda self, end, slope=slope, times=times: 1e4 + slope * next(times)
        )
        monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path / str(start)))
        with fake_cuda() as device:
            made = loaded()
            found.add(tuple(configurations(made)))
            assert configs(made) == defaults()
            assert not device.graphs and not device.launched and next(times) == 0, "something was timed"
    assert len(found) == 1 and not any(tmp_path.iterdir())


def made_anew() -> str:
    """What a process with these kernels on the CPU gets: what it says of them, their tiles, and rows."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = model()
    put_kernels(made)
    with torch.inference_mode():
        rows = [linear(torch.linspace(-1, 1, 3 * 32).reshape(3, 32).bfloat16()).tolist() for linear in made.children()]
    about = TritonKernels(torch.device("cpu"), torch.bfloat16, against="").describe(made)
    return json.dumps([about, configurations(made), rows])


@pytest.mark.slow
def test_a_restart_gives_the_same_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with a cache folder, and this one where none can be written: other tiles or bits, and recordings would
    not verify."""
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(blocked))
    here = made_anew()
    environment = os.environ | {
        ENVIRONMENT_VARIABLE: str(tmp_path / "a folder"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(here) > 100 and done.stdout == f"{here}\n"


@given(
    st.integers(1, 9000).map(lambda n: 16 * n),
    st.integers(1, 1000).map(lambda k: 16 * k),
    st.booleans(),
    st.integers(20, 200),
)
def test_the_default_is_a_function_of_shape_and_chip(n: int, k: int, gated: bool, num_sms: int) -> None:
    """A chip's name, which a driver may change, or anything else would make other bits on a machine of the same
    kind."""
    first, other = (Chip(name, (9, 0), num_sms, H100.shared_bytes) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H100"))
    assert default(n, k, gated, first) == default(n, k, gated, other) == candidates(n, k, gated, first)[0]


def test_an_entry_of_the_table_is_used(write: Callable[[Any], None], caplog: pytest.LogCaptureFixture) -> None:
    """A GPU's measurements would be shipped for nothing. Those of another chip, shape or dtype are not for this linear,
    and no fault."""
    wanted, config = second(SHAPES[0]), asdict(second(SHAPES[1]))
    others = [
        {"chip": "another GPU"},
        {"capability": [8, 0]},
        {"num_sms": 114},
        {"dtype": "float16"},
        {"gated": True},
        {"bias": True},
        {"k": 48},
    ]
    write([entry(SHAPES[0], asdict(wanted), seconds=1e-5), *(entry(SHAPES[1], config, **other) for other in others)])
    with fake_cuda():
        assert configs(loaded()) == [wanted, default(64, 32, False)] != defaults()
    assert not caplog.records


OVERSIZED = asdict(Config(256, 256, 4, 8))
DAMAGED: dict[str, Any] = {
    "no object": 7,
    "no config": {key: value for key, value in entry(SHAPES[0], {}).items() if key != "config"},
    "a shape that is text": entry(SHAPES[0], asdict(second(SHAPES[0])), n="96"),
    "a config that is text": entry(SHAPES[0], "fast"),
    "a config without its stages": entry(
        SHAPES[0], {key: value for key, value in asdict(second(SHAPES[0])).items() if key != "num_stages"}
    ),
    "tiles of no kernel": entry(SHAPES[0], asdict(second(SHAPES[0])) | {"block_n": 48}),
    "a key that no config has": entry(SHAPES[0], asdict(second(SHAPES[0])) | {"more": 1}),
    "more shared memory than there is": entry(SHAPES[0], OVERSIZED),
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_a_wrong_entry_is_refused_with_a_warning(
    fault: str, write: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A file that somebody wrote would launch anything, or end the start. What else is in the table stays good."""
    write([DAMAGED[fault], entry(SHAPES[1], asdict(second(SHAPES[1])))])
    with fake_cuda():
        assert configs(loaded()) == [default(96, 32, False), second(SHAPES[1])]
    assert len(caplog.records) == 1 and caplog.records[0].message.startswith("ignoring"), caplog.text


def test_tiles_that_another_chip_holds_are_refused(
    write: Callable[[Any], None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two chips with one name and as many SMs, the smaller one would fail to launch."""
    largest = max(candidates(96, 1024, False), key=lambda config: config.shared_bytes(False))
    write([{**entry((96, 1024, False), asdict(largest))}])
    with fake_cuda():
        about = torch.cuda.get_device_properties(CUDA)
        monkeypatch.setattr(about, "shared_memory_per_block_optin", largest.shared_bytes(False) - 1)
        made = on_cuda(nn.Sequential(nn.Linear(1024, 96, False, dtype=torch.bfloat16)))
        put_kernels(made)
        assert configs(made) != [largest]
    assert "ignoring" in caplog.text


@pytest.mark.parametrize("content", ["", "{}", "[1", '[{"chip": NaN}]', '{"tiles": []}'], ids=repr)
def test_a_table_that_cannot_be_read_gives_the_default(
    content: str, write: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A model would not load at all, or run without kernels."""
    write(content)
    with fake_cuda():
        made = loaded()
        assert configs(made) == defaults() and "(default)" in CudaKernels(CUDA, torch.bfloat16, against="").describe(
            made
        )
    assert "cannot be read" in caplog.text


def test_of_two_entries_for_one_shape_the_first_counts(
    write: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Which one is taken must not be left to chance, nor go unsaid."""
    write([entry(SHAPES[0], asdict(config)) for config in candidates(96, 32, False)[1:3]])
    with fake_cuda():
        assert configs(loaded())[0] == second(SHAPES[0])
    assert "an entry before it" in caplog.text


def test_a_named_table_that_is_not_for_this_chip_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who asked for tuned tiles would believe to have them."""
    file = tmp_path / "of another.json"
    file.write_text(json.dumps([entry(SHAPES[0], asdict(second(SHAPES[0])), chip="another GPU")]))
    monkeypatch.setenv(VARIABLE, str(file))
    with fake_cuda():
        assert configs(loaded()) == defaults()
    assert str(file) in caplog.text and "all take the default tiles" in caplog.text


def test_the_description_tells_the_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two recordings with equal versions but other tiles would part, and `verify` would have no reason to give."""
    told = {}

    def described() -> str:
        return CudaKernels(CUDA, torch.bfloat16, against="").describe(loaded())

    with fake_cuda():
        told["default"] = described()
        for name, shapes in (("one", SHAPES[:1]), ("both", SHAPES)):
            file = tmp_path / name
            file.write_text(json.dumps([entry(shape, asdict(second(shape))) for shape in shapes]))
            monkeypatch.setenv(VARIABLE, str(file))
            told[name] = described()
        monkeypatch.delenv(VARIABLE)
        monkeypatch.setattr(table, "SHIPPED", tmp_path / "both")
        told["shipped"] = described()
        versions = description(CUDA)
    assert len(set(told.values())) == 4 and all(each.startswith(f"{versions}, tiles ") for each in told.values())
    assert told["default"].endswith("(default)") and told["shipped"].endswith("(shipped table)")
    assert "(default, table file " in told["one"] and "(table file " in told["both"]
    digests = {name: each.removeprefix(versions).split()[2] for name, each in told.items()}
    assert digests["both"] == digests["shipped"] and len(set(digests.values())) == 3


def test_the_shipped_table_is_taken_whole(caplog: pytest.LogCaptureFixture) -> None:
    """An entry that is damaged, or left behind when candidates changed, would be a measurement that nobody uses."""
    entries = json.loads(table.SHIPPED.read_bytes())
    _, found = table._read()
    assert not caplog.records and len(found) == len(entries)
    for key, config in found.items():
        chip = Chip(key.chip, key.capability, key.num_sms, H100.shared_bytes)  # type: ignore[arg-type]
        assert config in map(asdict, candidates(key.n, key.k, key.gated, chip)), key


if __name__ == "__main__":
    print(made_anew())
