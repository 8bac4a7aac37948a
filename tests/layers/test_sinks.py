"""Attention sinks: one more score in every head's softmax, of no value."""

from typing import Any

import pytest
import torch

from engine.core.errors import UnsupportedModel
from engine.exactness import operators
from engine.kernels.cpu import kernels
from engine.layers import attention
from engine.layers.attention import attend_rows
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from engine.training import written
from tests.helpers.families import of_family
from tests.helpers.native_kernels import needs_kernels
from tests.helpers.tiny import DTYPES, LENGTH, PACKED, random_ids, rows_of

FAULTS: dict[str, Any] = {"none": lambda x: x, "left out": lambda x: None, "of another head": lambda x: x.roll(1)}


def stock(family: str, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    """A model whose sinks take a good part of what heads look at."""
    model = of_family(family, dtype, **settings)
    for layer in model.model.layers:
        layer.self_attn.sinks.data += torch.arange(-1, 3)
    return model


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("family", ["gpt-oss", "granite with sinks"])
@torch.inference_mode()
def test_greedy_text_is_that_of_transformers(family, fault, monkeypatch):
    """A model without its sinks, or with another head's, writes something else, and both lanes would agree on it: the
    comparison with the stock model is for that. Or its head would learn the hidden states of such a model."""
    model = stock(family)
    texts = model.generate(torch.tensor([random_ids(40, 200, seed) for seed in range(4)]), max_new_tokens=24)
    logits = model(input_ids=texts).logits
    model.set_attn_implementation(written.NAME)
    torch.testing.assert_close(model(input_ids=texts).logits, logits, atol=1e-3, rtol=1e-3)
    monkeypatch.setattr(attention, "attend_rows", lambda *call: attend_rows(*call[:-1], FAULTS[fault](call[-1])))
    model.set_attn_implementation("eager")
    if fault != "none":
        with pytest.raises(
            UnsupportedModel, match=r"ForCausalLM: the fixed step's logits differ from the stock model's"
        ):
            prepare(model)
        return
    target = StaticTarget(prepare(model), LENGTH, (8,))
    tokens = [(target.jump(0), rows_of(target, ids, 8).argmax(-1))[1][39:-1] for ids in texts.tolist()]
    assert torch.equal(torch.stack(tokens), texts[:, 40:])


@needs_kernels
@pytest.mark.parametrize("fault", FAULTS)
@torch.inference_mode()
def test_compiled_attention_serves_transformers_own_decoders(fault, monkeypatch):
    """gpt-oss would copy its keys and values in every step, or race without its sinks."""
    model = stock("gpt-oss", torch.bfloat16, head_dim=32)
    attend = kernels.attend
    monkeypatch.setattr(kernels, "attend", lambda *call: attend(*call[:-1], FAULTS[fault](call[-1])))
    if fault == "none":
        assert "attention: ours, compiled C" in prepare(model, PACKED).kernels.runs(model)
    else:
        with pytest.raises(UnsupportedModel, match="logits differ from the stock model's"):
            prepare(model, PACKED)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sinks_split_no_class_of_widths_and_the_probe_looks_at_them(dtype, few_rows, monkeypatch):
    """Drafts would change a token only because the model has sinks; or where they do, nobody would know."""
    model, widths = prepare(stock("gpt-oss", dtype)), [(1, 2, 4, 16)]
    classes = operators.split_by_attention(model, LENGTH, widths)
    wrong = lambda query, *more: attend_rows(query, *more) * (1 + query.shape[2] * (len(more) == 5))  # noqa: E731
    monkeypatch.setattr(operators, "attend_rows", wrong)
    assert len(operators.split_by_attention(model, LENGTH, widths)) == 4
    for layer in model.model.model.layers:
        del layer.self_attn.sinks
    assert operators.split_by_attention(model, LENGTH, widths) == classes
