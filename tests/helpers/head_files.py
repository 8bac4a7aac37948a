"""Draft heads as files: read, written, and copied with changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.helpers.head_fixtures import FORMATS


def tensors_of(folder: Path) -> dict[str, Tensor]:
    if (folder / "model.safetensors").is_file():
        return load_file(folder / "model.safetensors")
    return torch.load(folder / "pytorch_model.bin", weights_only=True)


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def save(folder: Path, config: Mapping[str, Any] | str, tensors: Mapping[str, Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    save_file({name: value.contiguous() for name, value in tensors.items()}, folder / "model.safetensors")
    return folder


def changed(
    source: Path,
    folder: Path,
    config: Callable[[dict[str, Any]], Any] | None = None,
    tensors: Callable[[dict[str, Tensor]], Any] | None = None,
) -> Path:
    """A copy of a head with its configuration or tensors changed in place."""
    values, arrays = config_of(source), tensors_of(source)
    for change, what in ((config, values), (tensors, arrays)):
        if change:
            change(what)  # type: ignore[operator]
    return save(folder, values, arrays)


def published(name: str, folder: Path) -> Path:
    """formats/<name>. Of the two that were converted from others only the configuration is kept: their tensors are
    their source's."""
    if (FORMATS / name / "model.safetensors").exists() or (FORMATS / name / "pytorch_model.bin").exists():
        return FORMATS / name
    source = tensors_of(FORMATS / name.removesuffix("_spec"))
    return save(
        folder / name,
        config_of(FORMATS / name),
        {key.replace("midlayer.", "layers.0."): value for key, value in source.items()},
    )


def pickled(source: Path, folder: Path, value: Any) -> Path:
    """A head whose weights are a pickle of `value`."""
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    torch.save(value, folder / "pytorch_model.bin")
    return folder
