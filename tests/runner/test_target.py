"""A transformers model as a Target: the stock logits whatever the cut, rollback without a trace, whole checksums."""

from functools import cache
from itertools import product
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import UsageError
from engine.exactness.operators import bits, same_bits
from engine.kernels.cpu.build import has_kernels
from engine.runner import target as target_module
from engine.runner.target import LENGTH_BUCKET, StaticTarget, cache_length
from tests.helpers import native_kernels
from tests.helpers.tiny import DELTA, DTYPES, HYBRIDS, NAMES, prepared, random_ids, rows_of, stock

WIDTHS = (1, 2, 4, 8)
LENGTH = 256
VOCAB = DELTA["vocab_size"]
EVERY = (*NAMES, *HYBRIDS)
COMPILED = [f"compiled {name}" for name in native_kernels.NAMES] if has_kernels() else []


@cache
def stock_rows(
    name: str, num: int, seed: int, dtype: torch.dtype = torch.float32
) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """(`num` random ids, transformers' logits [num, vocab], all its hidden states side by side [num, layers * dim])."""
    model = stock(name, dtype)
    ids = random_ids(num, model.config.vocab_size, seed)
    with torch.inference_mode():
        out = model(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    return ids, out.logits[0].float(), torch.cat([h[0] for h in out.hidden_states], -1)


def target_of(name: str, dtype: torch.dtype = torch.float32, length: int = LENGTH, **more: Any) -> StaticTarget:
    if name in COMPILED:
        model = native_kernels.prepared(name.removeprefix("compiled "))
    else:
        model = prepared(name, dtype)
    return StaticTarget(model, length, WIDTHS, **more)


def assert_close(name: str, rows: torch.Tensor, expected: torch.Tensor) -> None:
    off = 1e-3 if name in HYBRIDS else 1e-4
    torch.testing.assert_close(rows, expected, atol=off, rtol=off)


# The stock model's logits


@settings(max_examples=40)
@given(
    st.sampled_from(EVERY),
    st.integers(0, 150),
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=10),
    st.lists(st.integers(0, 3), max_size=3),
)
def test_any_cut_gives_the_stock_models_logits_and_hidden_states(name, num_prefill, cuts, layers):
    """A race would be one of another model: beyond the sliding window or a chunk of the prompt, or where linear layers
    lose their states. A draft head would read another layer than it was trained on, or rows of padding."""
    ids, logits, hidden = stock_rows(name, 236, 0)
    target, done = target_of(name, hidden_layers=layers), 0
    states = hidden.split(prepared(name).model.config.hidden_size, 1)
    for cut, num_rows in ((num_prefill, 0), *cuts):
        with mock.patch.object(target_module, "PREFILL_CHUNK", 40):
            rows, features = target.extend(ids[done : done + cut], num := min(cut, num_rows))
        assert rows.shape == (num, target.vocab_size) and (features is None) == (not layers)
        assert_close(name, rows, logits[done : done + num])
        if features is not None:
            expected = torch.cat([states[layer] for layer in layers], -1)[done : done + cut]
            torch.testing.assert_close(features, expected, atol=1e-3, rtol=1e-3)
        done += cut
        assert target.length == done


@pytest.mark.parametrize("name", EVERY)
def test_bfloat16_is_the_same_model_rounded(name):
    """A mask, a norm or a state in another dtype, which float32 does not show, would hide behind rounding."""
    ids, logits, _ = stock_rows(name, 100, 0)
    target = target_of(name, torch.bfloat16)
    target.extend(ids[:60], 0)
    rows = torch.cat([target.extend(ids[i : i + 8], 8)[0].float() for i in range(60, 100, 8)])
    theirs = stock_rows(name, 100, 0, torch.bfloat16)[1][60:]
    ours_off, theirs_off = (float((x - logits[60:]).abs().mean()) for x in (rows, theirs))
    assert ours_off < 1.5 * theirs_off


# Rollback


@settings(max_examples=60)
@given(
    st.sampled_from([*product(NAMES, DTYPES), *product(COMPILED, [torch.bfloat16])]),
    st.integers(0, 70),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 60)), min_size=1, max_size=6),
    st.integers(0, 9),
)
def test_what_was_rolled_back_leaves_no_trace(model, num_prefill, history, seed):
    """Rejected drafts would be remembered: beyond a window, a cache that overwrites its oldest entries cannot
    go back. Compiled steps would read the NaN that a draft which overflows leaves behind the pointer, or write other
    bits than a prefill or a step of another width."""
    name, dtype = model
    used, clean = target_of(name, dtype), target_of(name, dtype)
    ids = random_ids(num_prefill, used.vocab_size, seed)
    used.extend(ids, 0)
    for i, (num, back) in enumerate(history):
        used.extend(random_ids(num, used.vocab_size, seed + i + 1), num)
        used.rollback(max(0, used.length - num - back))
    kept, others = ids[: used.length], random_ids(24, used.vocab_size, seed + 100)
    if name in COMPILED:
        for side in (side for layer in used.kv for side in layer):
            side[:, :, used.length :] = torch.nan
        for token in kept:
            clean.extend([token], 1)
    else:
        clean.extend(ids, 0)
        clean.rollback(len(kept))
    ours, theirs = rows_of(used, others, 8), rows_of(clean, others, 3 if name in COMPILED else 8)
    assert same_bits(ours, theirs)
    for our, their in zip(used.kv, clean.kv, strict=True):
        assert all(same_bits(a[:, :, : used.length], b[:, :, : used.length]) for a, b in zip(our, their, strict=True))
    if dtype == torch.float32:
        with torch.inference_mode():
            expected = stock(name)(input_ids=torch.tensor([[*kept, *others]]), use_cache=False).logits[0, -8:]
        torch.testing.assert_close(ours[-8:], expected, atol=1e-4, rtol=1e-4)


def memory(target: StaticTarget) -> list[torch.Tensor]:
    """All that a target remembers of its tokens: states and last inputs at the pointer, keys and values before it."""
    layers = [layer for i, layer in enumerate(target.kv) if i not in target.prepared.shape.linear.layers]
    return target.states() + [side[:, :, : target.length].clone() for layer in layers for side in layer]


def equal(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(ours) > 0 and all(same_bits(a, b) for a, b in zip(ours, theirs, strict=True))


@settings(max_examples=16)
@given(
    st.sampled_from([*HYBRIDS]),
    st.sampled_from(DTYPES),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 7)), min_size=1, max_size=7),
    st.integers(0, 9),
)
def test_any_accept_counts_leave_the_bits_of_decoding_token_by_token(name, dtype, num_prefill, steps, seed):
    """A rejected token has changed every linear layer's state; whatever is left of it makes later tokens others."""
    width = 8
    ours, theirs = target_of(name, dtype), target_of(name, dtype)
    ids = random_ids(num_prefill + 64, VOCAB, seed)
    for target in (ours, theirs):
        target.extend(ids[:num_prefill], 0)
    done = num_prefill
    for index, (num, rejected) in enumerate(steps):
        kept = max(1, num - rejected)
        tokens = [*ids[done : done + kept], *random_ids(num - kept, VOCAB, seed + 100 + index)]
        rows = ours.extend(tokens, kept, width=width)[0].clone()
        ours.rollback(done + kept)
        others = torch.cat([theirs.extend([token], 1, width=width)[0].clone() for token in ids[done : done + kept]])
        done += kept
        assert same_bits(rows, others) and equal(memory(ours), memory(theirs))


def test_a_sequence_says_how_far_it_goes_back():
    """It would go on from the state that another position left at that place of the ring."""
    target = target_of("qwen3_next")
    target.extend(random_ids(100, VOCAB, 0), 0)
    for i in range(1, 4):
        target.extend(random_ids(8, VOCAB, i), 8)
    target.rollback(116)
    with pytest.raises(UsageError, match=r"back to 115 tokens.*from token 116 on"):
        target.rollback(115)
    target.rollback(0)
    assert all(bool((part == 0).all()) for part in target.states())


@pytest.mark.parametrize("name", [*EVERY, *COMPILED])
def test_targets_in_turns_share_weights_and_nothing_else(name):
    """One lane's cache or logits would be written by another's steps; or by those of a race that has ended."""
    a, b = target_of(name), target_of(name)
    ids, others = (random_ids(24, a.vocab_size, seed) for seed in (2, 9))
    expected, unlike = (rows_of(target_of(name), token_ids, 8) for token_ids in (ids, others))
    assert a.prepared.model is b.prepared.model
    for i in range(0, 24, 8):
        rows = a.extend(ids[i : i + 8], 8)[0]
        theirs = rows_of(b, others[i : i + 8], 1 if name in COMPILED else 8)
        assert same_bits(rows, expected[i : i + 8]) and same_bits(theirs, unlike[i : i + 8])
    del a, b, rows
    for length in (512, LENGTH, 512) if name in COMPILED else (LENGTH,):
        assert same_bits(rows_of(target_of(name, length=length), ids, 8), expected)


@pytest.mark.parametrize("name", ["gemma3", "qwen3_5"])
def test_warming_and_timing_leave_the_sequence_empty(name):
    """The first step of a lane would see the warm-up's tokens, or go on from its state."""
    ids, logits, _ = stock_rows(name, 48, 0)
    target = target_of(name)
    target.warm(ids)
    assert target.length == 0
    seconds = target.time_widths(rounds=2, position=40)
    assert target.length == 0 and list(seconds) == list(WIDTHS) and min(seconds.values()) > 0
    target.extend(ids[:40], 0)
    assert_close(name, target.extend(ids[40:], 8)[0], logits[40:])


# Lengths and widths


@given(st.integers(0, 5000), st.integers(1, 5000), st.integers(1, 64))
def test_the_cache_holds_a_whole_race(num_prompt, num_new, width):
    """The last step's padding would be written beyond the cache; or lengths so many that each race is probed anew."""
    length = cache_length(num_prompt, num_new, width)
    assert 0 <= length - (num_prompt + num_new + width) < LENGTH_BUCKET and length % LENGTH_BUCKET == 0


@given(st.sets(st.integers(1, 64), min_size=1, max_size=5), st.integers(1, 70))
def test_a_step_runs_at_the_narrowest_width_that_holds_it(widths, num_tokens):
    """A step would be cut, or cost more than it must; or the refusal be a traceback."""
    target = StaticTarget(prepared("llama"), LENGTH, tuple(widths))
    if num_tokens > max(widths):
        with pytest.raises(UsageError, match=f"{num_tokens} tokens"):
            target.width_for(num_tokens)
    else:
        assert target.width_for(num_tokens) == min(w for w in widths if w >= num_tokens)


@pytest.mark.parametrize(
    ("length", "widths", "said"), [(256, (), "256"), (256, (0, 4), "0"), (256, (257,), "257"), (4096, (8,), "1024")]
)
def test_impossible_shapes_are_refused_in_words(length, widths, said):
    """A race would fail in its middle, or run at positions that the model does not know."""
    with pytest.raises(UsageError, match=said):
        StaticTarget(prepared("llama"), length, widths)


def test_a_rollback_goes_back_only():
    """The invariant's arithmetic would be wrong unnoticed."""
    target = target_of("llama")
    target.extend([1, 2, 3], 0)
    for length in (4, -1):
        with pytest.raises(AssertionError):
            target.rollback(length)
    target.jump(LENGTH - 4)
    with pytest.raises(AssertionError):
        target.extend([1] * 8, 8)


# Checksums of rows of logits


@settings(max_examples=20)
@given(st.sampled_from(DTYPES), st.integers(0, 2**31))
def test_any_single_flipped_bit_changes_the_checksum(dtype, seed):
    """An audit would call rows equal that differ."""
    generator = torch.Generator().manual_seed(seed)
    num_flips, vocab = 200, 200
    rows = torch.randn(1, vocab, generator=generator).to(dtype).repeat(num_flips, 1)
    flipped = bits(rows).clone()
    places = torch.randint(flipped.shape[1], (num_flips,), generator=generator)
    shifts = torch.randint(16, (num_flips,), generator=generator)
    flips = (torch.ones((), dtype=torch.long) << shifts).to(flipped.dtype)  # the sign bit wraps around
    flipped[torch.arange(num_flips), places] ^= flips
    target = target_of("llama", dtype)
    (original,) = target.checksums(rows[:1])
    changed = target.checksums(flipped.view(dtype))
    assert original not in changed and min(original, *changed) >= 0 and max(original, *changed) < 2**64
    assert target.checksums(rows) == (original,) * num_flips


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_checksums_see_what_comparisons_do_not(dtype):
    """Two tokens' logits exchanged, a sign of zero, or a NaN would pass for equal."""
    target = target_of("llama", dtype)
    row = torch.randn(1, 200, generator=torch.Generator().manual_seed(0)).to(dtype)
    row[0, 5] = 0.0
    swapped, negative, nan = row.clone(), row.clone(), row.clone()
    swapped[0, [7, 9]] = row[0, [9, 7]]
    negative[0, 5] = -0.0
    nan[0, 5] = torch.nan
    sums = [target.checksums(x)[0] for x in (row, swapped, negative, nan)]
    assert len(set(sums)) == 4
    assert target_of("llama", dtype).checksums(row.clone())[0] == sums[0]
