"""Heads packed for compiled kernels, whatever their form: EAGLE-3 as compiled calls, torch's rows but for rounding;
DFlash by torch over packed linears. And tokens picked from rows. That the bits of compiled rows depend on nothing else
is in ../test_row_bits.py."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from engine.core.errors import RaceError
from engine.core.sampling.noise import splitmix64
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.drafters.device_heads import drafter_of
from engine.drafters.dflash import DFlashDrafter
from engine.drafters.eagle3 import Eagle3Drafter, HostEagle3Drafter
from engine.kernels.cpu.build import has
from engine.kernels.cpu.bytes import ByteLinear
from engine.kernels.cpu.eagle3 import reason_against_head
from engine.kernels.cpu.linear import NativeLinear
from tests.helpers.heads import (
    HEADS,
    NATIVE_FORMS,
    PROMPT,
    SIZE,
    VOCAB,
    K,
    drafter_with,
    formats_target,
    made,
    packed,
    random_head,
    rows_of,
    save,
    states,
)
from tests.helpers.native_kernels import needs_byte_kernels, on
from tests.helpers.tiny import PACKED, TORCH
from tests.helpers.trained import context, trained

pytestmark = pytest.mark.skipif(not has("photofinish_head"), reason="there are no compiled kernels for heads here")
needs_picks = pytest.mark.skipif(not has("photofinish_picks"), reason="there is no compiled kernel for picks here")
ROUNDED = [pytest.param(True, marks=needs_byte_kernels, id="8 bits"), pytest.param(False, id="16 bits")]
head = cache(packed)  # by kind and form, each made once
DRAFTERS = {"eagle3": HostEagle3Drafter, "dflash": DFlashDrafter}


def drafts(drafter: Any, ends: Sequence[int], k: int = K) -> Any:
    """The draft after the prompt, which is taken in parts that end at `ends`, with a draft after each but the first."""
    hidden = torch.randn(len(PROMPT), 3 * SIZE, generator=torch.Generator().manual_seed(1)).bfloat16()
    drafter.prefill(PROMPT[: ends[0]], hidden[: ends[0] - 1])
    for before, end in zip(ends, [*ends[1:], len(PROMPT)], strict=True):
        draft = drafter.propose(PROMPT[:end], hidden[before - 1 : end - 1], k)
    return draft


def logits_of(draft: Any) -> Tensor:
    return draft.logits[:, draft.logits[0].isfinite()]


def error_of(ours: Tensor, theirs: Tensor) -> Tensor:
    """The mean error of each row, in standard deviations of theirs."""
    return (ours.float() - theirs.float()).abs().mean(-1) / theirs.float().std(-1)


@pytest.mark.parametrize("rounded", ROUNDED)
@pytest.mark.parametrize("form", NATIVE_FORMS["eagle3"])
def test_eagle3_rows_are_those_of_torch(form, rounded):
    """A flag misread in C would only cost acceptance, and nobody would see it."""
    made = head("eagle3", form, rounded)
    assert reason_against_head(made) is None
    linears = {type(module) for module in made.modules() if isinstance(module, NativeLinear)}
    assert linears == {ByteLinear if rounded else NativeLinear}
    for ends in ([3], [len(PROMPT) - 2]):
        drafters = (drafter_with(made, drafter, 64) for drafter in (HostEagle3Drafter, Eagle3Drafter))
        both = (rows_of(drafter, ends, [5, 500, 9, 77]) for drafter in drafters)
        for place, (ours, theirs) in enumerate(zip(*both, strict=True)):
            limit = 0.08 if place else 0.03  # random weights amplify what is fed back
            assert torch.isfinite(ours).all() and error_of(ours, theirs) < limit, f"row {place}"


@pytest.mark.parametrize("form", NATIVE_FORMS["dflash"])
def test_packed_dflash_heads_draft_as_plain_ones(form):
    """A joined or packed linear that gives another's outputs would only cost acceptance, and nobody would see it."""
    ours, theirs = head("dflash", form), packed("dflash", form, kernels=TORCH)
    assert isinstance(ours.fc, NativeLinear) and type(theirs.fc) is nn.Linear
    for ends in ([1], [3, 4, 10], [len(PROMPT) - 2]):
        both = [logits_of(drafts(drafter_with(made, DFlashDrafter), ends)) for made in (ours, theirs)]
        assert both[0].shape == both[1].shape and torch.isfinite(both[0]).all()
        assert (error_of(*both) < 0.05).all()
    for k in (1, 2):  # and of fewer drafts the first ones
        assert torch.equal(logits_of(drafts(drafter_with(ours, DFlashDrafter), ends, k)), both[0][:k])


def test_a_new_race_remembers_nothing():
    """Keys and values of an earlier race would be read, or their NaN added with weight 0."""
    one, proposals = drafter_with(head("eagle3", "sliding layers")), []
    rows = states(one)
    for _ in range(2):
        one.prefill(PROMPT, rows[:-1])
        proposals.append(one.propose(PROMPT, None, K))
        for side in (*one.buffers.keys, *one.buffers.values):
            side.fill_(torch.nan)
    assert proposals[0].token_ids == proposals[1].token_ids and torch.equal(proposals[0].logits, proposals[1].logits)


@pytest.mark.parametrize("kind", HEADS)
def test_states_that_are_not_numbers_are_an_error(kind):
    """A head that reads NaN would draft some token for ever, and its lane would just be slow."""
    one = drafter_with(head(kind), DRAFTERS[kind])
    one.prefill(PROMPT, torch.full_like(states(one)[:-1], torch.nan))
    with pytest.raises(RaceError, match="not numbers"):
        one.propose(PROMPT, None, K)


def test_tokens_and_positions_outside_are_refused():
    """Memory beyond the embedding or the cache would be read or written."""
    one, ids = drafter_with(head("eagle3")), torch.tensor(PROMPT)
    eagle3 = one._tree
    with pytest.raises(AssertionError):
        eagle3.grow([1], [0])  # nothing to follow
    eagle3.start(ids[1:4], states(one)[:3], 0)
    for token in (-1, VOCAB):
        with pytest.raises(IndexError, match="outside"):
            eagle3.grow([token], [0])
    for tokens, parents in (([1], [1]), ([1, 2], [0, 1]), ([1], [-1]), ([1] * 10, [0] * 10)):
        with pytest.raises((AssertionError, IndexError)):
            eagle3.grow(tokens, parents)
    with pytest.raises(AssertionError):
        eagle3.start(ids[1:4], states(one)[:3], 10**6)


@pytest.mark.parametrize(("dtype", "why"), [("bfloat16", "multiples"), ("float32", "float32")])
def test_heads_that_do_not_fit_draft_by_torch(tmp_path, dtype, why):
    """A head of float32, or whose attention heads are 16 wide, would be refused or computed wrongly."""
    one = made(f"eagle3:{save(tmp_path / 'head', *random_head('eagle3'))}", formats_target(dtype), K)
    assert why in str(reason_against_head(one.head)) and type(one) is Eagle3Drafter


@pytest.mark.parametrize("kind", HEADS)
def test_kernels_for_avx2_draft_too(kind):
    """A laptop would draft by torch, in twice the time, or by a head packed for kernels that it lacks."""
    assert formats_target("bfloat16").prepared.kernels.name == "cpu"  # prepared by this machine's
    with on("AVX2"):
        head = packed(kind)
        assert type(head.fc) is type(head.layers[0].mlp.gate_up) is NativeLinear
        here = context(formats_target("bfloat16"), K, PROMPT, keep_logits=True)
        ours, theirs = drafter_of(head, here), drafter_of(packed(kind, kernels=TORCH), here)
        assert type(ours) is DRAFTERS[kind]
        assert (error_of(*(logits_of(drafts(drafter, [9, 20])) for drafter in (ours, theirs))) < 0.08).all()


# Drafted tokens


@needs_picks
@settings(max_examples=150)
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
    """Drafts would have other noise than the target, or branches wrong chances, in any form of row."""
    generator = torch.Generator().manual_seed(position)
    ids = torch.randperm(3000, generator=generator)[:num].sort().values
    row = torch.randn(num, generator=generator) * spread
    row[position % num] += lead
    if gone:
        row[torch.rand(num, generator=generator) < 0.5] = -torch.inf
        row[position % num] = lead
    row = row.bfloat16()
    sampler = Sampler(SamplingParams(temperature=temperature, seed=seed), 3000, PACKED)
    rows, num_best = torch.stack([row.flip(0), row]).contiguous(), 1 + position % 6
    _, picks = PACKED.picks(ids, temperature, splitmix64(seed))(rows, [position + 7, position], num_best)
    scores = sampler.among(ids).scores(row, position).double()
    best = scores.topk(min(num_best, num)).values
    close = 1e-5 * (1 + spread * 4 + lead) / (temperature or 1)
    assert len({index for index, _ in picks}) == len(picks) and len(picks) >= 1
    for (index, score), wanted in zip(picks, best, strict=False):
        assert float((wanted - scores[index]).abs()) <= close and score == pytest.approx(float(wanted), abs=close)
    assert all(float(missed) < float(row.max() / (temperature or 1)) - 9.9 for missed in best[len(picks) :])


@needs_picks
def test_top_k_and_top_p_are_left_to_the_sampler():
    """They would be left out of drafts."""
    target = trained("bfloat16")
    here = context(target, K, temperature=0.8)
    cut = Sampler(SamplingParams(temperature=0.8, top_k=5), target.prepared.vocab_size, PACKED)
    for kind, drafts_with in (("eagle3", Eagle3Drafter), ("dflash", DFlashDrafter)):
        head = made(f"{kind}:{HEADS[kind]}", target, K).head
        assert drafts_with(head, here)._host_picks and drafts_with(head, replace(here, sample=cut))._host_picks is None


@needs_picks
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_rows_that_are_not_numbers_are_an_error(temperature, wrong):
    """Token 0 would be drafted for ever, and the lane would just be slow."""
    for place in (0, 3, 16, 99):
        row = torch.zeros(100, dtype=torch.bfloat16)
        row[place] = wrong
        with pytest.raises(RaceError, match="not numbers"):
            PACKED.picks(torch.arange(100), temperature, splitmix64(1))(row[None], [0], 1)


@pytest.mark.parametrize("rounded", ROUNDED)
@pytest.mark.parametrize("form", ["speculators", "sliding layers", "two layers", "the target's output layer"])
def test_rows_of_a_tree_are_those_of_chains(form, rounded):
    """A sibling that leaks, a wrong parent or a cut window would cost acceptance, and nobody would see it."""
    tree, chain = (drafter_with(head("eagle3", form, rounded), k=24) for _ in range(2))
    rng = random.Random(form)
    tokens, parents, rows = [-1], [-1], [rows_of(tree, [3], [])[0]]
    while len(tokens) <= 24:
        num = rng.randint(1, min(5, 25 - len(tokens)))
        batch = [(rng.randrange(VOCAB), rng.randrange(len(tokens))) for _ in range(num)]
        rows += tree._tree.grow(*zip(*batch, strict=True)).clone()
        tokens += [token for token, _ in batch]
        parents += [parent for _, parent in batch]
    for row, expected in enumerate(rows):
        path, at = [], row
        while at:
            path, at = [tokens[at], *path], parents[at]
        assert torch.equal(rows_of(chain, [3], path)[-1], expected), (row, path)
