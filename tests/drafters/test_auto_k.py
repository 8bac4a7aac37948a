"""`auto` k, simulated against the best fixed k on the costs of this project's machine, and raced on real models: it
saves time and never changes a token."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from statistics import geometric_mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import drafters
from engine.drafters.auto import AutoDrafter
from engine.drafters.hybrid import HybridDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.none import NoDrafter
from engine.drafters.rates import DraftTime
from engine.drafters.synthetic import SyntheticDrafter
from engine.errors import UsageError
from engine.events import Step
from engine.exactness.widths import WidthClasses, candidates, plan
from engine.interfaces import Draft, Drafter
from engine.recordings.recording import build, check, read
from engine.session import TorchRace
from engine.spec import MAX_AUTO_K, LaneSpec, RaceSpec, SamplingParams, standard_lanes
from engine.target.target import StaticTarget
from engine.text import encode_prompt
from tests.helpers.auto_races import COSTS, decode_s, recorded, text
from tests.helpers.fakes import Fake, FakeClock, FakeTarget, Random, run, sample_with, tokens_of
from tests.helpers.tiny import LENGTH, TRAINED, lane
from tests.helpers.trained import ARGUMENTS, PROMPTS, context, text_of, trained

FIXED = (0, 1, 2, 3, 5, 7, 15)


class Costly(Drafter):
    """A drafter whose drafts take `fixed_s` and `token_s` a token of a fake clock."""

    def __init__(self, inner: Any, clock: FakeClock, fixed_s: float, token_s: float) -> None:
        self.inner, self.clock, self.fixed_s, self.token_s = inner, clock, fixed_s, token_s

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self.inner.prefill(prompt_ids, hidden)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        draft = self.inner.propose(token_ids, hidden, k)
        if k:
            self.clock.spend(self.fixed_s + self.token_s * len(draft))
        return draft


def compared(make: Callable[[FakeClock], Any], prompt: Sequence[int], truth: Sequence[int]) -> tuple[float, float]:
    """Time of (the best fixed k, no drafts), each over the time of `auto`."""
    fixed = {}
    for k in FIXED:
        clock = FakeClock()
        fixed[k], _ = decode_s(make(clock), clock, prompt, truth, k)
    clock = FakeClock()
    auto, _ = decode_s(AutoDrafter(make(clock), COSTS, clock), clock, prompt, truth, MAX_AUTO_K)
    return min(fixed.values()) / auto, fixed[0] / auto


def guesser(
    acceptance: float, fixed_s: float, token_s: float, seed: int, truth: Sequence[int]
) -> Callable[[FakeClock], Any]:
    return lambda clock: Costly(SyntheticDrafter(truth, acceptance, seed, 1000), clock, fixed_s, token_s)


def copier(clock: FakeClock, min_match: int = 1) -> Any:
    return Costly(NgramDrafter(min_match), clock, 5e-5, 0)


# --- against the best fixed k


def test_copies_on_recorded_races():
    """On the texts that ship, whoever chose k by hand, knowing the outcome, would be much faster; where no copy pays,
    drafting would cost."""
    ratios = [compared(copier, prompt, truth) for prompt, truth in recorded()]
    assert len(ratios) >= 7
    assert geometric_mean(best for best, _ in ratios) >= 0.97 and min(best for best, _ in ratios) >= 0.9
    assert min(none for _, none in ratios) >= 0.97


@pytest.mark.parametrize(("fixed_s", "token_s"), [(0, 0), (0, 0.004), (0.006, 0)])
@pytest.mark.parametrize("acceptance", [0.0, 0.2, 0.5, 0.8, 0.95])
def test_a_drafter_of_any_acceptance_and_cost(acceptance, fixed_s, token_s):
    """It would draft too much, too little, or go on drafting where it does not pay."""
    ratios = [compared(guesser(acceptance, fixed_s, token_s, seed, text(seed)), [1], text(seed)) for seed in range(3)]
    assert geometric_mean(best for best, _ in ratios) >= 0.95
    assert geometric_mean(none for _, none in ratios) >= 0.97 and min(none for _, none in ratios) >= 0.95


def test_it_finds_out_when_drafting_begins_to_pay():
    """A race that opens badly would never draft again; one that turns bad would draft for nothing."""

    class Turning(Drafter):
        def __init__(self, truth: Sequence[int], seed: int) -> None:
            self.moods = [SyntheticDrafter(truth, rate, seed, 1000) for rate in (0.05, 0.9)]

        def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
            for mood in self.moods:
                mood.prefill(prompt_ids, hidden)

        def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
            return self.moods[len(token_ids) // 128 % 2].propose(token_ids, hidden, k)

    ratios = []
    for seed in range(4):
        truth = text(seed) + text(seed + 9)
        ratios.append(
            compared(lambda clock, truth=truth, seed=seed: Costly(Turning(truth, seed), clock, 0.006, 0), [1], truth)[0]
        )
    assert geometric_mean(ratios) >= 1.0, "no fixed k is right for both halves"


@pytest.mark.parametrize(("acceptance", "fixed_s", "token_s"), [(0.3, 0, 0.002), (0.6, 0, 0.002), (0.6, 0.004, 0)])
def test_the_better_part_of_a_hybrid_is_asked(acceptance, fixed_s, token_s):
    """The copy would be taken where the other drafter knows better, or the other way round."""
    ratios = []
    for prompt, truth in recorded():
        other = guesser(acceptance, fixed_s, token_s, 1, truth)
        ratios.append(
            compared(lambda clock, other=other: HybridDrafter(copier(clock, 3), other(clock)), prompt, truth)[0]
        )
    assert geometric_mean(ratios) >= 0.97


def test_nothing_is_drafted_for_long_where_it_never_pays():
    """Finding out again and again would cost more than it may."""
    clock, truth = FakeClock(), text(0) * 4
    make = guesser(0.0, 0.02, 0.004, 0, truth)
    _, drafted = decode_s(AutoDrafter(make(clock), COSTS, clock), clock, [1], truth, MAX_AUTO_K)
    assert sum(map(bool, drafted[20:])) <= 0.02 * len(drafted)


# --- what a draft costs


@given(
    st.floats(0, 0.01),
    st.floats(0, 0.01),
    st.lists(st.integers(1, 15), min_size=2, max_size=40),
    st.randoms(use_true_random=False),
)
def test_draft_time_is_a_line_whatever_disturbs(fixed, slope, lengths, rng):
    """One interruption would make drafts look dear for the rest of a race."""
    known = DraftTime()
    for n in {1, 15, *lengths}:
        for _ in range(5):
            known.add(n, fixed + slope * n)
        known.add(n, 1.0)
    for n in range(1, 16):
        assert known(n) == pytest.approx(fixed + slope * n, abs=1e-6)


# --- tokens


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.integers(0, 3),
    st.integers(1, 40),
    st.integers(0, 15),
    st.sampled_from([0.0, 0.8]),
    st.integers(0, 99),
)
def test_tokens_stay_and_every_row_arrives(prompt, table, length, k, temperature, seed):
    """A cut draft would change what is written, or a step without a draft lose hidden rows."""
    loop = {"prompt": prompt, "max_new_tokens": length, "sample": sample_with(temperature, 3)}
    truth = tokens_of(list(run(FakeTarget(table), Fake(), k=0, **loop)))
    inner = Random(seed, truth)
    inner.hidden_layers = (1,)
    events = list(run(FakeTarget(table, hidden=True), AutoDrafter(inner, COSTS), k=k, **loop))
    assert tokens_of(events) == truth
    written = [*prompt, *truth]
    assert inner.hidden == [(i, written[i]) for i in range(len(inner.hidden))] and len(inner.hidden) >= len(prompt) - 1
    assert inner.num_proposals == sum(isinstance(e, Step) for e in events)


@cache
def baseline_of(width, temperature):
    prompt = trained().tokenizer(PROMPTS[0])["input_ids"]
    here = context(prompt, temperature=temperature)
    return lane(here.loaded.prepared, NoDrafter(), prompt, (width,), here.params)


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_lane_writes_the_baselines_tokens(name, temperature):
    """A drafter that is asked for another number at each step would change what the target says, or a bit of its
    logits."""
    prompt = trained().tokenizer(PROMPTS[0])["input_ids"]
    here = context(prompt, temperature=temperature)
    widths = (2, 4, 8, 16)
    baseline = baseline_of(widths[-1], temperature)
    here = context(prompt, tokens_of(baseline), temperature)
    drafter = drafters.make(text_of(name), here)
    costs = [next(0.001 * (1 + w / 40) for w in widths if w > m) for m in range(here.k + 1)]
    target = StaticTarget(here.loaded.prepared, LENGTH, widths[-1:], drafter.hidden_layers)
    events = lane(
        here.loaded.prepared, AutoDrafter(drafter, costs), prompt, widths[-1:], here.params, MAX_AUTO_K, target=target
    )
    assert tokens_of(events) == tokens_of(baseline)
    assert [c for s in events if isinstance(s, Step) for c in s.checksums] == [
        c for s in baseline if isinstance(s, Step) for c in s.checksums
    ]


@pytest.mark.parametrize(
    ("drafter", "temperature"),
    [("ngram", 0.0), ("synthetic:0.9", 0.8), (f"hybrid:ngram+eagle3:{TRAINED.parent / 'eagle3'}", 0.8)],
)
def test_a_whole_race(few_rows, tmp_path, drafter, temperature):
    """The race would not plan its widths for it, not say that it was synthetic, or leave a recording that cannot be
    read."""
    loaded = trained()
    spec = RaceSpec(standard_lanes(drafter, "auto"), SamplingParams(temperature, seed=3, max_new_tokens=48), audit=True)
    race = TorchRace(loaded, spec, encode_prompt(loaded.tokenizer, PROMPTS[0], False))
    recording = check(build(race.header(), list(race.events()), race.result()))
    assert recording["verdicts"]["speculative"]["kind"] == "identical_bits"
    assert recording["spec"]["lanes"][2]["k"] == "auto"
    assert recording["synthetic"] == (["speculative"] if drafter.startswith("synthetic") else [])
    (tmp_path / "race.json").write_text(json.dumps(recording))
    assert read(tmp_path / "race.json") == recording
    recording["spec"]["lanes"][2]["k"] = "many"
    with pytest.raises(UsageError, match="auto"):
        check(recording)


# --- configuration


def test_the_longest_draft_fits_the_width():
    """A step would be asked to verify more than it holds."""
    assert LaneSpec("a", "ngram", "auto").max_drafts == MAX_AUTO_K
    assert LaneSpec("a", "ngram", "auto", 4).max_drafts == 3
    assert standard_lanes("none", "auto")[2].k == 0
    with pytest.raises(UsageError, match="at least 2"):
        LaneSpec("a", "ngram", "auto", 1)


@given(
    st.lists(st.integers(-1, 2), min_size=8, max_size=8),
    st.lists(st.floats(1e-3, 1), min_size=8, max_size=8),
    st.sampled_from([0, 0, 7]),
)
def test_widths_are_planned_for_any_draft(homes, times, k):
    """Lanes would mix widths of two classes, or a lane beside it not fit."""
    widths = candidates(MAX_AUTO_K)
    home = dict(zip(widths, homes, strict=False))
    classes = tuple(c for c in (tuple(w for w in widths if home[w] == i) for i in range(3)) if c)
    found = WidthClasses(classes, tuple(w for w in widths if home[w] == -1))
    seconds = dict(zip(widths, times, strict=False))
    chosen = plan(found, seconds, k, auto_k=True)
    assert chosen.width > max(k, 1) and max(chosen.step_widths) == chosen.width
    assert set(chosen.step_widths) <= set(found.of(chosen.width))
    assert (
        chosen.exact
        == (chosen.width not in found.unstable)
        == any(w > max(k, 1) and w not in found.unstable for w in widths)
    )


def test_a_class_with_a_cheap_floor_is_preferred():
    """Where the widest width is alone in its class, every step without a draft would be as dear as one with fifteen."""
    seconds = {1: 1.0, 2: 1.05, 4: 1.1, 8: 1.25, 16: 1.45}
    assert plan(WidthClasses(((1,), (2, 4, 8), (16,))), seconds, 0, auto_k=True).step_widths == (2, 4, 8)
    assert plan(WidthClasses(((1,), (2, 4, 8, 16))), seconds, 0, auto_k=True).step_widths == (2, 4, 8, 16)
