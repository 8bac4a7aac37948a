"""Rows of fixed shapes, as every machine without compiled kernels computes them: however they are taken, whether
projections are joined, and in both dtypes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine.drafters.dflash import DFlashDrafter
from engine.drafters.eagle3 import Eagle3Drafter
from engine.heads.build import build
from engine.heads.formats import read_spec
from engine.models.loading import LoadedModel, ModelInfo
from engine.target.prepare import prepare
from tests.helpers.head_files import save, tensors_of
from tests.helpers.head_fixtures import FORMATS, HEADS, context, formats_target, hidden_rows, made, trained_target
from tests.helpers.random_heads import EAGLE3, LAYERS, eagle3_tensors
from tests.helpers.tiny import TORCH

K = 5
PROMPT = list(range(7, 40))
FIXED = {"eagle3": Eagle3Drafter, "dflash": DFlashDrafter}


def rows_for(drafter: Any) -> Tensor:
    rows = hidden_rows(drafter, PROMPT, drafter.buffers.hidden.shape[1] // len(drafter.hidden_layers))
    assert rows is not None
    return rows


@settings(max_examples=10)
@given(
    cuts=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    num_layers=st.sampled_from([1, 2]),
    window=st.sampled_from([None, 4]),
)
def test_rows_do_not_depend_on_how_they_are_taken(tmp_path_factory, cuts, num_layers, window):
    """One row at a time or many, in a prompt or after it: a mask or a place would be off by one where several come at
    once."""
    layers = {**LAYERS, "num_hidden_layers": num_layers}
    if window:
        layers |= {
            "model_type": "qwen3",
            "layer_types": ["sliding_attention"] * num_layers,
            "sliding_window": window,
            "use_sliding_window": True,
        }
    folder = tmp_path_factory.mktemp("head")
    source = save(
        folder / "head",
        {**EAGLE3, "transformer_layer_config": layers},
        eagle3_tensors(layers, EAGLE3, qk_norm=bool(window)),
    )
    drafter = made(f"eagle3:{source}", formats_target(), 12, keep_logits=True)
    rows = rows_for(drafter)
    drafter.prefill(PROMPT[:3], rows[:2])
    known, new = 3, None
    for cut in [*cuts, len(PROMPT)]:
        drafter.propose(PROMPT[:known], new, 2)
        new = rows[known - 1 : min(len(PROMPT), known + cut) - 1]
        known = min(len(PROMPT), known + cut)
    draft = drafter.propose(PROMPT, new, 3)
    drafter.prefill(PROMPT, rows[:-1])
    whole = drafter.propose(PROMPT, None, 3)
    assert draft.token_ids == whole.token_ids
    finite = whole.logits.isfinite()
    torch.testing.assert_close(draft.logits[finite], whole.logits[finite], atol=1e-4, rtol=1e-4)


def test_a_head_whose_projections_are_apart_drafts_the_same():
    """A head in training, which keeps q, k and v apart, would be judged by other drafts than it makes later."""
    spec = read_spec(HEADS["eagle3"], "eagle3", 6)
    joined = made(f"eagle3:{HEADS['eagle3']}", trained_target(), K)
    shape = trained_target().prepared.shape
    apart = build(spec, tensors_of(HEADS["eagle3"]), shape.hidden_size, trained_target().prepared.vocab_size)
    model = trained_target().model
    apart.lend(model.get_input_embeddings().weight, model.get_output_embeddings())
    rows = rows_for(joined)[:-1]
    here = context(trained_target(), K)
    drafts = []
    for drafter in (joined, Eagle3Drafter(apart, here)):
        drafter.prefill(PROMPT, rows)
        drafts.append(drafter.propose(PROMPT, None, K).token_ids)
    assert len(drafts[0]) == K and len(set(drafts)) == 1


@pytest.mark.parametrize("kind", HEADS)
def test_heads_draft_by_torch_alone(kind):
    """A machine without a compiler, or of another make, could not draft at all, or drafts of bfloat16 be nonsense."""
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        model = AutoModelForCausalLM.from_pretrained(FORMATS / "target", dtype=dtype).eval().requires_grad_(False)
        loaded = LoadedModel(model, None, ModelInfo("formats/target", "", "", str(dtype), "cpu", ""))
        loaded.attached("prepared", lambda model=model: prepare(model, TORCH))
        drafter = made(f"{kind}:{FORMATS / kind}", loaded, K, keep_logits=True)
        assert type(drafter) is FIXED[kind] and drafter._host_picks is None
        assert type(drafter.head.fc) is torch.nn.Linear and drafter.buffers.keys[0].dtype == dtype
        drafter.prefill(PROMPT, rows_for(drafter)[:-1])
        draft = drafter.propose(PROMPT, None, K)
        assert len(draft) == K
        rows.append(draft.logits[0].float())
    words = rows[0].isfinite()
    whole, rounded = (row[words] for row in rows)
    assert float((whole - rounded).abs().mean()) < 0.08 * float(whole.std())
