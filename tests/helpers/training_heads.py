"""Features of the trained fixture and random heads to train on them."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from engine.heads.eagle3 import Eagle3Head
from engine.loading.loading import LoadedModel, load
from engine.progress import silent
from engine.training.features import Features
from engine.training.new_head import Design, TargetWeights, default_layers, likely_words, new_head, new_spec
from engine.training.openings import openings
from engine.training.written import Writer, Writing, write_features
from tests.helpers import tiny
from tests.helpers.trained import trained

LAYERS = default_layers(6)
WORDS = 600


@cache
def stock() -> LoadedModel:
    """The trained fixture as transformers runs it: never prepared for fixed steps."""
    return load(str(trained().info.name), "float32", "cpu")


def writer(writing: Writing) -> Writer:
    """One that writes with all words of the trained fixture."""
    model = tiny.fresh("trained")
    output = TargetWeights.of(model).output
    return Writer(model, output, torch.arange(len(output)), LAYERS, writing)


def written(folder: Path) -> Features:
    """Windows that the fixture wrote, there. The fixture `features` of conftest.py."""
    write_features(writer(Writing(48, 64)), openings(stock().tokenizer, 1), 64, folder, 1, silent)
    return Features(folder)


def made(features: Features, **changes: int) -> tuple[Eagle3Head, Design]:
    """A head with random first weights, and its design, with these changes."""
    torch.manual_seed(0)
    design = replace(Design(64, WORDS, 3), **changes)
    target = TargetWeights.of(stock().model)
    words = likely_words(features, target.output, WORDS)
    spec = new_spec(design.intermediate_size, target, LAYERS)
    return new_head(spec, target, words, torch.ones(len(LAYERS) * target.output.shape[1])), design
