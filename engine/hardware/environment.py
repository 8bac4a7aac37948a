"""The circumstances of a measurement (device, threads, versions, commit), for headers of recordings and results."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..text import unapplied

if TYPE_CHECKING:
    from ..runner.prepared import Prepared

PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "safetensors", "numpy")


def circumstances(prepared: Prepared) -> dict[str, Any]:
    """A prepared model's device, what runs on it, versions, commit."""
    kernels, model = prepared.kernels, prepared.model
    notes = kernels.runs(model), getattr(model, "unpacked", ""), unapplied(model.generation_config)
    return {
        "device": kernels.about_device(),
        "versions": versions(kernels.describe(model)),
        "runs": {"sentence": "; ".join(filter(None, notes))},
        "commit": commit(),
    }


def versions(kernels: str = "", packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Versions of Python and of those packages that are installed; `kernels`: what our own are made from
    (`Kernels.describe`), if any ran."""
    by_package = {"python": platform.python_version()}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            by_package[name] = metadata.version(name)
    if kernels:
        by_package["kernels"] = kernels
    return by_package


def commit() -> str:
    """The commit of this source tree, with "+" if changed since; "" outside a checkout."""
    root = Path(__file__).resolve().parents[2]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()

    if not (root / ".git").exists():
        return ""
    try:
        revision = git("rev-parse", "--short=12", "HEAD")
        return revision + ("+" if revision and git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return ""
