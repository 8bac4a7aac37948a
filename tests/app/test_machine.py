"""What this machine is found to be, with a GPU's own tool and a hub that are stand-ins: programs and sockets, no
patched functions."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.catalogue import load
from app.machine import GPU_TIMEOUT_S, HUB_TIMEOUT_S, Machine, _within, is_own_address, is_own_page, probe
from engine.models.sources import DEFAULT_TARGET
from tests.helpers import ROOT


@pytest.fixture
def hub(monkeypatch) -> Iterator[socket.socket]:
    """Something that answers where the hub should be."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        yield server


@pytest.fixture
def gpu(monkeypatch, tmp_path: Path) -> Path:
    """An nvidia-smi that knows two GPUs."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 46068\necho 81559\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tool


def test_with_a_gpu_and_a_hub_the_fields_pair_is_the_default(gpu, hub) -> None:
    """A visitor of a Space with a GPU came to see a model that people use."""
    found = probe()
    assert found.hub and 79 < found.gpu_gib < 80
    assert load(found).default.target == "Qwen/Qwen3-8B"


def test_with_a_gpu_and_no_hub_it_is_the_bundled_model(gpu, hub, monkeypatch) -> None:
    """Nothing can be fetched: the page must still race."""
    hub.close()
    assert load(probe()).default.target == DEFAULT_TARGET
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not probe().hub


def test_without_a_gpu_nobody_asks_the_hub(hub, monkeypatch) -> None:
    """The start of the page must not hang on a network that it does not need."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert probe() == Machine(0.0, probe().memory_gib, False)
    hub.settimeout(0.05)
    with pytest.raises(TimeoutError):
        hub.accept()


def test_a_tool_that_hangs_does_not_hang_the_page(gpu, hub) -> None:
    """A broken driver makes nvidia-smi wait for ever, a broken resolver a look-up: the page comes up all the same,
    within its 6 s."""
    gpu.write_text("#!/bin/sh\nexec sleep 30\n")
    started = time.monotonic()
    assert probe().gpu_gib == 0.0
    assert not _within(0.1, lambda: time.sleep(2) or True)
    assert time.monotonic() - started < GPU_TIMEOUT_S + 1 and GPU_TIMEOUT_S + HUB_TIMEOUT_S <= 4


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.7", False),
        ("no such host", False),
    ],
)
def test_who_can_see_what_is_served(host: str, own: bool) -> None:
    """A page for the whole network must not keep a core free for a browser that runs elsewhere."""
    assert is_own_address(host) is own


@pytest.mark.slow
def test_a_core_is_left_to_the_browser() -> None:
    """With a thread on every core each step waits for the browser; with no thread left nothing runs."""
    code = "import torch; from engine.session.threads import leave_a_core; torch.set_num_threads(64); leave_a_core(); print(torch.get_num_threads())"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert int(out) == max(1, (os.cpu_count() or 1) - 1)


@pytest.mark.parametrize(
    ("host", "environment", "own"),
    [
        (None, {}, True),
        ("127.0.0.1", {"GRADIO_SERVER_NAME": "0.0.0.0"}, True),
        (None, {"GRADIO_SERVER_NAME": "0.0.0.0"}, False),
        ("0.0.0.0", {}, False),
        (None, {"SPACE_ID": "owner/name"}, False),
        ("127.0.0.1", {"GRADIO_SHARE": "True"}, False),
        ("127.0.0.1", {"GRADIO_SHARE": "False"}, True),
    ],
)
def test_who_can_reach_a_page(host, environment, own, monkeypatch) -> None:
    """Strangers may choose less than the owner of the machine: a page taken for private is open to all."""
    for name in ("GRADIO_SERVER_NAME", "SPACE_ID", "GRADIO_SHARE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_own_page(host) is own
