"""The peers of a bench: transformers' own `generate`, whose tokens must be the stock model's and whose time must be
decoding's alone."""

from __future__ import annotations

import time
from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM, MistralConfig, MistralForCausalLM

from engine.bench.peers import ASSISTED, COMPILED, EAGER, PROMPT_LOOKUP, Generated, Peers
from engine.core.errors import RaceError
from engine.core.spec import SamplingParams
from tests.helpers.tiny import BASE, TORCH, TRAINED, WINDOW, build, fresh, random_ids, stock

NUM_NEW = 20
PENALTIES = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "suppress_tokens": [10], "min_length": 3}
WAYS = (EAGER, PROMPT_LOOKUP, ASSISTED)
MODELS = ("trained", "gemma3")


def assistant(name: str):
    return AutoModelForCausalLM.from_pretrained(TRAINED.parent / "draft").eval() if name == "trained" else fresh(name)


@cache
def peers(name: str, temperature: float = 0.0) -> Peers:
    return Peers(fresh(name), SamplingParams(temperature=temperature, seed=3), WAYS, assistant(name))


def prompt_of(name: str) -> list[int]:
    vocab_size = stock(name).get_output_embeddings().weight.shape[0]
    return random_ids(12, vocab_size, 4) * 2  # repeated, so that prompt lookup has something to find


def chosen_by(model, ids: list[int]) -> tuple[int, ...]:
    """The model's own choice, token by token, everything computed anew each time."""
    ids, start = list(ids), len(ids)
    with torch.inference_mode():
        for _ in range(NUM_NEW):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[start:])


@cache
def greedy(name: str) -> tuple[int, ...]:
    return chosen_by(stock(name), prompt_of(name))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_peer_writes_the_stock_models_own_tokens(name, way):
    """A peer would be timed on another text, or on another model, than the lanes that it is held against."""
    written = peers(name).run(way, prompt_of(name), NUM_NEW)
    assert written.token_ids == greedy(name)
    assert 0 < written.num_timed < NUM_NEW and written.decode_s > 0 and written.prefill_s > 0


@pytest.mark.skipif(bool(TORCH.reason_against_compiling()), reason="no C++ compiler")
def test_the_compiled_peer_writes_them_too():
    """With a static cache it would ignore the model's window, or be timed while it compiles."""
    config = MistralConfig(**{**BASE, "num_hidden_layers": 1}, vocab_size=256, sliding_window=WINDOW)
    model, ids = build(MistralForCausalLM, config), random_ids(24, 256, 4)
    expected = chosen_by(model, ids)
    compiled = Peers(model, SamplingParams(), (COMPILED,))
    assert compiled.warm([ids], NUM_NEW) == []
    written = compiled.run(COMPILED, ids, NUM_NEW)
    assert written.token_ids == expected and written.decode_s < 5


@pytest.mark.parametrize("way", WAYS)
def test_the_models_own_settings_change_nothing(way):
    """A peer that stops early would be timed over fewer tokens than our lanes, its start weighing more; one that obeys
    penalties, over another text."""
    model = fresh("trained")
    model.generation_config.eos_token_id = model.config.eos_token_id = greedy("trained")[0]
    model.generation_config.update(**PENALTIES)
    ended = Peers(model, SamplingParams(), (way,), assistant("trained") if way == ASSISTED else None)
    assert ended.run(way, prompt_of("trained"), NUM_NEW).token_ids == greedy("trained")


@pytest.mark.parametrize("way", WAYS)
def test_sampling_has_its_seed(way):
    """Two repeats would time different texts; or the run change the random numbers of whoever comes after."""
    sampled = peers("trained", 0.9)
    before = torch.random.get_rng_state()
    first = sampled.run(way, prompt_of("trained"), NUM_NEW)
    assert sampled.run(way, prompt_of("trained"), NUM_NEW).token_ids == first.token_ids
    assert first.token_ids != greedy("trained") and torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("way", (EAGER, PROMPT_LOOKUP))
def test_prefill_is_not_decoding(way):
    """A slow prefill would make a peer look slow, and our lanes, whose prefill is apart, fast."""
    model, slow = fresh("trained"), 0.3
    timed = Peers(model, SamplingParams(), (way,))
    timed.run(way, prompt_of("trained"), 2)

    def sleep(module, args, kwargs):
        if kwargs["input_ids"].shape[1] >= len(prompt_of("trained")):
            time.sleep(slow)

    model.register_forward_pre_hook(sleep, with_kwargs=True)
    started = time.perf_counter()
    written = timed.run(way, prompt_of("trained"), NUM_NEW)
    wall = time.perf_counter() - started
    assert written.prefill_s >= slow and written.prefill_s + written.decode_s <= wall
    assert written.decode_s <= wall - slow
    assert written.tokens_per_s == pytest.approx(written.num_timed / written.decode_s)


def test_nothing_timed_is_no_rate():
    """All tokens came with the first step: a rate would be infinite, or zero."""
    assert Generated((1, 2), 0.1, 0, 0.0).tokens_per_s is None
    assert peers("trained").run(EAGER, prompt_of("trained"), 1).tokens_per_s is None


def test_a_way_that_does_not_work_is_left_out(monkeypatch):
    """One peer that transformers refuses would end the whole bench."""
    model = fresh("trained")
    generate = model.generate

    def refuse(*args, **options):
        if "prompt_lookup_num_tokens" in options:
            raise NotImplementedError("not for this\nmodel")
        return generate(*args, **options)

    monkeypatch.setattr(model, "generate", refuse)
    some = Peers(model, SamplingParams(), (EAGER, PROMPT_LOOKUP))
    notes = some.warm([prompt_of("trained")], NUM_NEW)
    assert some.names == (EAGER,)
    assert notes == ["hf_prompt_lookup was left out: transformers' generate failed: NotImplementedError: not for this"]
    with pytest.raises(RaceError, match="generate failed"):
        peers("trained").run(EAGER, [10**6], 2)


def test_without_a_compiler_it_is_said(monkeypatch):
    """The bench would fail after a minute of tracing, in words of the compiler's."""
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", ("no-such-compiler",))
    assert "no C++ compiler" in TORCH.reason_against_compiling()
