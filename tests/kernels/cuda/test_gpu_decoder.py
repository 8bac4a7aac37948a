"""Whole models on the Triton kernels, in Triton's interpreter: the same model as transformers'."""

import pytest
import torch

from engine.runner.target import StaticTarget
from tests.helpers.gpu_models import CHANGES, fresh, prepared
from tests.helpers.tiny import LENGTH, WINDOW, random_ids

HIDDEN = (0, 1)


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_on_the_kernels_is_the_same_model(name: str) -> None:
    """Another model than transformers', by more than rounding: in its logits, or in its hidden states."""
    num_prefill, num = WINDOW + 3, WINDOW + 3 + 11
    target = StaticTarget(prepared(name), LENGTH, (3, 8), HIDDEN)
    ids = random_ids(num, target.vocab_size, 3)
    target.extend(ids[:num_prefill], 0)
    steps = [[x.clone().float() for x in target.extend(ids[i : i + n], n)] for i, n in ((19, 3), (22, 8))]
    references = []
    for dtype in (torch.float32, torch.bfloat16):
        with torch.inference_mode():
            out = fresh(name, dtype)(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
        references.append((out.logits[0].float(), torch.cat([out.hidden_states[i][0] for i in HIDDEN], -1).float()))
    for ours, right, theirs in zip(map(torch.cat, zip(*steps, strict=True)), *references, strict=True):
        right, theirs = right[num_prefill:], theirs[num_prefill:]
        assert float((ours - right).abs().mean()) < 2 * float((theirs - right).abs().mean())
