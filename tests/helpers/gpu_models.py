"""Tiny models on the Triton kernels, run by Triton's interpreter."""

from __future__ import annotations

from functools import cache

import torch

from engine.kernels.cuda.decoder import GpuDecoder
from engine.kernels.cuda.linear import GpuLinear
from engine.target.prepare import prepare
from engine.target.prepared import Prepared
from tests.helpers.gpu_kernels import TRITON
from tests.helpers.tiny import CONFIGS as ALL
from tests.helpers.tiny import build

LAYERS = {"gemma3": 2, "qwen3": 1}
"""A sliding and a full one; and with one the interpreter has had enough."""


def config_of(name: str) -> tuple:
    model_class, config = ALL[name]
    settings = {**config.to_dict(), "num_hidden_layers": LAYERS[name]}
    if "layer_types" in settings:
        settings["layer_types"] = settings["layer_types"][-LAYERS[name] :]
    return model_class, type(config)(**settings)


@cache
def prepared(name: str) -> Prepared:
    made = prepare(build(*config_of(name), torch.bfloat16), TRITON)
    assert (
        made.kernels.triton
        and isinstance(made.model.get_decoder(), GpuDecoder)
        and isinstance(made.model.lm_head, GpuLinear)
    )
    return made
