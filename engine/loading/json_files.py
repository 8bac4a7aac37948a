"""A model's files of JSON, as transformers reads them."""

import json
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..strict_json import UTF_16

# Beginnings of the names of files that transformers reads besides weights.
_JSON = ("config.", "generation_config.", "tokenizer", "special_tokens_map.", "added_tokens.", "chat_template.")


def damaged(path: Path, error: Exception) -> UsageError:
    """What to say of a file of a model, because of `error`."""
    return UsageError(f"{str(path)!r} is damaged: {error}; download it again, or run git lfs pull")


def read_json(path: Path) -> Any:
    """A file of JSON that transformers will read too: in UTF-8 without a mark. Raises UsageError."""
    data = path.read_bytes()
    if data.startswith((BOM_UTF8, *UTF_16)):
        raise UsageError(
            f"{str(path)!r} begins with a byte order mark, which readers of models refuse; save it as UTF-8 without one"
        )
    try:
        return json.loads(data.decode())
    except ValueError as error:
        raise damaged(path, error) from error


def check_json(folder: Path) -> None:
    """Raise UsageError for the first file that transformers would not read, or, of generation_config.json, ignore."""
    for path in sorted(folder.glob("*.json")):
        if path.name.startswith(_JSON):
            read_json(path)
