"""Tiny models, the trained fixture and its drafters on the stand-in for CUDA."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from engine.models.loading import LoadedModel, load
from engine.target.prepare import prepare
from engine.target.prepared import Prepared
from tests.helpers import linear_models, tiny
from tests.helpers.fake_cuda import on_cuda
from tests.helpers.head_fixtures import FIXTURES, HEADS
from tests.helpers.tiny import TRAINED


def fresh(name: str, dtype: torch.dtype) -> Any:
    """A tiny model, on the CPU as yet."""
    return (linear_models if name in linear_models.NAMES else tiny).fresh(name, dtype)


def ready(model: Any) -> Prepared:
    """The same on the device, made ready there."""
    return prepare(on_cuda(model))  # type: ignore[arg-type]


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
