"""What a bench holds in memory: the weights of an 8B target fill a GPU, and are there once."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from engine.bench import measure as measure_module
from engine.bench.prompts import Size
from engine.bench.stock import ready_with_stock
from engine.models import loading
from engine.models.loading import LoadedModel, ModelInfo
from engine.progress import silent
from engine.spec import SamplingParams
from tests.helpers import (
    gpu_kernels,  # noqa: F401  it switches the interpreter on
    linear_models,
    tiny,
)
from tests.helpers.fake_cuda import CudaTensor, fake_cuda, on_cuda
from tests.helpers.tiny import TRAINED

DRAFT = TRAINED.parent / "draft"


def storages(*models: torch.nn.Module) -> int:
    """Bytes of all that parameters and buffers of these models lie in, what several share once."""
    parts = [part.untyped_storage() for model in models for part in (*model.parameters(), *model.buffers())]
    return sum({part.data_ptr(): part.nbytes() for part in parts}.values())


@pytest.mark.parametrize("name", ["trained", "qwen3_5", "gemma3"])
def test_on_a_gpu_there_is_one_set_of_weights(name, monkeypatch):
    """A bench of an 8B target on a GPU would take the memory of two: ours and transformers'. Buffers of the stock copy
    and rounding of norms are all that may come on top."""
    monkeypatch.setenv("PHOTOFINISH_TRITON", "0")
    model = (linear_models if name in linear_models.NAMES else tiny).fresh(name)
    with fake_cuda():
        loaded = LoadedModel(on_cuda(model), None, ModelInfo(name, "", "", "float32", "cuda:0", ""))
        before = storages(loaded.model)
        stock = ready_with_stock(loaded)
        assert all(type(weight.data) is CudaTensor for weight in stock.parameters())
        shared = storages(loaded.model, stock) - storages(loaded.model)
        assert shared < 0.05 * before, (shared, before)


@pytest.mark.slow
def test_a_bench_reads_no_weights_twice(monkeypatch):
    """The same, of the whole command: the target, and the draft model of a lane, are loaded once each."""
    read, model = [], loading._model
    monkeypatch.setattr(loading, "_model", lambda source, *more: read.append(source.name) or model(source, *more))
    options = Namespace(target=str(TRAINED), dtype="float32", device="cpu", threads=1, k=3, quick=True)
    size = Size(prompts=1, repeats=1, tokens=12, rounds=1, compiled=False)
    report, faults = measure_module.measure(
        options, (f"draft_model:{DRAFT}",), ("json",), size, SamplingParams(max_new_tokens=12), [], silent
    )
    assert not faults and {row["name"] for row in report["rows"]} >= {"hf_eager", "hf_assisted", f"draft_model:{DRAFT}"}
    assert sorted(read) == [str(DRAFT), str(TRAINED)]
