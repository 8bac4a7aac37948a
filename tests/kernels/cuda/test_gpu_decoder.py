"""Whole models on the Triton kernels, in Triton's interpreter: the same model as transformers', and the same tokens
whatever is drafted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.core.events import Step
from engine.core.spec import SamplingParams
from engine.runner.target import StaticTarget
from tests.helpers.fakes import Empty, Oracle, Random
from tests.helpers.gpu_models import CHANGES, fresh, prepared
from tests.helpers.tiny import LENGTH, WINDOW, lane, random_ids

HIDDEN = (0, 1)


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_on_the_kernels_is_the_same_model(name: str) -> None:
    """Another model than transformers', by more than rounding: in its logits, or in its hidden states."""
    num_prefill, num = WINDOW + 3, WINDOW + 3 + 11
    target = StaticTarget(prepared(name), LENGTH, (3, 8), HIDDEN)
    ids = random_ids(num, target.vocab_size, 3)
    target.extend(ids[:num_prefill], 0)
    steps = [[x.clone().float() for x in target.extend(ids[i : i + n], n)] for i, n in ((19, 3), (22, 8))]
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        with torch.inference_mode():
            out = fresh(name, dtype)(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
        found.append((out.logits[0].float(), torch.cat([out.hidden_states[i][0] for i in HIDDEN], -1).float()))
    for ours, right, theirs in zip(map(torch.cat, zip(*steps, strict=True)), *found, strict=True):
        right, theirs = right[num_prefill:], theirs[num_prefill:]
        assert float((ours - right).abs().mean()) < 2 * float((theirs - right).abs().mean())


def test_whole_steps_on_the_kernels_write_the_same_tokens_whatever_is_drafted() -> None:
    """The lanes of a race on CUDA, chosen tokens and accepted counts included, would part; or a lane whose kernels are
    torch's would be another race."""
    params = SamplingParams(temperature=0.8, seed=5, max_new_tokens=3)
    prompt = random_ids(6, prepared("qwen3").vocab_size, 1)

    def written_by(drafter: Any, width: int, k: int, whole: bool) -> tuple[list[int], list[int]]:
        target = StaticTarget(prepared("qwen3"), LENGTH, (width,), whole_steps=whole)
        steps = [
            event
            for event in lane(prepared("qwen3"), drafter, prompt, (width,), params, k, target=target)
            if isinstance(event, Step)
        ]
        return [token for step in steps for token in step.token_ids], [row for step in steps for row in step.checksums]

    tokens, rows = written_by(Empty(), 1, 0, True)
    assert (
        (tokens, rows)
        == written_by(Random(3, tokens, prepared("qwen3").vocab_size), 3, 2, True)
        == written_by(Oracle(tokens), 4, 3, True)
    )
    assert (tokens, rows) == written_by(Empty(), 1, 0, False)
