"""What is known of this machine without torch, and who can reach a page that it serves."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GIB = 1024**3
GPU_TOOL = "nvidia-smi"
NOTES = {
    "darwin": "This is a Mac: races run on its processor, without the compiled kernels, which are for x86 on Linux. "
    "Its GPU is used only with --device mps. Neither was ever measured.",
    "win32": "Windows is not supported: the default model cannot be converted there, and nothing else was ever tried; "
    "run this in WSL 2, where it is a Linux machine",
}
"""System -> what a visitor should know of it; nothing of Linux."""


@dataclass(frozen=True)
class Machine:
    """What is known of this machine. `gpu`: whether it may have an NVIDIA GPU: its tool is installed. `gpu_bytes`: what
    torch says that GPU has free, None before torch was asked, 0 where it finds none: `no_gpu` may say why. `configs`:
    what the hub said of a repository: its config.json, or why that cannot be had; nothing before it was asked."""

    gpu: bool = False
    gpu_bytes: int | None = None
    no_gpu: str = ""
    configs: Mapping[str, Mapping[str, Any] | str] = field(default_factory=dict, hash=False)


def probe() -> Machine:
    """Look at this machine. Takes no time: the page waits for it."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return Machine(gpu=not hidden and shutil.which(GPU_TOOL) is not None)


def is_own_address(host: str) -> bool:
    """Whether what is served there can be seen from this machine only: a loopback address, or the name of one."""
    try:
        return all(ipaddress.ip_address(found[4][0]).is_loopback for found in socket.getaddrinfo(host, None))
    except (OSError, UnicodeError, ValueError):
        return False


def is_own_page(host: str | None) -> bool:
    """Whether a page served on `host` (None: where Gradio serves by default) can be reached from this machine only.
    A Space and a share link have a proxy in front of them. Other proxies cannot be seen from here."""
    if os.environ.get("SPACE_ID") or os.environ.get("GRADIO_SHARE", "").lower() == "true":
        return False
    return is_own_address(host or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1")
