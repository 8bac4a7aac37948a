"""Where a target's files are: the bundled default model, a local folder, a Hugging Face hub repository in its own
cache, or just a published configuration (`random_targets.py`)."""

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import PhotofinishError, UsageError
from ..core.spec import RANDOM
from ..progress import Progress, quiet, silent
from . import default_model, random_targets
from .json_files import AGAIN, read_json

DEFAULT_TARGET = default_model.NAME
# Draft heads for the default target, a folder for each kind.
BUNDLED_HEADS = Path(__file__).resolve().parent.parent.parent / "assets" / "heads"
NO_LICENCE = "not stated"
_REPOSITORY = re.compile(
    r"([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:@([A-Za-z0-9][\w./-]{0,199}))?", re.ASCII
)
_ADDRESS = re.compile(
    r"(?<![\w./~-])(?:https?://)?(?:huggingface|hf)\.co/([\w.-]+/[\w.-]+)(?:/(?:tree|blob|resolve)/([\w.-]+)[^?#+,]*)?"
    r"/?(?:\?[^#+,]*)?(?=[#+,@]|$)"
)
_TEMPLATES = "*.jinja"  # in subfolders too: additional_chat_templates
_SMALL_FILES = ["*.json", _TEMPLATES, "*.model", "*.txt", "README.md"]
_SAFETENSORS = ["model.safetensors", "model-*.safetensors"]
_PICKLES = ["pytorch_model.bin", "pytorch_model-*.bin"]
# What a folder may have instead of a model, and what that is.
_INSTEAD = {
    "adapter_config.json": "an adapter's (LoRA): merge it into its model, and give the result",
    "snapshots/*/config.json": "of the hub's cache: give that folder",
    "*.gguf": "a file for llama.cpp: give the model that it was made from",
    "*-of-*": "one of several, whose index (.index.json) is missing",
    "*.safetensors": "under no name that transformers reads, or a link to a file that is not there",
}


@dataclass(frozen=True)
class Source:
    """A model's files. `name` as given; `revision` is the hub's commit, else ""; `licence` a short string.

    digest: the weights' sha256 if known without reading them, else "". config: the configuration for random weights, if
    there are no others."""

    name: str
    folder: Path
    revision: str = ""
    licence: str = NO_LICENCE
    digest: str = ""
    config: Path | None = None


def find(target: str, progress: Progress = silent) -> Source:
    """Resolve a target: DEFAULT_TARGET, a folder with a config.json, `owner/name[@revision]` on the hub, or
    `random:NAME`.

    Whatever looks like a path, or exists on disk, is never sent to the hub. Raises UsageError for anything else, or if
    it is not available."""
    if target == DEFAULT_TARGET:
        folder = default_model.converted(progress)
        manifest = default_model.read_manifest(folder) or {}
        return Source(target, folder, licence=default_model.LICENCE, digest=str(manifest.get("digest", "")))
    if target.startswith(RANDOM):
        config = random_targets.config_file(target)
        return Source(
            target, config.parent, licence=random_targets.LICENCE, digest=random_targets.digest(config), config=config
        )
    if (match := _repository(target)) is None:
        folder = _local(target)
        return Source(target, folder, licence=read_licence(folder))
    folder = _fetch(match, progress)
    return Source(target, folder, revision=folder.name, licence=read_licence(folder))


def hub_names(text: str) -> str:
    """A target or a drafter, with the name of a repository where it has the address of its page on the hub."""
    return _ADDRESS.sub(lambda match: match[1] + f"@{match[2]}" * (match[2] not in (None, "main")), text)


def config_of(target: str, progress: Progress = silent) -> dict[str, Any]:
    """The configuration of a target other than the default one. Nothing else is fetched. Raises UsageError as `find`
    does."""
    if target.startswith(RANDOM):
        return random_targets.read_config(random_targets.config_file(target))
    if (match := _repository(target)) is None:
        return random_targets.read_published(_local(target) / "config.json")
    from huggingface_hub import hf_hub_download

    with _from_hub(match, progress):
        return random_targets.read_published(Path(hf_hub_download(match[1], "config.json", revision=match[2])))


def is_here(target: str) -> bool:
    """Whether a target's weights need not be downloaded."""
    if target == DEFAULT_TARGET or _repository(target) is None:
        return True
    config = cached_config(target)
    try:
        return config is not None and bool(weights_files(config.parent))
    except UsageError:
        return False


def cached_config(target: str) -> Path | None:
    """The config.json of a repository in the hub's cache; None if it is not there, or the target is no repository."""
    from huggingface_hub import try_to_load_from_cache

    match = _repository(target)
    config = try_to_load_from_cache(match[1], "config.json", revision=match[2]) if match else None
    return Path(config) if isinstance(config, str) else None


def _repository(target: str) -> re.Match[str] | None:
    return None if os.path.lexists(os.path.expanduser(target)) else _REPOSITORY.fullmatch(target)


def _local(target: str) -> Path:
    """A folder with a config.json."""
    path = Path(os.path.expanduser(target))
    if not target.startswith(("/", ".", "~")) and not (target and os.path.lexists(path)):
        raise UsageError(
            f"unknown model {target!r}; choose one of: {DEFAULT_TARGET}, a folder with a config.json, a hub "
            "repository as owner/name or owner/name@revision, random:owner/name for random weights"
        )
    if not path.is_dir():
        raise UsageError(
            f"no model at {target!r}: " + ("it is a file, not a folder" if path.exists() else "there is no such folder")
        )
    if not (path / "config.json").is_file():
        raise UsageError(f"the folder {target!r} is no model: it has no config.json{_instead(path)}")
    return path


def read_licence(folder: Path) -> str:
    """The `license:` in a model card's header (README.md), or NO_LICENCE."""
    try:
        with (folder / "README.md").open(encoding="utf-8", errors="replace") as file:
            card = file.read(65536)
    except OSError:
        return NO_LICENCE
    header = re.match(r"---\n(.*?)\n---", card, re.DOTALL)
    stated = re.search(r"^license:[ \t]*([^\n]{1,60})$", header[1], re.MULTILINE) if header else None
    return stated[1].strip(" '\"") if stated else NO_LICENCE


def weights_files(folder: Path) -> list[Path]:
    """The files with a model's weights, chosen like transformers does: safetensors before pickles, one file before
    several. Raises UsageError if there are none, if the index names missing ones, or if one is not whole."""
    for single in ("model.safetensors", "pytorch_model.bin"):
        if (folder / single).is_file():
            return [_whole(folder / single)]
        if (index := folder / f"{single}.index.json").is_file():
            return [_whole(path) for path in _indexed(folder, index)]
    raise UsageError(
        f"the folder {str(folder)!r} has no weights: neither model.safetensors nor pytorch_model.bin, nor an index "
        f"of several{_instead(folder)}"
    )


def _instead(folder: Path) -> str:
    """What a folder has instead of a model, as the end of a sentence; "" if that is not known."""
    for pattern, what in _INSTEAD.items():
        if files := sorted(folder.glob(pattern)):
            return f"; it has {files[0].relative_to(folder)}, {what}"
    return ""


def _whole(path: Path) -> Path:
    """A file with weights, unless git or a download left out a part of it."""
    from safetensors import SafetensorError, safe_open

    try:
        if path.suffix == ".safetensors":
            safe_open(path, "np")
    except SafetensorError as error:
        raise UsageError(f"{str(path)!r} is damaged: {error}; {AGAIN}") from error
    return path


def _indexed(folder: Path, index: Path) -> list[Path]:
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{str(index)!r} is damaged: {type(error).__name__}: {error}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise UsageError(f"the folder {str(folder)!r} lacks {name!r}, which {index.name} names")
    return [folder / name for name in names]


def _fetch(match: re.Match[str], progress: Progress) -> Path:
    """The snapshot's folder, named by its commit; without a network, the last one."""
    from huggingface_hub import snapshot_download

    options: dict[str, Any] = {
        "revision": match[2],
        "ignore_patterns": [f"*/{name}" for name in (*_SMALL_FILES, *_SAFETENSORS, *_PICKLES) if name != _TEMPLATES],
        "tqdm_class": _bar_class(progress, f"fetching {match[0]} from the hub"),
    }
    with _from_hub(match, progress):
        folder = Path(snapshot_download(match[1], allow_patterns=[*_SMALL_FILES, *_SAFETENSORS], **options))
        if (folder / "config.json").is_file() and not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(match[1], allow_patterns=[*_SMALL_FILES, *_PICKLES], **options))
    if not (folder / "config.json").is_file():
        raise UsageError(f"the hub repository {match[0]!r} is no model: it has no config.json")
    return folder


@contextmanager
def _from_hub(match: re.Match[str], progress: Progress) -> Iterator[None]:
    """Whatever fails is a UsageError with the reason."""
    from huggingface_hub import constants

    progress(f"looking for {match[0]} on the hub", None)
    try:
        with quiet():
            yield
    except PhotofinishError:
        raise
    except Exception as error:  # the network, the hub and its client may fail in any way
        reason = str(error).strip().split("\n", 1)[0][:200] or type(error).__name__
        if constants.HF_HUB_OFFLINE:
            reason = "HF_HUB_OFFLINE is set, and not all of it is in the cache"
        raise UsageError(
            f"cannot fetch {match[0]!r} from the hub: {reason} (choose {DEFAULT_TARGET}, a local folder, or another "
            "repository)"
        ) from error


def _bar_class(progress: Progress, stage: str) -> type:
    """A progress bar class for the hub's client that draws nothing and reports the share of bytes to `progress`."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "file": io.StringIO(), "disable": False, "leave": False})

        def display(self, *_: Any, **__: Any) -> None:
            if self.unit == "B" and self.total:
                progress(stage, min(1.0, self.n / self.total))

    return Bar
