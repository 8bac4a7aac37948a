"""What this machine can run, found out without torch: memory, GPU, and whether the model hub can be reached."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

GIB = 1024**3
HUB_TIMEOUT_S = 1.5
GPU_TIMEOUT_S = 2.5
DEFAULT_HUB = "https://huggingface.co"


@dataclass(frozen=True)
class Machine:
    """`gpu_gib`: memory of the largest GPU, 0.0 without one. `memory_gib`: main memory. `hub`: whether the model hub
    answers (only asked for where there is a GPU: nothing that needs the hub runs without one)."""

    gpu_gib: float = 0.0
    memory_gib: float = 0.0
    hub: bool = False

    def refuses(self, needs_gpu: bool, memory_gib: float, needs_hub: bool) -> str:
        """Why this machine cannot run something with these needs, in a sentence; "" if it can."""
        if needs_gpu and not self.gpu_gib:
            return f"needs a GPU with {memory_gib:g} GiB; this machine has none"
        have, kind = (self.gpu_gib, "GPU memory") if needs_gpu else (self.memory_gib, "memory")
        if have < memory_gib:
            return f"needs {memory_gib:g} GiB of {kind}; this machine has {have:.0f}"
        if needs_hub and not self.hub:
            return "needs the model hub, which does not answer from here"
        return ""


def probe() -> Machine:
    """Look at this machine; takes milliseconds without a GPU, and with one at most GPU_TIMEOUT_S + HUB_TIMEOUT_S: the
    page waits for it."""
    gpu_gib = _gpu_gib()
    return Machine(gpu_gib, _memory_gib(), bool(gpu_gib) and _within(HUB_TIMEOUT_S, _hub_answers))


def _within(seconds: float, ask: Callable[[], bool]) -> bool:
    """The answer, or False where there is none by then: looking up a name may take as long as it likes and knows no
    timeout of its own."""
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(ask()), name="ask", daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answers and answers[0])


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


def _gpu_gib() -> float:
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return 0.0
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=GPU_TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0.0
    return max((float(line) / 1024 for line in out.split() if line.isdigit()), default=0.0)


def _memory_gib() -> float:
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with suppress(OSError, ValueError):  # a container's own limit; "max" where it has none
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes) / GIB


def _hub_answers() -> bool:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        return False
    parts = urlsplit(os.environ.get("HF_ENDPOINT", DEFAULT_HUB))
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 443), HUB_TIMEOUT_S):
            return True
    except OSError:
        return False
