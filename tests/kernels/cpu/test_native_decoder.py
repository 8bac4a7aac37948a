"""A model's whole step as one compiled call: transformers' model but for rounding, and nothing shared that should not
be; and what stays as it was where it cannot be compiled. That a row's bits are its own is in ../test_row_bits.py, that
a rollback leaves no trace in ../../runner/test_target.py, and races in ../../exactness/test_matrix.py."""

import threading
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from engine.exactness.operators import same_bits
from engine.kernels.cpu.decoder import NativeDecoder, reason_against_decoder
from engine.layers.decoder import DECODERS, FusedDecoder
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from tests.helpers.native_kernels import CONFIGS, NAMES, VARIANTS, made, needs_kernels, prepared
from tests.helpers.tiny import TORCH, build, changed, random_ids, rows_of

pytestmark = needs_kernels
WIDTHS = (1, 2, 3, 8, 13)
LENGTH, NUM_PREFILL, NUM = 512, 300, 313


def target_of(name: str, length: int = LENGTH) -> StaticTarget:
    return StaticTarget(prepared(name), length, WIDTHS)


@cache
def ids_of(name: str) -> tuple[int, ...]:
    return tuple(random_ids(NUM, prepared(name).vocab_size, 1))


@cache
def stock_rows(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' logits [NUM, vocab] and hidden states [NUM, layers * dim]."""
    with torch.inference_mode():
        out = made(name, dtype)(input_ids=torch.tensor([ids_of(name)]), use_cache=False, output_hidden_states=True)
    return out.logits[0].float(), torch.cat([h[0] for h in out.hidden_states], -1).float()


# The same model


def test_every_class_is_tried():
    """A decoder would be added to the table whose layers do something else."""
    names = {type(prepared(name, packed=False).model).__name__.replace("ForCausalLM", "") for name in NAMES}
    assert names == {name.removesuffix("TextModel").removesuffix("Model") for name in DECODERS}
    assert all(isinstance(prepared(name).model.get_decoder(), NativeDecoder) for name in NAMES)
    assert all(isinstance(prepared(name, packed=False).model.get_decoder(), FusedDecoder) for name in NAMES)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_stock_model_rounded(name, variant):
    """A race would be one of another model than the one named: a norm, a bias, a window, an angle. After a prefill of
    two chunks, beyond all windows."""
    ids, (truth, true_states) = ids_of(name), stock_rows(name, torch.float32)
    theirs, their_states = stock_rows(name, torch.bfloat16)
    layers = range(prepared(name).shape.num_layers + 1)
    pairs = []
    for model in (prepared(name, variant), prepared(name, packed=False)):
        target = StaticTarget(model, LENGTH, WIDTHS, layers)
        _, prefilled = target.extend(ids[:NUM_PREFILL], 0)
        rows, states = target.extend(ids[NUM_PREFILL:], 13)
        pairs.append((rows.float().clone(), torch.cat((prefilled, states)).float()))
    (logits, states), (other_logits, other_states) = pairs
    truth, theirs = truth[NUM_PREFILL:], theirs[NUM_PREFILL:]

    def off(rows: torch.Tensor, expected: torch.Tensor) -> float:
        return float((rows - expected).abs().mean() / expected.abs().mean())

    assert off(logits, truth) < 1.1 * min(off(theirs, truth), off(other_logits, truth)) + 1e-3
    every = (x.chunk(len(layers), 1) for x in (states, true_states, their_states, other_states))
    for layer, (ours, right, *others) in enumerate(zip(*every, strict=True)):
        assert off(ours, right) < 1.1 * min(off(x, right) for x in others) + 1e-3, f"layer {layer}"


# What a step reads and writes


@pytest.mark.parametrize("name", ["gemma3", "mistral"])
def test_two_threads_at_once(name):
    """Python runs other threads during a call: two races would write into each other's memory."""
    model = prepare(made(name))
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

    running = [threading.Thread(target=run, args=sizes) for sizes in ((256, 13), (1024, 2))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    assert wrong == []


@pytest.mark.parametrize("token", [-1, 10**6])
def test_rows_and_tokens_out_of_bounds_are_refused(token):
    """C would read and write beyond the cache or the embeddings."""
    target = target_of("llama")
    for num_rows, ids in ((2, [1, token]), (0, [1, 2, token])):
        with pytest.raises(IndexError, match="token id"):
            target.extend(ids, num_rows)
    target.jump(LENGTH - 4)
    with pytest.raises(AssertionError, match="8 rows from position 508"), torch.inference_mode():
        target._step(8)
    assert len(target.extend([1, 2, 3], 3, width=3)[0]) == 3


# What does not fit


def unlike(name: str, **more: Any) -> Any:
    return build(*changed(CONFIGS[name], **more), torch.bfloat16)


UNFIT: dict[str, tuple[Any, str]] = {
    "float32": (lambda: made("llama", torch.float32), "float32"),
    "heads of 16": (lambda: unlike("llama", head_dim=16), "sizes"),
    "an odd inner size": (lambda: unlike("qwen3", intermediate_size=109), "odd number of inputs, 109"),
    "inner size": (lambda: unlike("qwen3", intermediate_size=104), "sizes"),
    "hidden size": (lambda: unlike("mistral", hidden_size=72), "sizes"),
    "another activation": (lambda: unlike("llama", hidden_act="relu"), "ReLU"),
    "a cap on its logits": (lambda: unlike("gemma3", final_logit_softcapping=30.0), "of the usual kind"),
    "an exact gelu": (lambda: unlike("llama", hidden_act="gelu"), "GELU"),
}


@pytest.mark.parametrize("what", sorted(UNFIT))
def test_what_does_not_fit_stays_as_it_was(what):
    """A model of another size would be read beyond its memory, one of another activation be another model."""
    make, said = UNFIT[what]
    model, again = make(), make()
    ready = prepare(model)
    fused = ready.model.get_decoder()
    assert isinstance(fused, FusedDecoder)
    assert said in str(reason_against_decoder(prepare(again, TORCH).model))
    ids = random_ids(16, 250)
    with torch.inference_mode():
        expected = make().float()(input_ids=torch.tensor([ids]), use_cache=False).logits[0, 8:]
    target = StaticTarget(ready, 256, (8,))
    target.extend(ids[:8], 0)
    rows = target.extend(ids[8:], 8)[0].float()
    assert float((rows - expected).abs().mean()) < 0.05 * float(expected.std())


def test_layers_that_differ_say_so():
    """One layer's sizes stand for all."""

    def bare(name: str = "qwen3") -> Any:
        model = prepare(made(name), TORCH).model
        assert reason_against_decoder(model) is None
        return model

    one, two, three = bare(), bare(), bare()
    one.model.layers[1].norms[0].eps = 1e-3
    two.model.layers[2].mlp = bare("gemma3").model.layers[0].mlp
    three.model.layers[0].self_attn.num_heads -= 1
    assert reason_against_decoder(one) == "its norms differ in eps"
    assert reason_against_decoder(two) == reason_against_decoder(three) == "its layers differ"
    assert "of the usual kind" in str(reason_against_decoder(nn.Linear(2, 2)))
