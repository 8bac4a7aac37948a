"""A model's or head's files without their weights: config.json, the names and shapes of its tensors, and the small
tables among them. A hub repository is not downloaded: its configuration and the headers of its safetensors are. Needs
no torch, except for pickles."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ..core.errors import UsageError, in_a_line
from ..heads.shapes import info_of
from ..heads.vocabulary import TABLES, TensorInfo
from ..loading.random_targets import read_published
from ..loading.sources import find, is_here, weights_files
from ..progress import quiet

# From names in the headers of safetensors to torch's.
DTYPES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16", "F8_E4M3": "float8_e4m3fn",
          "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
          "BOOL": "bool"}  # fmt: skip


@dataclass(frozen=True)
class Files:
    """name: as given. config: its config.json. tensors: by name, with values only of TABLES of a folder; {} if unknown.
    file: one of its small files by name, which is downloaded if necessary; None if it has none. refused: its page, if
    the hub asks to accept its terms first, else ""; then nothing else is known."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, TensorInfo] = field(default_factory=dict)
    file: Callable[[str], Path | None] = lambda file: None
    refused: str = ""

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """Each token's id; {} if unknown. Raises UsageError for a damaged file."""
        try:
            return _vocabulary(path) if (path := self.file("tokenizer.json")) else {}
        except Exception as error:  # as for `read_files`
            raise UsageError(f"cannot read the tokenizer.json of {self.name!r}: {in_a_line(error)}") from error


def read_files(name: str, folder: Path | None = None) -> Files:
    """The files of a target, draft model or head. folder: where they are, if not where `name` says. Raises UsageError
    if there are none, or if they cannot be read."""
    try:
        if folder is None and not is_here(name):
            with quiet(only_hub=True):
                return _from_hub(name)
        place = folder or find(name).folder
        tensors: dict[str, TensorInfo] = {}
        for path in weights_files(place):
            tensors |= _of_safetensors(path) if path.suffix == ".safetensors" else _of_pickle(path)
        config = read_published(place / "config.json")
        return Files(name, config, tensors, lambda file: place / file if (place / file).is_file() else None)
    except UsageError:
        raise
    except Exception as error:  # files from anywhere may be wrong in any way, and the hub may fail in any way
        raise UsageError(f"cannot read the files of {name!r}: {in_a_line(error)}") from error


def _of_safetensors(path: Path) -> dict[str, TensorInfo]:
    tensors = {}
    with safe_open(path, "np") as file:
        for name in file.keys():  # noqa: SIM118  it is no mapping
            entry = file.get_slice(name)
            shape, dtype = entry.get_shape(), entry.get_dtype()
            is_table = name in TABLES and not dtype.startswith(("F", "BF"))
            tensors[name] = _info(shape, dtype, file.get_tensor(name).flatten().tolist() if is_table else None)
    return tensors


def _of_pickle(path: Path) -> dict[str, TensorInfo]:
    import torch

    shapes = torch.load(path, map_location="meta", weights_only=True)
    tables = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    return {name: info_of(name, tables[name] if name in TABLES else value) for name, value in shapes.items()}


def _from_hub(name: str) -> Files:
    from huggingface_hub import constants, errors

    repository, _, revision = name.partition("@")
    get = partial(_fetched, repository, revision or None)
    try:
        config, tensors = read_published(get("config.json")), _of_hub(repository, revision or None)
    except errors.GatedRepoError:
        return Files(name, refused=f"{constants.ENDPOINT}/{repository}")
    except errors.RepositoryNotFoundError as error:
        raise UsageError(
            f"the hub has no repository {repository!r}, or it is private: check the name, or set HF_TOKEN to a token "
            "that may read it"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UsageError(f"the hub repository {repository!r} has no revision {revision!r}") from error
    except errors.RemoteEntryNotFoundError as error:
        raise UsageError(f"the hub repository {name!r} is no model: it has no config.json") from error

    def small(file: str) -> Path | None:
        try:
            with quiet(only_hub=True):
                return get(file)
        except errors.RemoteEntryNotFoundError:
            return None

    return Files(name, config, tensors, small)


def _fetched(repository: str, revision: str | None, file: str) -> Path:
    """Raises what the hub's client raises, but GatedRepoError for its plain 403 to an account without access."""
    from huggingface_hub import errors, hf_hub_download

    try:
        return Path(hf_hub_download(repository, file, revision=revision))
    except errors.LocalEntryNotFoundError as error:
        response = getattr(error.__cause__, "response", None)
        if response is not None and response.status_code == 403:
            raise errors.GatedRepoError(str(error), response=response) from error
        raise


def _of_hub(repository: str, revision: str | None) -> dict[str, TensorInfo]:
    from huggingface_hub import errors, get_safetensors_metadata

    try:
        metadata = get_safetensors_metadata(repository, revision=revision)
    except errors.NotASafetensorsRepoError:
        return {}  # pickles: their shapes are known once they are loaded
    return {
        key: _info(tensor.shape, tensor.dtype)
        for file in metadata.files_metadata.values()
        for key, tensor in file.tensors.items()
    }


def _info(shape: Sequence[int], dtype: str, values: Sequence[int] | None = None) -> TensorInfo:
    return TensorInfo(tuple(shape), DTYPES.get(dtype, dtype), values)


def _vocabulary(path: Path) -> dict[str, int]:
    content = json.loads(path.read_bytes())
    tokens = content["model"].get("vocab") or {}
    if not isinstance(tokens, dict):  # unigram: a list of [token, score]
        tokens = {token: i for i, (token, _) in enumerate(tokens)}
    return {**tokens, **{added["content"]: added["id"] for added in content.get("added_tokens") or ()}}
