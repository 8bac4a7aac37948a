"""EAGLE-3 rows by one compiled call: the rows of the torch path but for rounding, whatever the head's form, the threads
and how rows are taken; words in reach of noise, none forgotten; weights in 8 bits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.choice.sampler import Sampler
from engine.drafters import head_drafter
from engine.drafters.eagle3 import Eagle3Drafter
from engine.errors import RaceError
from engine.kernels.cpu.build import has
from engine.kernels.cpu.bytes import ByteLinear
from engine.kernels.cpu.eagle3 import reason_against_head
from engine.kernels.cpu.heads import GatedMLP
from engine.kernels.cpu.linear import NativeLinear
from engine.spec import SamplingParams
from tests.helpers.head_files import save
from tests.helpers.head_fixtures import HEADS, VOCAB, context, formats_target, made, trained_target
from tests.helpers.native_heads import FORMS, PROMPT, K, drafter, head_of, rows_of, states
from tests.helpers.random_heads import EAGLE3, LAYERS, eagle3_tensors
from tests.helpers.tiny import PACKED, threads

pytestmark = pytest.mark.skipif(not has("photofinish_head"), reason="there is no compiled kernel for it here")


@pytest.fixture(scope="module", params=[True, False], ids=["8 bits", "16 bits"])
def packed(request, tmp_path_factory):
    """Heads by form, made once."""
    return cache(lambda form: head_of(tmp_path_factory.mktemp("head"), form, request.param))


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_those_of_torch(packed, form):
    """A flag misread in C would only cost acceptance, and never be seen."""
    head = packed(form)
    assert reason_against_head(head) is None
    for cuts in ([3], [len(PROMPT) - 2]):
        ours, theirs = (rows_of(drafter(head, natively, 64), cuts, [5, 500, 9, 77]) for natively in (True, False))
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            limit = 0.08 if place else 0.03  # random weights amplify what is fed back
            assert float((a.float() - b.float()).abs().mean()) < limit * float(b.float().std()), (
                f"row {place} of {form}"
            )
            assert torch.isfinite(a).all()


@pytest.mark.parametrize("form", ["speculators", "sliding layers", "one head of keys"])
def test_bits_depend_on_nothing_else(packed, form):
    """Whether a draft is right would depend on how many threads there are, or how many tokens the last step
    committed."""
    head = packed(form)
    expected = None
    for num, cuts in ((1, [3]), (2, [3]), (1, [20, 31, 32]), (2, [len(PROMPT) - 1])):
        with threads(num):
            rows = torch.stack(rows_of(drafter(head, True, 64), cuts, [5, 500]))
        expected = rows if expected is None else expected
        assert torch.equal(rows, expected)


def test_a_new_race_remembers_nothing(packed):
    """Keys and values of an earlier race would be looked at, or their NaN be mixed in with weight 0."""
    one = drafter(packed("speculators"), True)
    first = one.propose(PROMPT, None, K) if one.prefill(PROMPT, states(one)[:-1]) is None else None
    for side in (*one.buffers.keys, *one.buffers.values):
        side.fill_(torch.nan)
    one.prefill(PROMPT, states(one)[:-1])
    again = one.propose(PROMPT, None, K)
    assert first is not None and first.token_ids == again.token_ids and torch.equal(first.logits, again.logits)


def test_states_that_are_no_numbers_are_an_error(packed):
    """A head that was given NaN would draft some token for ever, and the lane only be slow."""
    one = drafter(packed("speculators"), True)
    one.prefill(PROMPT, torch.full_like(states(one)[:-1], torch.nan))
    with pytest.raises(RaceError, match="not numbers"):
        one.propose(PROMPT, None, K)


def test_tokens_outside_of_the_embedding_are_refused(packed):
    """Memory beyond the embedding would be read."""
    rows = drafter(packed("speculators"), True)._rows
    for token in (-1, VOCAB):
        with pytest.raises(IndexError, match="outside"):
            rows.follow(token, 3)
    with pytest.raises(AssertionError):
        rows.follow(1, 10**6)


def test_heads_that_do_not_fit_take_the_old_path(tmp_path):
    """A head of float32, or of heads of 16 numbers, would be refused or computed wrongly."""
    source = save(tmp_path / "head", {**EAGLE3, "transformer_layer_config": LAYERS}, eagle3_tensors(LAYERS, EAGLE3))
    for dtype, why in (("bfloat16", "multiples"), ("float32", "float32")):
        one = made(f"eagle3:{source}", formats_target(dtype), K)
        assert why in str(reason_against_head(one.head)) and type(one) is Eagle3Drafter


# --- weights in 8 bits


def test_a_packed_head_holds_a_byte_a_weight(packed):
    """The head's weights would still be read twice as slowly as they could."""
    head = packed("speculators")
    linears = [m for m in head.modules() if isinstance(m, NativeLinear)]
    assert len(linears) == 6 and len({type(m) for m in linears}) == 1 and isinstance(head.layers[0].mlp, GatedMLP)
    assert all(m.weights.element_size() == (1 if isinstance(m, ByteLinear) else 2) for m in linears)


# --- words in reach of noise


@settings(max_examples=150, deadline=None)
@given(
    num=st.integers(1, 500),
    spread=st.sampled_from([0.0, 0.3, 3.0, 30.0]),
    lead=st.sampled_from([0.0, 8.0, 300.0]),
    temperature=st.sampled_from([0.0, 0.1, 0.8, 2.0]),
    seed=st.integers(0, 2**63 - 1),
    position=st.integers(0, 5000),
    gone=st.booleans(),
)
def test_kernels_pick_as_the_sampler_does(num, spread, lead, temperature, seed, position, gone):
    """Drafts would have other noise than the target, or `auto` stop by margins that are none; whether one token stands
    out or all are alike, some cannot be drafted, or there is but one."""
    generator = torch.Generator().manual_seed(position)
    ids = torch.randperm(3000, generator=generator)[:num].sort().values
    row = torch.randn(num, generator=generator) * spread
    row[position % num] += lead
    if gone:
        row[torch.rand(num, generator=generator) < 0.5] = -torch.inf
        row[position % num] = lead
    row, params = row.bfloat16(), SamplingParams(temperature=temperature, seed=seed)
    ((index, margin),) = PACKED.picks(ids, params)(row, 1, position)
    scores = Sampler(params, 3000, PACKED).among(ids).scores(row, position).double()
    best = scores.topk(min(2, num)).values
    close = 1e-5 * (1 + spread * 4 + lead) / (temperature or 1)
    assert float(best[0] - scores[index]) <= close
    assert margin == pytest.approx(float(best[0] - best[-1]) if num > 1 else float("inf"), abs=close)


def test_what_is_picked_another_way_is_left_to_the_sampler(monkeypatch):
    """top-k and top-p would be left out, or a whole vocabulary be hashed for every token."""
    target = trained_target("bfloat16")
    here, head = context(target, K, temperature=0.8), made(f"eagle3:{HEADS['eagle3']}", target, K).head
    cut = Sampler(SamplingParams(temperature=0.8, top_k=5), target.prepared.vocab_size, PACKED)
    assert Eagle3Drafter(head, here)._host_picks is not None
    assert Eagle3Drafter(head, replace(here, sample=cut))._host_picks is None
    monkeypatch.setattr(head_drafter, "MOST_COLUMNS", 9)
    assert Eagle3Drafter(head, here)._host_picks is None


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 3, 16, 99])
def test_rows_that_are_no_numbers_are_an_error(temperature, wrong, place):
    """Token 0 would be drafted for ever, and the lane only be slow."""
    row = torch.zeros(100, dtype=torch.bfloat16)
    row[place] = wrong
    with pytest.raises(RaceError, match="not numbers"):
        params, ids = SamplingParams(temperature=temperature, seed=1), torch.arange(100)
        PACKED.picks(ids, params)(row, 1, 0)
