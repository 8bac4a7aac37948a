"""A GPU that torch cannot use is reported with the cause and the command, never passed over in silence. nvidia-smi is a
stand-in, and torch's attributes are those of the builds that users have."""

import logging
import os
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from app.jobs.loader import ModelStatus
from app.page.sentences import model_line
from engine.core.errors import UsageError
from engine.kernels import devices, usable
from engine.kernels.devices import device_named
from engine.kernels.usable import GPU_TOOL, Gpu, ask_tool, has_code, unusable, why_unused, without_code
from tests.helpers import ROOT

H100, T4, V100 = ("NVIDIA H100 80GB HBM3", (9, 0)), ("Tesla T4", (7, 5)), ("Tesla V100-SXM2-16GB", (7, 0))
RTX_5090, K80 = ("NVIDIA GeForce RTX 5090", (12, 0)), ("Tesla K80", (3, 7))
CU130 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
H100_OLD_DRIVER = "NVIDIA H100 80GB HBM3, 535.104.05, 9.0"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Puts an nvidia-smi on the PATH that runs the given lines of shell."""

    def put(script: str) -> None:
        (tmp_path / GPU_TOOL).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / GPU_TOOL).chmod(0o755)
        ask_tool.cache_clear()

    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield put
    ask_tool.cache_clear()


def torch_is(monkeypatch: pytest.MonkeyPatch, cuda: str | None, error: str = "") -> None:
    """torch as a build for that CUDA which finds no device, and says `error` where it is made to start."""
    monkeypatch.setattr(torch, "__version__", "2.13.0")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", Mock(side_effect=RuntimeError(error)))


def torch_finds(monkeypatch: pytest.MonkeyPatch, card: tuple[str, tuple[int, int]], archs: list[str]) -> None:
    """torch as a build for CUDA 13.0 with code for `archs`, which finds that card."""
    torch_is(monkeypatch, "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *unused: card[0])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *unused: card[1])
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: archs)


@pytest.mark.parametrize(
    ("card", "driver", "cuda", "says", "runs"),
    [
        (H100, "535.104.05", "13.0", "driver is 535.104.05, and this torch (2.13.0, for CUDA 13.0) needs 580", "cu126"),
        (RTX_5090, "575.57.08", "13.0", "update the driver to 580 or newer, or run: ", "cu129"),
        (V100, "550.54", "13.0", "needs 580 or newer. To use it, run: ", "cu126"),
        (H100, "470.82.01", "12.6", "needs 525 or newer. To use it, update the driver to 580 or newer", ""),
        (H100, "580.65.06", None, "this torch (2.13.0) is built without CUDA. To use it, run: ", "cu130"),
        (T4, "535.104.05", None, "built without CUDA. To use it, run: ", "cu126"),
        (H100, "470.82.01", None, "update its driver (470.82.01) to 580 or newer and run: ", "cu130"),
        (K80, "470.82.01", None, "is built without CUDA", ""),
        (H100, "580.65.06", "13.0", "cannot start it: RuntimeError: Error 802: system not yet initialized", ""),
        (H100, "610.10", "14.1", "cannot start it: RuntimeError: Error 802", ""),
    ],
)
def test_the_cause_and_the_command_are_named(card, driver, cuda, says, runs) -> None:
    """On a rented H100 with an old driver, the commonest first run of all, the user believes to see an H100."""
    gpu = Gpu(card[0], driver, card[1])
    said = unusable(gpu, "2.13.0", cuda, "RuntimeError: Error 802: system not yet initialized")
    assert said.startswith(f"{card[0]} is not used: ") and says in said and "\n" not in said and not said.endswith(".")
    command = f"pip install torch=={usable.TORCH}+{runs} --index-url https://download.pytorch.org/whl/{runs}"
    assert said.endswith(command) if runs else "pip" not in said


def test_the_command_installs_the_pinned_version() -> None:
    """Somebody moves the pin; users with an old driver are sent back to the version before."""
    assert f"\ntorch=={usable.TORCH}\n" in (ROOT / "requirements.txt").read_text()
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert f"`{usable.command(Gpu('', '535.1', (9, 0)))}`" in page and "driver 580" in (ROOT / "README.md").read_text()


B300, THOR = (10, 3), (11, 0)  # Thor: neither machine code of its own nor older PTX
CHIPS = [
    (B300, CU130, True), (THOR, CU130, False), (B300, ["sm_100a"], False), (B300, ["sm_100f"], True),
    ((9, 0), ["sm_90a"], True), ((9, 0), ["gfx942"], False), ((12, 0), ["compute_90a"], False),
]  # fmt: skip


@pytest.mark.parametrize(("capability", "archs", "runs"), CHIPS)
def test_which_chips_a_build_has_code_for(capability, archs, runs) -> None:
    """A V100 would load a model and fail with `no kernel image`; or a card that runs would be refused."""
    assert has_code(archs, capability) is runs


OLD, NOT_READY = f"echo '{H100_OLD_DRIVER}'", "Error 802: system not yet initialized"
MISMATCH, FAILED = "Driver/library version mismatch", "NVIDIA-SMI has failed because it could not talk to the driver."


@pytest.mark.parametrize(
    ("script", "cuda", "error", "environment", "says"),
    [
        (OLD, "13.0", "The NVIDIA driver on your system is too old", {}, "*its driver is 535.104.05*+cu126 *"),
        (OLD, "12.6", NOT_READY, {}, f"*cannot start it: RuntimeError: {NOT_READY}"),
        (OLD, None, "", {}, "*built without CUDA*"),
        ("exit 0", "13.0", "", {}, ""),
        ("echo 'No devices were found'; exit 6", "13.0", "", {}, ""),
        (f"echo 'Failed to initialize NVML: {MISMATCH}'; exit 18", "13.0", "", {}, "*version mismatch*"),
        (f"echo '{FAILED}' >&2; exit 9", "13.0", "", {}, "*has failed because*"),
        ("echo 'A GPU, [N/A], [N/A]'", "13.0", "", {}, "*nvidia-smi says: A GPU, *N/A*, *N/A*"),
        ("exec sleep 30", "13.0", "", {}, "*does not answer within 0 s; the driver hangs*"),
        (OLD, "13.0", "", {"CUDA_VISIBLE_DEVICES": ""}, ""),
        (OLD, "13.0", "", {"PATH": ""}, ""),
    ],
)
def test_a_driver_that_does_not_work_is_told_and_no_gpu_is_not(
    tool, monkeypatch, script, cuda, error, environment, says
) -> None:
    """Without a GPU, or with one hidden, one is named at every start; or a dead or old driver looks like no GPU."""
    monkeypatch.setattr(usable, "ANSWER_S", 0.3)
    tool(script)
    torch_is(monkeypatch, cuda, error)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert fnmatchcase(why_unused(), says)


def test_auto_goes_on_on_the_cpu_and_says_so_once(tool, monkeypatch, caplog) -> None:
    """Silence, or a line for each of the four times that a race asks for its device."""
    tool(f"echo '{H100_OLD_DRIVER}'")
    torch_is(monkeypatch, "13.0")
    devices._warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert {device_named("auto").type, device_named("auto").type} == {"cpu"}
    assert [record.getMessage() for record in caplog.records] == [why_unused()]
    with pytest.raises(UsageError, match=re.escape(f"choose one of: auto, cpu. {why_unused()}")):
        device_named("cuda")


def test_a_card_without_code_is_not_used(monkeypatch) -> None:
    """The load would end in `no kernel image is available for execution on the device`."""
    torch_finds(monkeypatch, V100, CU130)
    assert device_named("auto").type == "cpu"
    assert why_unused() == without_code(Gpu(V100[0], "580", V100[1]), "2.13.0") and "capability 7.0" in why_unused()
    says = "run: pip install torch==2.13.0+cu126 --index-url https://download.pytorch.org/whl/cu126"
    assert why_unused().endswith(says)
    with pytest.raises(UsageError, match=r"'cuda:0' is not available here.*no code for its compute capability 7\.0"):
        device_named("cuda:0")


def test_a_card_with_code_is_used(monkeypatch) -> None:
    """A GPU that runs would be refused."""
    torch_finds(monkeypatch, T4, CU130)
    assert why_unused() == "" and device_named("auto") == torch.device("cuda", 0) == device_named("cuda")
    with pytest.raises(UsageError, match=r"'cuda:3' is not available here.*There are 1, numbered from 0"):
        device_named("cuda:3")


def test_the_page_shows_the_cause_and_sets_the_command_apart() -> None:
    """The status line would say `ready` of a model on the CPU; or the command would be copied with its full stop."""
    note = unusable(Gpu(H100[0], "535.104.05", H100[1]), "2.13.0", "13.0", "")
    line = model_line(ModelStatus("a model", "ready", "", note=note))
    assert "its driver is 535.104.05" in line and ">pip install torch==" in line
    assert "page-device" not in model_line(ModelStatus("a model", "ready", ""))
    assert "<b>" not in model_line(ModelStatus("a model", "ready", "", note="<b>, run: <b>"))
