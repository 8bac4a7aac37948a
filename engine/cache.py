"""The cache folder, and small JSON values in it. Standard library only."""

import json
import logging
import os
import secrets
from pathlib import Path
from typing import Any

from .core.errors import UsageError

ENVIRONMENT_VARIABLE = "PHOTOFINISH_CACHE"

log = logging.getLogger(__name__)


def cache_dir() -> Path:
    """$PHOTOFINISH_CACHE, else $XDG_CACHE_HOME/photofinish, else ~/.cache/photofinish. Absolute; it may not exist yet.
    Raises UsageError if there is none of the three."""
    if chosen := os.environ.get(ENVIRONMENT_VARIABLE):
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    if os.path.isabs(base := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(base, "photofinish")
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise UsageError(f"no folder for the cache: there is no home folder; set {ENVIRONMENT_VARIABLE} to one")
    return Path(home, ".cache", "photofinish")


def read_json(name: str) -> dict[str, Any] | None:
    """`read_object` of what is stored under this file name."""
    return read_object(cache_dir() / name)


def read_object(path: Path) -> dict[str, Any] | None:
    """The object in a file, or None if it was never written, cannot be read, or is no JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        log.warning("ignoring %s in the cache: %s", path.name, error)
        return None
    return value if isinstance(value, dict) else None


def write_json(name: str, value: dict[str, Any]) -> None:
    """Store an object under this file name, whole or not at all. Failure is logged and ignored."""
    try:
        path = cache_dir() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(value).encode())
    except (OSError, UsageError) as error:
        log.warning("cannot keep %s in the cache: %s", name, error)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path`: readers see its old content or all of the new, even with other writers or if this process is
    killed. Raises OSError."""
    new = path.with_name(f".photofinish-{secrets.token_hex(8)}.part")
    try:
        with open(new, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
