"""Int8 weights as an option of the target: rows are theirs alone, and a race of them is as exact as any other."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

from engine.core.errors import UnsupportedModel, UsageError
from engine.exactness.probe import probe
from engine.kernels.cpu import build
from engine.kernels.cpu.bytes import ByteLinear
from engine.kernels.cpu.linear import NativeLinear
from engine.kernels.cpu.packing import PackedLinear
from engine.kernels.cuda.kernels import CudaKernels
from engine.loading.loading import load
from engine.runner import prepare as preparing
from engine.runner.prepare import INT8_LIMIT, prepare
from engine.runner.prepared import Prepared
from engine.runner.target import StaticTarget
from tests.helpers.native_kernels import needs_byte_kernels
from tests.helpers.tiny import LENGTH, NAMES, TRAINED, fresh, random_ids, stock


@cache
def prepared(name: str) -> Prepared:
    """Every linear in int8."""
    return prepare(fresh(name, torch.bfloat16), int8=True)


@needs_byte_kernels
def test_an_operator_of_other_bits_is_found(few_rows):
    """The probe would look at every linear but these."""
    model = prepare(fresh("llama", torch.bfloat16), int8=True)
    layer = model.model.model.layers[0].mlp.down_proj
    inner = layer.forward
    assert isinstance(layer, ByteLinear)
    before = probe(StaticTarget(model, LENGTH, (4, 8))).classes
    layer.forward = lambda x: inner(x) * (1.25 if x.shape[-2] == 8 else 1)
    assert before == ((4, 8),) and probe(StaticTarget(model, LENGTH, (4, 8))).classes == ((4,), (8,))


@needs_byte_kernels
@pytest.mark.parametrize("name", (*NAMES, "trained"))
def test_int8_changes_no_more_than_its_rounding(name):
    """Weights in another place, or scales of another row, would pass for the model's."""
    model = prepared(name)
    ids = random_ids(24, model.vocab_size, 2)
    expected = stock(name, torch.bfloat16)(input_ids=torch.tensor([ids])).logits[0].detach().float()
    found = StaticTarget(model, LENGTH, (24,)).extend(ids, 24)[0].float()
    assert 0 < float((found - expected).abs().mean() / expected.std()) < INT8_LIMIT / 6


@needs_byte_kernels
def test_a_model_that_kernels_ruin_is_refused(monkeypatch):
    """The page would call a model by its name that it is no longer."""
    monkeypatch.setattr(preparing, "INT8_LIMIT", 1e-3)
    with pytest.raises(UnsupportedModel, match="int8 weights cost it too much"):
        prepare(fresh("llama", torch.bfloat16), int8=True)


@needs_byte_kernels
def test_what_is_loaded_as_int8():
    """The option would be recorded and not done, or a drafter rounded too, which costs acceptance and saves little."""
    loaded = load(str(TRAINED), "int8", "cpu")
    assert (
        loaded.info.dtype == "int8"
        and loaded.prepared.int8
        and loaded.model.dtype == loaded.prepared.dtype == torch.bfloat16
    )
    linears = (nn.Linear, PackedLinear, NativeLinear)
    assert {type(module) for module in loaded.model.modules() if isinstance(module, linears)} == {ByteLinear}
    embedding = stock("trained", torch.bfloat16).model.embed_tokens.weight
    assert torch.equal(loaded.model.get_input_embeddings().weight, embedding)
    draft = loaded.companion(str(TRAINED.parent / "draft"))
    assert draft.info.dtype == "bfloat16" and not draft.prepared.int8


def test_where_int8_is_not_to_be_had_the_choices_are_named(monkeypatch):
    """A GPU would run a step of the CPU, or a CPU without the kernels call bfloat16 int8."""
    assert "for the CPU, not for 'cuda:0'" in CudaKernels(torch.device("cuda", 0), None).reason_against_int8()
    monkeypatch.setattr(build, "has", lambda name: False)
    says = r"'int8' needs a processor with AVX-512 and a C compiler.*or one of: auto, bfloat16"
    with pytest.raises(UsageError, match=says):
        load(str(TRAINED), "int8", "cpu")
