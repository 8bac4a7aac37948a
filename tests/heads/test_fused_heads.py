"""What drafting on the CPU does in fewer operations: the same picks, the same rows, and nothing computed that nobody
reads."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.choice.sampler import Sampler
from engine.drafters.eagle3 import Eagle3Drafter, HostEagle3Drafter
from engine.drafters.host_picks import MOST_COLUMNS, HostPicks, host_picks
from engine.errors import RaceError
from engine.heads import eagle3
from engine.heads.formats import read_spec
from engine.spec import SamplingParams
from tests.helpers.head_fixtures import (
    EAGLE3,
    HEADS,
    LAYERS,
    VOCAB,
    context,
    eagle3_tensors,
    formats_target,
    hidden_rows,
    made,
    save,
    tensors_of,
    trained_target,
)
from tests.helpers.tiny import PACKED

K = 5
PROMPT = list(range(7, 40))
WORDS = 3000


@cache
def sampler(temperature: float, seed: int) -> Sampler:
    return Sampler(SamplingParams(temperature=temperature, seed=seed), WORDS, PACKED)


# --- picks


@given(
    num=st.integers(1, 500),
    spread=st.sampled_from([0.0, 0.3, 3.0, 30.0]),
    lead=st.sampled_from([0.0, 8.0, 300.0]),
    temperature=st.sampled_from([0.0, 0.1, 0.8, 2.0]),
    seed=st.integers(0, 2**63 - 1),
    position=st.integers(0, 5000),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_a_pick_is_the_samplers_and_so_is_its_margin(num, spread, lead, temperature, seed, position, dtype):
    """Drafts would have other noise than the target, which costs most of the acceptance, or `auto` stop by margins that
    are none; whether one token stands out or all are alike."""
    generator = torch.Generator().manual_seed(position)
    ids = torch.randperm(WORDS, generator=generator)[:num].sort().values
    row = torch.randn(num, generator=generator) * spread
    row[position % num] += lead
    row = row.to(dtype)
    index, margin = HostPicks(sampler(temperature, seed).params, ids)(row, position)
    scores = sampler(temperature, seed).among(ids).scores(row, position).double()
    best = scores.topk(min(2, num)).values
    close = 1e-5 * (1 + float(scores.abs().max()))
    assert float(best[0] - scores[index]) <= close
    assert margin == pytest.approx(float(best[0] - best[-1]), abs=close) if num > 1 else margin == float("inf")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_words_that_cannot_be_drafted_are_not(temperature):
    """Logits of -inf are no error, and nothing to be picked; nor do they hide the second best."""
    row = torch.full((100,), -torch.inf)
    row[[40, 60]] = torch.tensor([1.0, 500.0])
    index, margin = HostPicks(sampler(temperature, 1).params, torch.arange(100))(row, 0)
    assert index == 60 and 400 < margin < 1000
    row[40] = -torch.inf
    assert HostPicks(sampler(temperature, 1).params, torch.arange(100))(row, 0) == (60, float("inf"))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_row_that_is_no_numbers_is_an_error(temperature):
    """Token 0 would be drafted for ever, and the lane only be slow."""
    row = torch.zeros(100)
    row[3] = torch.nan
    with pytest.raises(RaceError, match="not numbers"):
        HostPicks(sampler(temperature, 1).params, torch.arange(100))(row, 0)


def test_what_is_picked_another_way_is_left_to_the_sampler():
    """top-k and top-p would be left out, or a whole vocabulary be hashed for every token."""
    here = context(formats_target(), K, temperature=0.8)
    assert host_picks(here, None) is not None and host_picks(here, torch.arange(9)) is not None
    cut = SimpleNamespace(loaded=here.loaded, sample=Sampler(SamplingParams(temperature=0.8, top_k=5), VOCAB, PACKED))
    large = SimpleNamespace(
        loaded=SimpleNamespace(prepared=SimpleNamespace(kernels=PACKED, vocab_size=MOST_COLUMNS + 1)),
        sample=here.sample,
    )
    assert all(host_picks(each, None) is None for each in (cut, large))


# --- rows


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
    apart = eagle3.build(spec, tensors_of(HEADS["eagle3"]), shape.hidden_size, trained_target().prepared.vocab_size)
    model = trained_target().model
    apart.lend(model.get_input_embeddings().weight, model.get_output_embeddings())
    rows = rows_for(joined)[:-1]
    here = context(trained_target(), K)
    drafts = []
    for drafter in (
        joined,
        HostEagle3Drafter(apart, here),
        Eagle3Drafter(apart, here),
        Eagle3Drafter(joined.head, here),
    ):
        drafter.prefill(PROMPT, rows)
        drafts.append(drafter.propose(PROMPT, None, K).token_ids)
    assert len(drafts[0]) == K and len(set(drafts)) == 1


def test_rows_that_nobody_reads_are_not_computed(monkeypatch):
    """A prompt's rows would go through the last layer's MLP, which is most of a head, only to be dropped; a catch-up of
    eight rows would cost eight."""
    drafter = made(f"eagle3:{HEADS['eagle3']}", trained_target(), K)
    sizes: list[int] = []
    last = drafter.head.layers[-1].mlp
    monkeypatch.setattr(last, "forward", lambda x, forward=last.forward: sizes.append(len(x)) or forward(x))
    drafter.prefill(PROMPT, rows_for(drafter)[:-1])
    assert sizes == []
    drafter.propose(PROMPT, None, 3)
    assert sizes == [1, 1, 1]
