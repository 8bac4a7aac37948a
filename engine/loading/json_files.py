"""A model's files of JSON, as transformers reads them."""

import json
from pathlib import Path
from typing import Any

from ..core.errors import UsageError

AGAIN = "download it again, or run git lfs pull"
# Names of the files that transformers reads besides weights.
_NAMES = ("config", "tokenizer", "tokenizer_config", "special_tokens_map", "added_tokens", "chat_template")


def read_json(path: Path) -> Any:
    """A file of JSON that transformers will read too: in UTF-8 without a mark. Raises UsageError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{str(path)!r} is damaged, no JSON in UTF-8: {error}; {AGAIN}") from error


def check_json(folder: Path) -> None:
    """Raise UsageError for the first file that transformers would not read, or, of generation_config.json, ignore."""
    for path in (folder / f"{name}.json" for name in ("generation_config", *_NAMES)):
        if path.is_file():
            read_json(path)
