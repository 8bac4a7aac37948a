"""What a measurement was made on: device, threads, versions, commit. For headers of recordings and results."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from .native import build
from .what_runs import what_runs as what_runs

PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "safetensors", "numpy")


def versions(prepared: Any = None) -> dict[str, str]:
    """Versions of Python, of the packages that compute, and of our own kernels: those that steps of `prepared` run, or this CPU's compiled ones."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if kernels := _kernels(prepared):
        found["kernels"] = kernels
    return found


def _kernels(prepared: Any) -> str:
    if prepared is None or (prepared.device.type == "cpu" and not prepared.kernels):
        return build.description()
    from .gpu import choice

    return choice.description(prepared.device) if prepared.kernels else ""


def commit() -> str:
    """The commit of this source tree, "+" appended if it was changed since; "" outside a checkout."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    try:
        revision = _git(root, "rev-parse", "--short=12", "HEAD")
        return revision + ("+" if revision and _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=5, check=True).stdout.strip()


def device(torch_device: Any) -> dict[str, Any]:
    """{"type", "name", "threads"} of a torch device; threads are the CPU's. On CUDA "cudnn_attention" too: whether torch may
    choose it, which `prepare` forbids."""
    import torch

    on_cuda = torch_device.type == "cuda"
    name = torch.cuda.get_device_name(torch_device) if on_cuda else cpu_name()
    found = {"type": torch_device.type, "name": name, "threads": torch.get_num_threads()}
    if on_cuda:
        is_on = torch.backends.cuda.cudnn_sdp_enabled()
        found["cudnn_attention"] = "on" if is_on else "off: it would plan anew for every shape in every thread"
    return found


def cpu_name() -> str:
    """The processor's name as the kernel gives it, and its number of cores."""
    import os

    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name}, {os.cpu_count()} cores"
