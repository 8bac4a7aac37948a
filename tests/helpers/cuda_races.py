"""The trained fixture and its drafters on the stand-in for CUDA."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import cache
from typing import Any

from engine.models.loading import LoadedModel, load
from tests.helpers.fake_cuda import on_cuda
from tests.helpers.head_fixtures import FIXTURES, HEADS
from tests.helpers.tiny import TRAINED


@cache
def read(folder: str) -> LoadedModel:
    """A model on the CPU; copies of it go to the device."""
    return load(folder, "bfloat16", "cpu")


def trained(folder: Any = TRAINED) -> LoadedModel:
    """A trained fixture on the device; the target, if no other is named."""
    found = read(str(folder))
    return replace(found, model=on_cuda(copy.deepcopy(found.model)), info=replace(found.info, device="cuda:0"))


PROMPT = tuple(json.loads((FIXTURES / "golden.json").read_text())["prompt_token_ids"])
LANES = {
    "eagle3": f"eagle3:{HEADS['eagle3']}",
    "dflash": f"dflash:{HEADS['dflash']}",
    "draft_model": f"draft_model:{TRAINED.parent / 'draft'}",
    "ngram": "ngram",
}
