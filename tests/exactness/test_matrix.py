"""The central promise as one matrix of model, kernels, dtype, drafter, temperature and k: every lane writes the
baseline's tokens from the baseline's bits."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.events import Finished, Prompt
from engine.core.spec import AUTO, RaceSpec, SamplingParams, lanes_of
from engine.exactness import operators
from engine.exactness.probe import probe
from engine.exactness.widths import WidthClasses
from engine.layers.delta_places import Places
from engine.loading.loading import LoadedModel, load
from engine.recordings.recording import build, check
from engine.runner.prepared import Prepared
from engine.runner.target import StaticTarget
from engine.session import TorchRace
from engine.text import encode_prompt
from tests.helpers import native_kernels, tiny
from tests.helpers.fakes import Adversarial, Empty, Oracle, Random, checksums_of, tokens_of
from tests.helpers.planted import Real, caught
from tests.helpers.tiny import LENGTH, TRAINED, lane, random_ids, threads
from tests.helpers.trained import ARGUMENTS, DRAFT, PROMPTS, text_of, written

FP32, BF16 = torch.float32, torch.bfloat16

# Any draft, at any mixture of the widths of one class

WIDTHS = (1, 2, 4, 8)
# In bfloat16 torch's linears differ between widths in one row of thousands, so widths must be probed with as many. The
# others differ in nearly every row or in none.
DIFFERS_RARELY = "mistral, bfloat16, torch's linears"
MODELS: dict[str, Callable[[], Prepared]] = {
    "trained, float32": lambda: tiny.prepared("trained", FP32),
    "trained, bfloat16": lambda: tiny.prepared("trained", BF16),
    "gemma3, bfloat16": lambda: tiny.prepared("gemma3", BF16),
    DIFFERS_RARELY: lambda: tiny.prepared("mistral", BF16, False),
    "qwen3, float32, torch's linears": lambda: tiny.prepared("qwen3", FP32, False),
    "qwen3_5, bfloat16": lambda: tiny.prepared("qwen3_5", BF16),
    "qwen3_next, float32": lambda: tiny.prepared("qwen3_next", FP32),
    **{f"compiled {name}": partial(native_kernels.prepared, name) for name in native_kernels.NAMES},
}
ON_TWO_THREADS = "qwen3, float32, torch's linears"
FAKES: dict[str, Callable] = {
    "random": lambda truth, seed, vocab: Random(seed, vocab_size=vocab),
    "often right": lambda truth, seed, vocab: Random(seed, truth, vocab),
    "oracle": lambda truth, seed, vocab: Oracle(truth),
    "adversarial": lambda truth, seed, vocab: Adversarial(truth, vocab),
}


@cache
def probed(name: str, num_threads: int) -> WidthClasses:
    with threads(num_threads), pytest.MonkeyPatch.context() as patch:
        if name != DIFFERS_RARELY:
            patch.setattr(operators, "LINEAR_ROWS", (64, 256))
            patch.setattr(operators, "ATTENTION_ROUNDS", (1, 4))
        partition = probe(StaticTarget(MODELS[name](), LENGTH, WIDTHS))
    judged = sorted([*(width for widths in partition.classes for width in widths), *partition.unstable])
    assert judged == list(WIDTHS), "a width would be raced that was never judged"
    return partition


@pytest.mark.parametrize(("name", "num_threads"), [*((name, 1) for name in MODELS), (ON_TWO_THREADS, 2)])
@settings(max_examples=4)
@given(
    temperature=st.sampled_from([0.0, 0.8]),
    drafter=st.sampled_from(sorted(FAKES)),
    num_prompt=st.integers(1, 40),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_any_draft_at_any_widths_of_a_class(name, num_threads, temperature, drafter, num_prompt, seed, data):
    """The page would call lanes "identical, bit for bit" that are not. (With two threads other widths are exact.)"""
    model = MODELS[name]()
    widths = data.draw(st.sampled_from(probed(name, num_threads).classes))
    mixed = data.draw(st.lists(st.sampled_from(widths), min_size=1, unique=True))
    params = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=24)
    prompt = random_ids(num_prompt, model.vocab_size, seed)
    with threads(num_threads):
        baseline = lane(model, Empty(), prompt, (data.draw(st.sampled_from(widths)),), params)
        truth = tokens_of(baseline)
        fake = FAKES[drafter](truth, seed, model.vocab_size)
        speculative = lane(model, fake, prompt, mixed, params, k=max(mixed) - 1)
    assert len(truth) == len(checksums_of(baseline)) == 24 and isinstance(speculative[-1], Finished)
    assert tokens_of(speculative) == truth
    assert checksums_of(speculative) == checksums_of(baseline)


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith("compiled")])
def test_a_class_holds_over_many_rows(name):
    """In bfloat16 two kernels differ in one sum of 10,000: few rows would call such widths equal by luck."""
    model, params = MODELS[name](), SamplingParams(temperature=1.0, max_new_tokens=120)
    prompt = random_ids(40, model.vocab_size)
    for widths in filter(lambda c: len(c) > 1, probed(name, 1).classes):
        ends = (checksums_of(lane(model, Empty(), prompt, (w,), params)) for w in (widths[0], widths[-1]))
        assert next(ends) == next(ends), f"widths {widths[0]} and {widths[-1]}"


# Whole races, with every drafter of the table

NUM_NEW = 32
# (temperature, k, tokens of the prompt, 0 for a text).
CELLS = [(0.0, 7, 0), (0.8, 1, 1), (0.8, 7, 2), (0.8, 15, 0), (0.0, AUTO, 3), (0.8, AUTO, 0)]
TARGETS = [("trained", "float32"), ("linear", "bfloat16"), ("trained", "bfloat16"), ("linear", "float32")]
LIMITS = {"dflash": 7}


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkpoint with linear attention: random weights, the trained fixture's tokenizer, a cache of its own."""
    place = tmp_path_factory.mktemp("linear")
    tiny.fresh("qwen3_5").save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TRAINED / name, place / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHOTOFINISH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield place


@cache
def loaded(place: Path, dtype: str) -> LoadedModel:
    return load(str(place), dtype, "cpu")


def raced(model: LoadedModel, drafters: dict[str, str], temperature: float, k: int | str, num_prompt: int) -> TorchRace:
    """An audited race with a lane of each drafter, set up and not run."""
    prompt = encode_prompt(model.tokenizer, PROMPTS[0])
    if num_prompt:
        prompt = Prompt("", prompt.token_ids[:num_prompt])
    lanes = lanes_of((name, text, k if k == AUTO else min(k, LIMITS.get(name, k))) for name, text in drafters.items())
    params = SamplingParams(temperature=temperature, seed=2, max_new_tokens=NUM_NEW)
    return TorchRace(model, RaceSpec(lanes, params, audit=True), prompt)


@pytest.mark.parametrize(
    ("model", "dtype", "cell"),
    [
        pytest.param(*target, cell, marks=() if (target[1], cell) == ("float32", CELLS[2]) else pytest.mark.slow)
        for i, target in enumerate(TARGETS)
        for j, cell in enumerate(CELLS)
        if i // 2 == j % 2  # each cell on both kinds of model, once in each dtype; each target with half of the cells
    ],
    ids=str,
)
def test_every_drafter_writes_the_baselines_tokens_from_its_bits(linear, few_rows, model, dtype, cell):
    """A drafter would change a token or a bit of the target's, or its lane be judged or recorded wrongly."""
    place = TRAINED if model == "trained" else linear
    drafters = {name: text_of(name) for name in ARGUMENTS}
    if model == "linear":
        drafters = {"ngram": "ngram", "draft_model": f"draft_model:{DRAFT}", "synthetic": "synthetic:0.6"}
        drafters["itself"] = f"draft_model:{place}"
    race, (_, k, _) = raced(loaded(place, dtype), drafters, *cell), cell
    recording = build(race.header(), list(race.events()), race.result())
    check(recording.fields)
    truth = written(race, "baseline")
    assert race.widths.plan.exact and len(truth) > NUM_NEW / 3 and recording.spec == race.spec
    assert recording["synthetic"] == ["synthetic"]
    for name in drafters:
        assert written(race, name) == truth, name
        verdict = recording["verdicts"][name]
        assert verdict["kind"] == "identical_bits", name
        assert (verdict["rows_compared"], verdict["rows_different"]) == (len(truth), 0)
        if k != AUTO and name not in ("none", "ngram"):
            assert max(len(step.drafted) for step in race.lanes[name].steps) == min(k, LIMITS.get(name, k))
    drafted = [step for name in drafters for step in race.lanes[name].steps if step.drafted]
    if k == AUTO:
        return
    assert len({step.num_accepted for step in drafted}) > min(k, 4) / 2, "hardly any rollback was tried"
    if model == "linear":  # after a rejection the states of a draft model must be the committed tokens' too
        steps = race.lanes["itself"].steps[:-1]  # a text may end within its last draft
        assert sum(s.num_accepted for s in steps) >= 0.9 * sum(len(s.drafted) for s in steps) > 0


def test_a_row_is_explained_by_the_bits_that_chose_it(linear, few_rows, monkeypatch):
    """Where lanes part, the row is computed again: from another state it would explain another choice."""
    race = raced(loaded(linear, "bfloat16"), {"synthetic": "synthetic:0.6"}, 0.8, 7, 0)
    list(race.events())
    again: list[int] = []
    extend = StaticTarget.extend

    def watched(self: StaticTarget, token_ids: Any, num_logits: int, width: int | None = None) -> Any:
        outputs = extend(self, token_ids, num_logits, width)
        again.extend(self.checksums(outputs[0][:1]) if num_logits else ())
        return outputs

    monkeypatch.setattr(StaticTarget, "extend", watched)
    truth, (a, b) = written(race, "baseline"), (race.lanes[name] for name in ("baseline", "synthetic"))
    for position in (NUM_NEW - 1, 9, 1, 0):
        again.clear()
        difference = race._explain(a, b, position, (1, 2))
        assert truth[position][1] in again[:-1] and again[-1] == truth[position][1] and difference.rounding == 0


# Planted in the rollback of linear layers (tests/exactness/test_planted_faults.py has those of all others)


def without_restoring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback moves the pointer of keys and values, and leaves the linear layers at the rejected tokens."""
    right = StaticTarget.rollback

    def rollback(self: StaticTarget, length: int) -> None:
        for layer in self.prepared.shape.linear.layers if self.length else ():  # type: ignore[union-attr]
            states = self.kv[layer][0]
            states[length % len(states)] = states[self.length % len(states)].clone()
        right(self, length)

    monkeypatch.setattr(StaticTarget, "rollback", rollback)


def misplaced(monkeypatch: pytest.MonkeyPatch, change: Callable[[Places, torch.Tensor, Any, int], Places]) -> None:
    """A step looks for its states or inputs elsewhere."""
    right = Places.of

    def of(at: torch.Tensor, shape: Any, num_states: int, chunked: bool) -> Places:
        places = right(at, shape, num_states, chunked)
        return places if chunked else change(places, at, shape, num_states)

    monkeypatch.setattr(Places, "of", staticmethod(of))


def neighbour(off: int) -> Callable[[Places, torch.Tensor, Any, int], Places]:
    return lambda places, at, shape, num: replace(places, state=(at[:1] + off) % num)


def later_inputs(places: Places, at: torch.Tensor, shape: Any, num_states: int) -> Places:
    return replace(places, past=(places.past + 1) % (num_states + shape.kernel - 2))


FAULTS = {
    "no restoring": without_restoring,
    "the next snapshot": lambda patch: misplaced(patch, neighbour(1)),
    "the snapshot before": lambda patch: misplaced(patch, neighbour(-1)),
    "the convolution still sees rejected tokens": lambda patch: misplaced(patch, later_inputs),
}


@cache
def clean(name: str) -> Real:
    race = Real(MODELS[name]())
    assert race.verdict().kind == "identical_bits"
    return race


@pytest.mark.parametrize("fault", sorted(FAULTS))
@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith("qwen3_")])
def test_a_rollback_that_restores_linear_layers_wrongly_is_caught(name, fault, monkeypatch):
    """Only the race's own comparison stands between such a fault and a page that says "identical"."""
    assert MODELS[name]().shape.linear is not None
    race = clean(name)
    FAULTS[fault](monkeypatch)
    race.truth = tokens_of(race.lane(Empty(), (8,)))  # drafts that a faulty target accepts, too
    assert caught(race.verdict())
