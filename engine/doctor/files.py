"""A model's or head's files without their weights: config.json, the names and shapes of its tensors, and the small
tables among them. A hub repository is not downloaded: its configuration and the headers of its safetensors are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UsageError, in_a_line
from ..loading.random_targets import read_published
from ..loading.sources import find, is_here, weights_files
from ..progress import quiet

TABLES = ("d2t", "t2d")
DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I8": torch.int8,
          "I64": torch.int64, "I32": torch.int32, "BOOL": torch.bool, "U8": torch.uint8}  # fmt: skip
"""By their names in the headers of safetensors; any other is read as bytes."""


@dataclass(frozen=True)
class Files:
    """name: as given. config: its config.json. tensors: by name, on the meta device except for TABLES of a folder; {}
    if unknown. folder: where its tokenizer is; None if it has none."""

    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    folder: Path | None = None

    @cached_property
    def vocabulary(self) -> Mapping[str, int]:
        """Each token's id; {} if unknown. Raises UsageError for a damaged file."""
        try:
            return _vocabulary(self.folder) if self.folder else {}
        except Exception as error:  # as for `read_files`
            raise UsageError(f"cannot read the tokenizer.json of {self.name!r}: {in_a_line(error)}") from error


def read_files(name: str, folder: Path | None = None) -> Files:
    """The files of a target, draft model or head. folder: where they are, if not where `name` says. Raises UsageError
    if there are none, or if they cannot be read."""
    try:
        with quiet():
            if folder is None and not is_here(name):
                return _from_hub(name)
            folder = folder or find(name).folder
            return Files(name, read_published(folder / "config.json"), _of_folder(folder), folder)
    except UsageError:
        raise
    except Exception as error:  # files from anywhere may be wrong in any way, and the hub may fail in any way
        raise UsageError(f"cannot read the files of {name!r}: {in_a_line(error)}") from error


def _of_folder(folder: Path) -> dict[str, Tensor]:
    from safetensors import safe_open

    tensors: dict[str, Tensor] = {}
    for path in weights_files(folder):
        if path.suffix != ".safetensors":
            tensors |= torch.load(path, map_location="meta", weights_only=True)
            tables = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
            tensors |= {name: tables[name].clone() for name in TABLES if name in tables}
            continue
        with safe_open(path, "pt") as file:
            for key in file.keys():  # noqa: SIM118 (no mapping)
                part = file.get_slice(key)
                own = file.get_tensor(key) if key in TABLES else _shape(part.get_shape(), part.get_dtype())
                tensors[key] = own
    return tensors


def _from_hub(name: str) -> Files:
    from huggingface_hub import get_safetensors_metadata, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, NotASafetensorsRepoError

    repository, _, revision = name.partition("@")
    config = read_published(Path(hf_hub_download(repository, "config.json", revision=revision or None)))
    tensors: dict[str, Tensor] = {}
    try:
        found = get_safetensors_metadata(repository, revision=revision or None)
        for file in found.files_metadata.values():
            tensors |= {key: _shape(each.shape, each.dtype) for key, each in file.tensors.items()}
    except NotASafetensorsRepoError:
        pass  # pickles: their shapes are known once they are loaded
    try:
        tokenizer = Path(hf_hub_download(repository, "tokenizer.json", revision=revision or None))
        return Files(name, config, tensors, tokenizer.parent)
    except EntryNotFoundError:
        return Files(name, config, tensors)


def _shape(shape: Any, dtype: str) -> Tensor:
    return torch.empty(tuple(shape), dtype=DTYPES.get(dtype, torch.uint8), device="meta")


def _vocabulary(folder: Path) -> dict[str, int]:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    tokens = content["model"].get("vocab") or {}
    if not isinstance(tokens, dict):  # unigram: a list of [token, score]
        tokens = {token: i for i, (token, _) in enumerate(tokens)}
    return {**tokens, **{each["content"]: each["id"] for each in content.get("added_tokens") or ()}}
