"""What stays as it was where a decoder cannot be compiled. That races on compiled ones are identical, whatever is
drafted, is in ../../exactness/test_matrix.py."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from engine.kernels.cpu.decoder import reason_against_decoder
from engine.layers.decoder import FusedDecoder
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from tests.helpers.native_kernels import CONFIGS, made, needs_kernels
from tests.helpers.tiny import TORCH, build, changed, random_ids

pytestmark = needs_kernels


# What does not fit


def unlike(name: str, **more: Any) -> PreTrainedModel:
    return build(*changed(CONFIGS[name], **more), torch.bfloat16)


UNFIT: dict[str, tuple[Any, str]] = {
    "float32": (lambda: made("llama", torch.float32), "float32"),
    "heads of 16": (lambda: unlike("llama", head_dim=16), "sizes"),
    "an odd inner size": (lambda: unlike("qwen3", intermediate_size=109), "odd number of inputs, 109"),
    "inner size": (lambda: unlike("qwen3", intermediate_size=104), "sizes"),
    "hidden size": (lambda: unlike("mistral", hidden_size=72), "sizes"),
    "another activation": (lambda: unlike("llama", hidden_act="relu"), "ReLU"),
    "a cap on its logits": (lambda: unlike("gemma3", final_logit_softcapping=30.0), "of the usual kind"),
    "an exact gelu": (lambda: unlike("llama", hidden_act="gelu"), "GELU"),
}


@pytest.mark.parametrize("what", sorted(UNFIT))
def test_what_does_not_fit_stays_as_it_was(what):
    """A model of another size would be read beyond its memory, one of another activation be another model."""
    make, said = UNFIT[what]
    model, again = make(), make()
    ready = prepare(model)
    fused = ready.model.get_decoder()
    assert isinstance(fused, FusedDecoder)
    assert said in str(reason_against_decoder(prepare(again, TORCH).model))
    ids = random_ids(16, 250)
    with torch.inference_mode():
        expected = make().float()(input_ids=torch.tensor([ids]), use_cache=False).logits[0, 8:]
    target = StaticTarget(ready, 256, (8,))
    target.extend(ids[:8], 0)
    rows = target.extend(ids[8:], 8)[0].float()
    assert float((rows - expected).abs().mean()) < 0.05 * float(expected.std())


def test_layers_that_differ_say_so():
    """One layer's sizes stand for all."""

    def bare(name: str = "qwen3") -> Any:
        model = prepare(made(name), TORCH).model
        assert reason_against_decoder(model) is None
        return model

    one, two, three = bare(), bare(), bare()
    one.model.layers[1].norms[0].eps = 1e-3
    two.model.layers[2].mlp = bare("gemma3").model.layers[0].mlp
    three.model.layers[0].self_attn.num_heads -= 1
    assert reason_against_decoder(one) == "its norms differ in eps"
    assert reason_against_decoder(two) == reason_against_decoder(three) == "its layers differ"
    assert "of the usual kind" in str(reason_against_decoder(nn.Linear(2, 2)))
