"""Features of the trained fixture and random heads to train on them."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import torch

from engine.loading.loading import LoadedModel, load
from engine.progress import silent
from engine.training.features import Features, extract
from engine.training.new_head import Design, TargetWeights, default_layers, likely_words, new_head, new_spec
from engine.training.windows import cut
from tests.helpers import ROOT
from tests.helpers.trained import trained

TEXT = (ROOT / "engine" / "core" / "decode.py").read_text()
LAYERS = default_layers(6)
WORDS = 600


@cache
def stock() -> LoadedModel:
    """The trained fixture as transformers runs it: never prepared for fixed steps."""
    return load(str(trained().info.name), "float32", "cpu")


def windows(length: int = 48) -> list[list[int]]:
    return list(cut(stock().tokenizer, [TEXT], length, random.Random(1)))


def extracted(folder: Path) -> Features:
    """Of `TEXT`, written there. The fixture `features` of conftest.py."""
    extract(stock().model, windows(), LAYERS, folder, silent)
    return Features(folder)


def made(kind: str, features: Features, num_layers: int = 1, chain: int = 3, block: int = 5):
    """(head, design) with random first weights."""
    torch.manual_seed(0)
    design = Design(kind, num_layers, 64, WORDS, block, chain)
    target = TargetWeights.of(stock().model)
    spec = new_spec(design, target, LAYERS, 3)
    words = likely_words(features, target.output, WORDS)
    return new_head(spec, target, words, torch.ones(len(LAYERS) * target.output.shape[1])), design
