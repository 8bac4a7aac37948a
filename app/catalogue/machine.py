"""What is known about this machine without torch, and who can reach a page that it serves."""

import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.core.errors import UsageError

GIB = 1024**3
NO_ZERO_GPU = (
    "ZeroGPU is not supported: it lends a GPU to single calls, and a race needs one throughout. Choose other hardware "
    "in the Space's settings; CPU is enough"
)
STORAGE = Path("/data")  # where a Space's owner mounts a bucket that outlives the container (docs/operate.md)
# Environment variable -> folder of STORAGE, as in the Dockerfile.
CACHES = {"HF_HOME": "huggingface", "PHOTOFINISH_CACHE": "photofinish", "TRITON_CACHE_DIR": "triton"}
NOTES = {
    "darwin": "This is a Mac: races run on its processor, without the compiled kernels, which are for x86 on Linux. "
    "Its GPU is used only with --device mps. Neither has been measured.",
    "win32": "Windows is not supported: the default model cannot be converted there, and nothing else has been "
    "tried. Use WSL 2.",
}  # system -> what a visitor should know about it; Linux needs no note


@dataclass(frozen=True)
class Machine:
    """What is known about this machine.

    gpu: whether it may have an NVIDIA GPU, because its tool is installed.
    gpu_bytes: free GPU memory according to torch; None until it has answered, 0 if it cannot use a GPU.
    gpu_dtype: default dtype of weights on the GPU.
    captures_experts: whether steps of a mixture of experts can be graphs there.
    card: the GPU, dtype, torch's version and our commit, for numbers measured with these; "" if there is no GPU.
    no_gpu: why the GPU is not used, if known.
    configs: each repository's config.json, or why it is unavailable; empty until the hub has answered."""

    gpu: bool = False
    gpu_bytes: int | None = None
    gpu_dtype: str = "bfloat16"
    captures_experts: bool = True
    card: str = ""
    no_gpu: str = ""
    configs: Mapping[str, Mapping[str, Any] | str] = field(default_factory=dict, hash=False)


def enter_space(storage: Path = STORAGE) -> None:
    """On a Space, keep models, kernels and what was probed in `storage` if it can be written to, unless the environment
    names other folders. Call it before anything reads those variables. Raises UsageError on ZeroGPU."""
    if os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true"):
        raise UsageError(NO_ZERO_GPU)
    if os.environ.get("SPACE_ID") and os.access(storage, os.W_OK | os.X_OK):
        for variable, folder in CACHES.items():
            os.environ.setdefault(variable, str(storage / folder))


def bare(host: str) -> str:
    """A host without the brackets that an IPv6 address has in a URL, and such an address as browsers write it."""
    inner = host[1:-1] if host.startswith("[") and host.endswith("]") and ":" in host else host
    try:
        return str(ipaddress.ip_address(inner))
    except ValueError:
        return inner.lower()


def in_url(host: str) -> str:
    """A bare host as it is written in a URL."""
    return f"[{host}]" if ":" in host else host


def is_own_address(host: str) -> bool:
    """Whether this is a loopback address or a name for one, which only this machine can reach."""
    try:
        return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in socket.getaddrinfo(bare(host), None))
    except (OSError, UnicodeError, ValueError):
        return False


def is_behind_proxy() -> bool:
    """Whether this is a Space, or has a share link: anybody comes through its proxy."""
    return bool(os.environ.get("SPACE_ID")) or os.environ.get("GRADIO_SHARE", "").lower() == "true"


@contextmanager
def hidden_from_gradio() -> Iterator[None]:
    """Hide from Gradio what it would do too much with. To the host of the environment it binds an IPv4 socket, even if
    told another, and a port that is no number ends it. Through its proxies it asks its page whether it is up, and one
    that httpx cannot use keeps it from being imported; a share link may need them."""
    names = ("gradio_server_name", "gradio_server_port", *([] if is_behind_proxy() else ["_proxy"]))
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.lower().endswith(names)}
    try:
        yield
    finally:
        os.environ.update(hidden)


def is_own_page(host: str) -> bool:
    """Whether only this machine can reach a page served on `host`. A Space and a share link have a proxy in front of
    them; other proxies cannot be detected."""
    return not is_behind_proxy() and is_own_address(host)
