"""Races of a hybrid model: whatever is drafted and rejected, the same tokens from the same bits; and a rollback that
leaves something behind is found."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.model.delta_places import Places
from engine.models.loading import LoadedModel, load
from engine.session import TorchRace
from engine.spec import LaneSpec, RaceSpec, SamplingParams, standard_lanes
from engine.target.target import StaticTarget
from engine.text import encode_prompt
from tests.helpers.fakes import Empty, tokens_of
from tests.helpers.linear_models import NAMES, VOCAB, fresh, prepared
from tests.helpers.planted import Real, caught
from tests.helpers.tiny import DTYPES, TRAINED
from tests.helpers.trained import DRAFT, PROMPTS

DRAFTERS = ("ngram", f"draft_model:{DRAFT}", "synthetic:0.6")
NEW_TOKENS = 24
on_every_model = pytest.mark.parametrize(
    ("name", "dtype"), [("qwen3_5", torch.bfloat16), ("qwen3_next", torch.float32)], ids=str
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkpoint as it is published: a hybrid's weights, and the trained fixture's tokenizer. What is probed on it is
    remembered beside it."""
    place = tmp_path_factory.mktemp("hybrid")
    fresh("qwen3_5").save_pretrained(place)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TRAINED / name, place / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHOTOFINISH_CACHE", str(tmp_path_factory.mktemp("cache")))
        loaded.cache_clear()
        yield place


@cache
def loaded(place: Path, dtype: str) -> LoadedModel:
    return load(str(place), dtype, "cpu")


def raced(
    model: LoadedModel, drafters: Sequence[str], k: int, temperature: float, num_new: int = NEW_TOKENS
) -> TorchRace:
    """A whole audited race: the standard lanes, and one of each drafter under its own name."""
    lanes = standard_lanes(drafters[0], k)[:2] + tuple(
        LaneSpec(text.partition(":")[0], drafter=text, k=k) for text in drafters
    )
    params = SamplingParams(temperature=temperature, seed=2, max_new_tokens=num_new)
    race = TorchRace(model, RaceSpec(lanes, params, audit=True), encode_prompt(model.tokenizer, PROMPTS[0]))
    list(race.events())
    return race


def written(race: TorchRace, name: str) -> tuple[list[int], list[int]]:
    steps = race.lanes[name].steps
    return [t for s in steps for t in s.token_ids], [c for s in steps for c in s.checksums]


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("k", [3, 7])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_drafter_writes_the_baselines_tokens_from_its_bits(folder, few_rows, dtype, k, temperature):
    """The headline's model, and the claim "identical, bit for bit" would not hold for it."""
    race = raced(loaded(folder, dtype), DRAFTERS, k, temperature)
    assert race.widths.plan.exact and len(written(race, "baseline")[1]) == NEW_TOKENS
    for text in DRAFTERS:
        name = text.partition(":")[0]
        assert written(race, name) == written(race, "baseline"), name
        verdict = race.compare("baseline", name)
        assert verdict.kind == "identical_bits" and verdict.rows_different == 0
        if name != "ngram":  # random text seldom repeats itself
            assert any(s.num_accepted < len(s.drafted) for s in race.lanes[name].steps)


@pytest.mark.slow
def test_drafts_are_accepted_in_every_number(folder, few_rows):
    """Rollbacks of one length only would prove little."""
    race = raced(loaded(folder, "float32"), ["synthetic:0.8"], 7, 0.0, 96)
    assert written(race, "synthetic") == written(race, "baseline")
    assert len({s.num_accepted for s in race.lanes["synthetic"].steps}) >= 5


def test_a_hybrid_drafts_for_itself(folder, few_rows):
    """A draft model of this kind is rolled back by a whole chain of its steps: its drafts would go wrong after the
    first rejection."""
    race = raced(loaded(folder, "float32"), [f"draft_model:{folder}"], 7, 0.0)
    assert written(race, "draft_model") == written(race, "baseline")
    steps = race.lanes["draft_model"].steps
    assert sum(s.num_accepted for s in steps) >= 0.9 * sum(len(s.drafted) for s in steps) > 0


def test_a_row_is_explained_by_the_bits_that_chose_it(folder, few_rows, monkeypatch):
    """Where lanes part, the row is computed again long after the step: from another state it would explain another
    choice."""
    model = loaded(folder, "bfloat16")
    race = raced(model, ["synthetic:0.6"], 7, 0.8)
    again: list[int] = []
    extend = StaticTarget.extend

    def watched(self: StaticTarget, token_ids: Any, num_logits: int, width: int | None = None) -> Any:
        found = extend(self, token_ids, num_logits, width)
        again.extend(self.checksums(found[0][:1]) if num_logits else ())
        return found

    monkeypatch.setattr(StaticTarget, "extend", watched)
    checksums = written(race, "baseline")[1]
    a, b = race.lanes["baseline"], race.lanes["synthetic"]
    for position in (NEW_TOKENS - 1, 9, 1, 0):
        again.clear()
        difference = race._explain(a, b, position, (1, 2))
        assert checksums[position] in again[:-1] and again[-1] == checksums[position] and difference.rounding == 0


# Planted


def without_restoring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback moves the pointer for keys and values, and leaves the linear layers where the rejected tokens put
    them."""
    right = StaticTarget.rollback

    def rollback(self: StaticTarget, length: int) -> None:
        for layer in self.prepared.shape.linear.layers if self.length else ():  # type: ignore[union-attr]
            states = self.kv[layer][0]
            states[length % len(states)] = states[self.length % len(states)].clone()
        right(self, length)

    monkeypatch.setattr(StaticTarget, "rollback", rollback)


def neighbours(monkeypatch: pytest.MonkeyPatch, off: int) -> None:
    """A step begins from the snapshot beside the right one."""
    right = Places.of

    def of(at: torch.Tensor, shape: Any, num_states: int, chunked: bool) -> Places:
        places = right(at, shape, num_states, chunked)
        return replace(places, state=(at[:1] + off) % num_states)

    monkeypatch.setattr(Places, "of", staticmethod(of))


def inputs_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The states are restored, and the convolution still sees rejected tokens."""
    right = Places.of

    def of(at: torch.Tensor, shape: Any, num_states: int, chunked: bool) -> Places:
        places = right(at, shape, num_states, chunked)
        return places if chunked else replace(places, past=(places.past + 1) % (num_states + shape.kernel - 2))

    monkeypatch.setattr(Places, "of", staticmethod(of))


FAULTS = {
    "no restoring": without_restoring,
    "the next one's snapshot": lambda patch: neighbours(patch, 1),
    "the one before's snapshot": lambda patch: neighbours(patch, -1),
    "inputs left": inputs_left,
}


@cache
def clean(name: str, dtype: torch.dtype) -> Real:
    race = Real(prepared(name, dtype))
    assert race.verdict().kind == "identical_bits"
    return race


@pytest.mark.parametrize("fault", sorted(FAULTS))
@on_every_model
def test_a_rollback_that_restores_wrongly_is_caught(name, dtype, fault, monkeypatch):
    """The race's own comparison is what stands between such a fault and a page that says "identical"."""
    race = clean(name, dtype)
    FAULTS[fault](monkeypatch)
    race.truth = tokens_of(race.lane(Empty(), (8,)))  # drafts that a faulty target accepts, too
    assert caught(race.verdict())


def test_the_hybrids_are_those_promised():
    """The tests above would run on a model without a linear layer."""
    for name in NAMES:
        for dtype in DTYPES:
            linear = prepared(name, dtype).shape.linear
            assert linear is not None and linear.layers == (0, 1, 3) and prepared(name, dtype).vocab_size == VOCAB
