"""For gpu_session.py: the tiles of a model's linears, default or tuned."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any


def linears_of(model: Any) -> list[Any]:
    """Its linears that run as kernels."""
    from engine.kernels.cuda.available import reason_against

    if reason_against(next(model.parameters()).device) is not None:
        return []
    from engine.kernels.cuda.linear import GpuLinear

    return [module for module in model.modules() if isinstance(module, GpuLinear)]


def put_tiles(linears: list[Any], entries: list[dict[str, Any]]) -> int:
    """Give linears the tiles of these entries of a table, whatever the shipped one says, and the default tiles where
    there is none; how many got an entry's."""
    if not linears:
        return 0
    from engine.kernels.cuda.table import VARIABLE, put_tiles
    from engine.kernels.cuda.tiles import DEFAULT

    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
        json.dump(entries, file)
    os.environ[VARIABLE] = file.name
    put_tiles(linears)
    return sum(linear.tiles_from != DEFAULT for linear in linears)
