"""A draft model whose drafts stay on the device until they are whole: the tokens picked row by row, and one wait."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.choice.sampler import Sampler
from engine.drafters import model_kinds
from engine.drafters.device_draft_model import DeviceDraftModelDrafter
from engine.drafters.device_picks import stays_on_device
from engine.drafters.draft_model import WIDTH, DraftModelDrafter
from engine.errors import RaceError
from engine.kernels.cuda.available import SWITCH
from engine.kernels.torch import TorchKernels
from engine.spec import SamplingParams
from engine.target.prepare import prepare
from engine.target.prepared import Prepared
from engine.target.target import StaticTarget
from tests.helpers import (
    gpu_kernels,  # noqa: F401  it switches the interpreter on
    linear_models,
    tiny,
)
from tests.helpers.fake_cuda import CUDA, fake_cuda, on_cuda
from tests.helpers.head_fixtures import FIXTURES, context, raced, trained_target
from tests.helpers.tapes import record_fixed_calls
from tests.helpers.tiny import PACKED, random_ids
from tests.helpers.trained import DRAFT

K = 7
LENGTH = 256
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "temperature": SamplingParams(temperature=0.8, seed=3),
    "top-k and top-p": SamplingParams(temperature=0.8, top_k=20, top_p=0.9, seed=3),
}
NUM_IDS = 190
up_to_k = st.integers(0, K)
MODELS = {"llama": tiny, "gemma3": tiny, "qwen3_next": linear_models, "qwen3_5": linear_models}
OTHERS = (("gemma3", "greedy"), ("qwen3_next", "temperature"), ("qwen3_5", "top-k and top-p"))
PAIRS = [*(("llama", which) for which in SAMPLINGS), *(pytest.param(*pair, marks=pytest.mark.slow) for pair in OTHERS)]
"""How tokens are picked knows nothing of the model that made the rows: each model with one rule, each rule on one."""
each_pair = pytest.mark.parametrize(("name", "which"), PAIRS)


def pair_over(prepared: Prepared, params: SamplingParams) -> tuple[DeviceDraftModelDrafter, DraftModelDrafter]:
    """(the drafter whose drafts stay on the device, the other), over one model. The target's vocabulary is smaller."""
    sampler = Sampler(params, NUM_IDS, prepared.kernels)
    ours, theirs = (StaticTarget(prepared, LENGTH, (WIDTH,), reach=K) for _ in range(2))
    drafter = DeviceDraftModelDrafter(ours, sampler, NUM_IDS, K)
    drafter.warm()
    return drafter, DraftModelDrafter(theirs, sampler, NUM_IDS)


@cache
def pair(name: str, dtype: torch.dtype, which: str) -> tuple[DeviceDraftModelDrafter, DraftModelDrafter]:
    return pair_over(MODELS[name].prepared(name, dtype), SAMPLINGS[which])


def test_a_constructor_computes_nothing(monkeypatch):
    """Graphs would be captured wherever one is made, and not where a race warms up."""
    called: list[Any] = []
    monkeypatch.setattr(TorchKernels, "fixed", lambda self, function, *more: lambda: called.append(function))
    prepared = tiny.prepared("llama")
    model = StaticTarget(prepared, LENGTH, (WIDTH,), reach=K)
    drafter = DeviceDraftModelDrafter(model, Sampler(SAMPLINGS["greedy"], NUM_IDS, prepared.kernels), NUM_IDS, K)
    assert not called
    drafter.warm()
    assert len(called) == 2


@each_pair
@settings(max_examples=10)
@given(
    num_prompt=st.integers(1, 20),
    seed=st.integers(0, 999),
    steps=st.lists(st.tuples(up_to_k, up_to_k, st.integers(1, 4), up_to_k), min_size=1, max_size=8),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_a_draft_on_the_device_is_the_same_draft(name, which, num_prompt, seed, steps, dtype):
    """Draft models would have another acceptance on CUDA, and only speed would tell: after a rejection, a whole draft
    accepted, a step without a draft, or with the states of linear layers that a rejected draft left."""
    drafters = pair(name, dtype, which)
    committed = random_ids(num_prompt, NUM_IDS, seed)
    for drafter in drafters:
        drafter.prefill(committed, None)
    for index, (k, num_accepted, num_new, stop) in enumerate([*steps, (K, 0, 1, 0)]):
        told: list[list[float]] = [[], []]
        if stop:
            goes = [lambda _, m, said=said, stop=stop: said.append(m) or len(said) < stop for said in told]
            ours, theirs = (d.propose_while(committed, None, k, go) for d, go in zip(drafters, goes, strict=True))
        else:
            ours, theirs = (d.propose(committed, None, k) for d in drafters)
        assert ours == theirs and len(ours) == min(k, stop or k)
        assert told[0] == pytest.approx(told[1], abs=1e-5)
        lengths = [d._model.length for d in drafters]
        assert lengths[0] == lengths[1]
        committed = [*committed, *ours.token_ids[:num_accepted], *random_ids(num_new, NUM_IDS, seed + index)]


def trained_drafter(prompt: list[int], params: SamplingParams, k: int, on_device: bool, monkeypatch: Any) -> Any:
    """As a race makes it."""
    here = context(trained_target(), k, prompt)
    here = replace(here, params=params, sample=Sampler(params, here.loaded.prepared.vocab_size, PACKED))
    with monkeypatch.context() as patch:
        patch.setattr("engine.drafters.device_picks.stays_on_device", partial(stays_on_device, wanted=on_device))
        return model_kinds.KIND.make(str(DRAFT), here)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "which"), [(1, "greedy"), (2, "temperature"), (4, "top-k and top-p"), (7, "greedy"), (7, "temperature")]
)
def test_recorded_drafts_of_a_race_are_the_same(k, which, monkeypatch):
    """A graph repeats what was done when it was captured: every draft would be that of one place."""
    prompt = json.loads((FIXTURES / "golden.json").read_text())["prompt_token_ids"]
    params = replace(SAMPLINGS[which], seed=5)
    drafter = trained_drafter(prompt, params, k, False, monkeypatch)
    lanes = [raced(trained_target(), drafter, prompt, k, params.temperature)]
    tapes = record_fixed_calls(monkeypatch)
    drafter = trained_drafter(prompt, params, k, True, monkeypatch)
    assert isinstance(drafter, DeviceDraftModelDrafter)
    num_made = len(tapes)
    lanes.append(raced(trained_target(), drafter, prompt, k, params.temperature))
    theirs, ours = ([(s.drafted, s.num_accepted, s.token_ids, s.checksums) for s in lane] for lane in lanes)
    assert ours == theirs and len({s.num_accepted for s in lanes[0]}) > 1
    assert len(tapes) == num_made + 1, "all but the target's were recorded before the race"


@each_pair
def test_a_draft_is_captured_and_waited_for_once(name, which, monkeypatch):
    """Each token of a draft would wait for the host. New tokens go to the device without a wait; the draft is read."""
    monkeypatch.setenv(SWITCH, "0")
    model = MODELS[name].fresh(name, torch.bfloat16)
    with fake_cuda() as device:
        drafter, other = pair_over(prepare(on_cuda(model)), SAMPLINGS[which])
        assert drafter._input.pointer.device == CUDA
        num_graphs, committed = len(device.graphs), random_ids(12, NUM_IDS)
        drafter.prefill(committed, None)
        other.prefill(committed, None)
        drafts = []
        for k in (K, 1, 3, K, 2):
            before = device.waits
            draft = drafter.propose(committed, None, k)
            assert device.waits - before == 1 and len(draft) == k
            before = device.waits
            assert drafter.propose_while(committed, None, k, lambda token, margin: True) == draft
            assert device.waits - before == k
            drafts.append((tuple(committed), k, draft))
            committed += [*draft.token_ids[: k // 2], 5]
        assert len(device.graphs) == num_graphs, "all was captured before the first draft"
        assert [other.propose(tokens, None, k) for tokens, k, _ in drafts] == [draft for _, _, draft in drafts]


def test_a_draft_model_without_numbers_is_an_error_in_words(monkeypatch):
    """It would draft token -1, or look up a row of its embedding that there is not."""
    drafter, _ = pair_over(tiny.prepared("llama"), SAMPLINGS["top-k and top-p"])
    drafter.prefill([1, 2, 3], None)
    forward = drafter._forward
    monkeypatch.setattr(drafter, "_forward", lambda ids: (forward(ids)[0] * torch.nan, None))
    with pytest.raises(RaceError, match=r"not numbers \(NaN\)"):
        drafter.propose([1, 2, 3, 4], None, 3)
