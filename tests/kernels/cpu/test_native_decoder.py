"""A decoder as one compiled call: the same model as transformers', every row the same bits at every width from 1 on,
and nothing shared that should not be."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kernels.cpu.decoder import NativeDecoder
from engine.model.decoder import DECODERS, FusedDecoder
from engine.target.prepare import prepare
from engine.target.target import StaticTarget
from tests.helpers.native_kernels import NAMES, VARIANTS, made, needs_kernels, prepared, same_bits
from tests.helpers.tiny import random_ids, threads

pytestmark = needs_kernels
WIDTHS = (1, 2, 3, 8, 13)
LENGTH, NUM_PREFILL, NUM = 512, 300, 339
names = st.sampled_from(NAMES)


def target_of(name: str, length: int = LENGTH, widths: tuple[int, ...] = WIDTHS, **more: Any) -> StaticTarget:
    return StaticTarget(prepared(name), length, widths, **more)


@cache
def ids_of(name: str) -> tuple[int, ...]:
    return tuple(random_ids(NUM, prepared(name).vocab_size, 1))


@cache
def stock_rows(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' logits [NUM, vocab] and hidden states [NUM, layers * dim]."""
    with torch.inference_mode():
        out = made(name, dtype)(input_ids=torch.tensor([ids_of(name)]), use_cache=False, output_hidden_states=True)
    return out.logits[0].float(), torch.cat([h[0] for h in out.hidden_states], -1).float()


def rows_of(target: StaticTarget, ids: tuple[int, ...], width: int) -> torch.Tensor:
    """Logits of these ids, so many a step."""
    return torch.cat(
        [target.extend(ids[i : i + width], len(ids[i : i + width]))[0].clone() for i in range(0, len(ids), width)]
    )


def written(target: StaticTarget) -> list[torch.Tensor]:
    return [side[:, :, : target.length].clone() for layer in target.kv for side in layer]


def all_same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(same_bits(x, y) for x, y in zip(a, b, strict=True))


# The same model


def test_every_class_is_tried():
    """One would be added to the table whose layers do something else."""
    assert {type(prepared(name, packed=False).model).__name__.replace("ForCausalLM", "") for name in NAMES} == {
        name.removesuffix("TextModel").removesuffix("Model") for name in DECODERS
    }
    assert all(isinstance(prepared(name).model.get_decoder(), NativeDecoder) for name in NAMES)
    assert all(isinstance(prepared(name, packed=False).model.get_decoder(), FusedDecoder) for name in NAMES)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_stock_model_rounded(name, variant):
    """A race would be one of another model than the one named: a norm, a bias, a window, an angle. After a prefill of
    two chunks, beyond all windows."""
    ids, (truth, true_states) = ids_of(name), stock_rows(name, torch.float32)
    theirs, their_states = stock_rows(name, torch.bfloat16)
    num_layers = prepared(name).shape.num_layers
    ours, fused = (
        StaticTarget(model, LENGTH, WIDTHS, range(num_layers + 1))
        for model in (prepared(name, variant), prepared(name, packed=False))
    )
    found = {}
    for target in (ours, fused):
        _, prefilled = target.extend(ids[:NUM_PREFILL], 0)
        rows, states = target.extend(ids[NUM_PREFILL : NUM_PREFILL + 13], 13)
        found[target] = rows.float().clone(), torch.cat((prefilled, states)).float()
    (logits, states), (other_logits, other_states) = found[ours], found[fused]
    seen = slice(NUM_PREFILL, NUM_PREFILL + 13)

    def off(rows: torch.Tensor, expected: torch.Tensor) -> float:
        return float((rows - expected).abs().mean() / expected.abs().mean())

    assert off(logits, truth[seen]) < 1.1 * min(off(theirs[seen], truth[seen]), off(other_logits, truth[seen])) + 1e-3
    for layer in range(num_layers + 1):
        of = slice(layer * states.shape[1] // (num_layers + 1), (layer + 1) * states.shape[1] // (num_layers + 1))
        expected = true_states[: seen.stop, of]
        assert (
            off(states[:, of], expected)
            < 1.1 * min(off(x[: seen.stop, of], expected) for x in (their_states, other_states)) + 1e-3
        ), f"layer {layer}"


@pytest.mark.parametrize("name", NAMES)
def test_variants_differ_by_rounding_only(name):
    """A machine without AVX512_BF16 would write another text from the first token on; and AVX2 is to write what AVX-512
    does without it, bit for bit."""
    ours, *others = (
        StaticTarget(prepared(name, variant), LENGTH, WIDTHS).extend(ids_of(name)[:13], 13)[0].clone().float()
        for variant in VARIANTS
    )
    assert float((ours - others[0]).abs().mean()) < 0.02 * float(ours.std())
    assert torch.equal(*others)


# A row's bits


@pytest.mark.parametrize("name", NAMES)
def test_any_cut_gives_the_same_bits(name):
    """Width 1 would be no longer in the class of all others, and exactness cost what a wider step does."""
    ids = ids_of(name)[:60]
    reference = target_of(name)
    expected = rows_of(reference, ids, 1)
    for width in (2, 3, 8, 13):
        target = target_of(name)
        assert same_bits(rows_of(target, ids, width), expected) and all_same(written(target), written(reference)), (
            f"width {width}"
        )
    longer = target_of(name, 1024)  # tables and rows grow
    assert same_bits(rows_of(longer, ids, 8), expected)
    assert same_bits(rows_of(target_of(name, 256), ids, 8), expected)
    prefilled = target_of(name)
    prefilled.extend(ids[:-1], 0)
    assert all_same(written(prefilled), [side[:, :, :-1] for side in written(reference)])
    assert same_bits(prefilled.extend(ids[-1:], 1)[0], expected[-1:])
    for num_threads in (2, 3):
        with threads(num_threads):
            assert same_bits(rows_of(target_of(name), ids, 8), expected)


@settings(max_examples=30)
@given(
    names,
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 13), st.integers(0, 30)), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 9),
)
def test_what_was_rolled_back_leaves_no_trace(name, num_prefill, history, spoil, seed):
    """Rejected drafts would be remembered; or NaN behind the pointer, which a draft that overflows leaves there, be
    felt."""
    used, clean = target_of(name), target_of(name)
    ids = random_ids(num_prefill, used.vocab_size, seed)
    used.extend(ids, 0)
    for i, (num, back) in enumerate(history):
        used.extend(random_ids(num, used.vocab_size, seed + i + 1), num)
        used.rollback(max(0, used.length - num - back))
    kept = ids[: used.length]
    if spoil:
        for side in (side for layer in used.kv for side in layer):
            side[:, :, used.length :] = torch.nan
    clean.extend(kept, 0)
    others = tuple(random_ids(16, used.vocab_size, seed + 100))
    assert same_bits(rows_of(used, others, 8), rows_of(clean, others, 3))
    assert all_same(written(used), written(clean))


@pytest.mark.parametrize("name", NAMES)
def test_a_row_that_overflows_is_alone_with_it(name):
    """A token whose numbers overflow would make NaN of the rows before it in the same step, and a draft would change
    the text."""
    fresh = prepare(made(name))
    fresh.model.get_input_embeddings().weight.data[7] = torch.nan
    ids = [11, 12, 13, 7, 14, 15, 7, 7]
    wide = StaticTarget(fresh, LENGTH, (1, 8))
    rows = wide.extend(ids, 8)[0].clone()
    clean = StaticTarget(fresh, LENGTH, (1, 8)).extend([11, 12, 13, 9, 9, 9, 9, 9], 8)[0]
    assert same_bits(rows[:3], clean[:3]) and rows[3:].isnan().all()
    wide.rollback(3)
    assert same_bits(rows_of(wide, (9, 9), 1), clean[3:5])


# Nothing is shared that should not be


@pytest.mark.parametrize("name", ["gemma3", "qwen3"])
def test_targets_in_turns_share_weights_and_nothing_else(name):
    """One lane's cache would be written by another's steps; or a later race's by those of one that has ended."""
    ids = ids_of(name)
    expected = rows_of(target_of(name), ids[:24], 8)
    a, b = target_of(name), target_of(name, 256)
    for i in range(0, 24, 8):
        assert same_bits(a.extend(ids[i : i + 8], 8)[0], expected[i : i + 8])
        assert same_bits(rows_of(b, ids[i : i + 8], 1), expected[i : i + 8])
    del a, b
    for length in (512, 256, 512):
        later = target_of(name, length)
        assert same_bits(rows_of(later, ids[:24], 8), expected)
        del later


@pytest.mark.parametrize("name", ["gemma3", "mistral"])
def test_two_threads_at_once(name):
    """Python runs other threads during a call: a viewer's race and a page's probe would write into each other's
    memory."""
    model = prepare(made(name))  # its tables are yet to be made, by both
    ids = ids_of(name)
    expected = rows_of(target_of(name, 1024), ids[:200], 13)
    wrong: list[str] = []
    barrier = threading.Barrier(2)

    def run(length: int, width: int) -> None:
        target = StaticTarget(model, length, (width,))
        barrier.wait()
        for round_ in range(3):
            if not same_bits(rows_of(target, ids[:200], width), expected):
                wrong.append(f"round {round_} at width {width}")
            target.rollback(0)

    running = [threading.Thread(target=run, args=each) for each in ((256, 13), (1024, 2))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    assert wrong == []


def test_tables_live_as_long_as_the_call_that_reads_them():
    """Another thread's longer cache makes new tables; the old ones would be freed under a call that is still
    running."""
    model = prepare(made("llama"))
    target = StaticTarget(model, 256, (1,))
    native, forward = model.model.get_decoder(), target._buffers._whole
    call, alive = forward._forward, []

    def slow(*arguments: Any) -> int:
        tables = [weakref.ref(table) for table in native._tables[0]]
        native.tables_for(1024)
        gc.collect()
        alive.append(all(table() is not None for table in tables))
        return call(*arguments)

    forward._forward = slow
    target.extend([1], 1)
    assert alive == [True]


def test_rows_beyond_the_cache_are_refused():
    """C writes where it is told to."""
    target = target_of("llama")
    target.jump(LENGTH - 4)
    with pytest.raises(AssertionError, match="8 rows from position 508"), torch.inference_mode():
        target._step(8)
    assert len(target.extend([1, 2, 3], 3, width=3)[0]) == 3
