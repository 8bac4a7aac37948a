"""`auto` k saves time and never changes a token: simulated on the costs of this project's machine, against the best
fixed k and against the better part of a hybrid."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.auto import AutoDrafter
from engine.drafters.hybrid import HybridDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.none import NoDrafter
from engine.drafters.synthetic import SyntheticDrafter
from engine.errors import UsageError
from engine.events import Step
from engine.exactness.widths import WidthClasses, plan
from engine.interfaces import Draft, Drafter, MarginDrafter
from engine.session import TorchRace
from engine.spec import MAX_AUTO_K, LaneSpec, RaceSpec, SamplingParams, standard_lanes
from engine.text import encode_prompt
from tests.helpers.auto_races import COSTS, TEXTS, decode_s, recorded, text
from tests.helpers.fakes import FakeClock, FakeTarget, Random, run, sample_with, tokens_of
from tests.helpers.trained import PROMPTS, text_of, trained

FIXED = (0, 1, 2, 3, 5, 7, 15)
Make = Callable[[FakeClock], Any]


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


class Sure(MarginDrafter):
    """Guesses the truth, surely (right 0.95 of the time) or not (0.2). margins False: always the same margin."""

    def __init__(
        self,
        truth: Sequence[int],
        clock: FakeClock,
        seed: int = 0,
        share: float = 0.5,
        token_s: float = 0.0012,
        margins: bool = True,
        hidden_layers: tuple[int, ...] = (),
    ) -> None:
        self.truth, self.clock, self.rng, self.share = truth, clock, random.Random(seed), share
        self.token_s, self.margins, self.hidden_layers = token_s, margins, hidden_layers
        self.hidden: list[Any] = []
        self.num_proposals = 0

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self.num_prompt = len(prompt_ids)
        self.hidden = list(hidden or ())

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        return self.propose_while(token_ids, hidden, k, lambda *_: True)

    def propose_while(
        self, token_ids: Sequence[int], hidden: Any, k: int, go_on: Callable[[int, float], bool]
    ) -> Draft:
        self.num_proposals += 1
        self.hidden += hidden or ()
        done, ids = len(token_ids) - self.num_prompt, []
        for true in self.truth[done : done + k]:
            sure = self.rng.random() < self.share
            self.clock.spend(self.token_s)
            ids.append(true if self.rng.random() < (0.95 if sure else 0.2) else (true - 1 if true else 1))
            if not go_on(ids[-1], (6.0 if sure else 0.2) if self.margins else 1.0):
                break
        return Draft(tuple(ids))


def auto_s(make: Make, prompt: Sequence[int], truth: Sequence[int]) -> float:
    """Seconds of `auto` for that text."""
    clock = FakeClock()
    return decode_s(AutoDrafter(make(clock), COSTS, clock), clock, prompt, truth, MAX_AUTO_K)[0]


def compared(make: Make, prompt: Sequence[int], truth: Sequence[int]) -> tuple[float, float]:
    """Seconds of (the best fixed k, no drafts), each over those of `auto`."""
    fixed = {}
    for k in FIXED:
        clock = FakeClock()
        fixed[k], _ = decode_s(make(clock), clock, prompt, truth, k)
    auto = auto_s(make, prompt, truth)
    return min(fixed.values()) / auto, fixed[0] / auto


def guesser(acceptance: float, fixed_s: float, token_s: float, seed: int, truth: Sequence[int]) -> Make:
    return lambda clock: Costly(SyntheticDrafter(truth, acceptance, seed, 1000), clock, fixed_s, token_s)


def copier(clock: FakeClock, min_match: int = 1) -> Any:
    return Costly(NgramDrafter(min_match), clock, 5e-5, 0)


# Against the best fixed k


def test_copies_on_recorded_races():
    """A k chosen with hindsight would be much faster, or drafting cost where no copy pays."""
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

    def ratio(truth: list[int], seed: int) -> float:
        return compared(lambda clock: Costly(Turning(truth, seed), clock, 0.006, 0), [1], truth)[0]

    ratios = [ratio(text(seed) + text(seed + 9), seed) for seed in range(4)]
    assert geometric_mean(ratios) >= 1.0, "no fixed k is right for both halves"


def test_a_drafter_is_stopped_where_it_is_not_sure():
    """Margins would not be used: drafts would go on after doubtful tokens or end after sure ones."""
    gains = []
    for seed in range(6):
        truth = text(seed)
        told, untold = (
            auto_s(lambda clock, m=m, t=truth, s=seed: Sure(t, clock, s, token_s=0.003, margins=m), [1], truth)
            for m in (True, False)
        )
        gains.append(untold / told)
    assert geometric_mean(gains) >= 1.05


# Hybrids


@pytest.mark.parametrize(("acceptance", "fixed_s", "token_s"), [(0.3, 0, 0.002), (0.6, 0, 0.002), (0.6, 0.004, 0)])
def test_the_better_part_of_a_hybrid_is_asked(acceptance, fixed_s, token_s):
    """The copy would be taken where the other drafter knows better, or the other way round."""
    ratios = []
    for prompt, truth in recorded():
        other = guesser(acceptance, fixed_s, token_s, 1, truth)
        ratios.append(compared(lambda clock, o=other: HybridDrafter(copier(clock, 3), o(clock)), prompt, truth)[0])
    assert geometric_mean(ratios) >= 0.97


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_both_against_the_better_one_chosen_with_hindsight(share):
    """Copies would be trusted where the head knows better, or the head asked where the text repeats itself."""
    ratios = []
    for seed, (prompt, truth) in enumerate(recorded()):

        def head(clock: FakeClock, truth: Any = truth, seed: int = seed) -> Sure:
            return Sure(truth, clock, seed, share)

        both = auto_s(lambda clock, head=head: HybridDrafter(NgramDrafter(1), head(clock)), prompt, truth)
        alone = min(auto_s(make, prompt, truth) for make in (head, lambda clock: NgramDrafter(1)))
        ratios.append(alone / both)
    assert geometric_mean(ratios) >= 0.99 and min(ratios) >= 0.87


def test_copies_that_are_always_wrong_are_not_believed_for_long():
    """A text full of short matches that mean nothing would cost what the head gains."""
    ratios = []
    for seed in range(6):
        rng = random.Random(seed)
        truth = [rng.randrange(32) for _ in range(1024)]

        def head(clock: FakeClock, truth: Any = truth, seed: int = seed) -> Sure:
            return Sure(truth, clock, seed, 0.8)

        both = auto_s(lambda clock, head=head: HybridDrafter(NgramDrafter(1), head(clock)), [1], truth)
        ratios.append(auto_s(head, [1], truth) / both)
    assert geometric_mean(ratios) >= 0.98


# Tokens


@pytest.mark.parametrize("kind", ["random", "sure", "copies and sure"])
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.integers(0, 3),
    st.integers(1, 40),
    st.integers(0, 15),
    st.sampled_from([0.0, 0.8]),
    st.integers(0, 99),
)
def test_tokens_stay_and_every_row_arrives(kind, prompt, table, length, k, temperature, seed):
    """A cut draft would change what is written, or a drafter lose hidden rows or get them twice."""
    loop = {"prompt": prompt, "max_new_tokens": length, "sample": sample_with(temperature, 3)}
    truth = tokens_of(list(run(FakeTarget(table), NoDrafter(), k=0, **loop)))
    inner: Any = Random(seed, truth) if kind == "random" else Sure(truth, FakeClock(), seed)
    inner.hidden_layers = (1,)
    drafter = HybridDrafter(NgramDrafter(1), inner) if "copies" in kind else inner
    events = list(run(FakeTarget(table, hidden=True), AutoDrafter(drafter, COSTS), k=k, **loop))
    assert tokens_of(events) == truth
    written = [*prompt, *truth]
    assert inner.hidden == [(i, written[i]) for i in range(len(inner.hidden))] and len(inner.hidden) >= len(prompt) - 1
    assert inner.num_proposals == sum(isinstance(e, Step) for e in events)


@given(TEXTS, st.lists(st.integers(0, 6), max_size=6), st.integers(0, 15))
def test_what_was_only_drafted_is_not_remembered(tokens, drafted, k):
    """A draft that was rejected would be copied later as if it had been written."""
    looked, fresh = NgramDrafter(1), NgramDrafter(1)
    looked.prefill(tokens[:1], None)
    fresh.prefill(tokens, None)
    copy = looked.look(tokens, drafted, k)
    assert looked.propose(tokens, None, k) == fresh.propose(tokens, None, k)
    assert looked.look(tokens, drafted, k) == copy and len(copy.token_ids) == (k if copy.match else 0)


def test_nothing_depends_on_what_was_drafted_where_that_would_bias():
    """Under rejection this would change the odds of what is written."""
    truth = text(0)
    looked: list[Sequence[int]] = []

    class Copies(NgramDrafter):
        def look(self, token_ids, drafted, k):
            looked.append(drafted)
            return super().look(token_ids, drafted, k)

    head: Any = Sure(truth, FakeClock(), share=0.9)
    head.propose_while = lambda *_: pytest.fail("asked token by token")
    head.propose = lambda token_ids, hidden, k: Draft(tuple(truth[len(token_ids) - 1 :][:k]))
    auto = AutoDrafter(HybridDrafter(Copies(1), head), COSTS, FakeClock(), by_margin=False)
    _, drafted = decode_s(auto, FakeClock(), [1], truth, MAX_AUTO_K)
    assert any(drafted) and looked and not any(looked)
    for rule, by_margin in (("rejection", False), ("coupled", True)):
        lanes = [
            replace(lane, rule=rule) if lane.name == "speculative" else lane
            for lane in standard_lanes(text_of("eagle3"), "auto")
        ]
        spec = RaceSpec(tuple(lanes), SamplingParams(0.8, seed=3, max_new_tokens=24))
        race = TorchRace(trained(), spec, encode_prompt(trained().tokenizer, PROMPTS[0], False))
        assert race.lanes["speculative"].drafter.by_margin == by_margin


# Widths


def test_the_longest_draft_fits_the_width():
    """A step would be asked to verify more than it holds."""
    assert LaneSpec("a", "ngram", "auto").max_drafts == MAX_AUTO_K
    assert LaneSpec("a", "ngram", "auto", 4).max_drafts == 3
    assert standard_lanes("none", "auto")[2].k == 0
    with pytest.raises(UsageError, match="at least 2"):
        LaneSpec("a", "ngram", "auto", 1)


def test_a_class_with_a_cheap_floor_is_preferred():
    """Where the widest width is alone in its class, every step without a draft would be as dear as one with fifteen."""
    seconds = {1: 1.0, 2: 1.05, 4: 1.1, 8: 1.25, 16: 1.45}
    assert plan(WidthClasses(((1,), (2, 4, 8), (16,))), seconds, 0, auto_k=True).step_widths == (2, 4, 8)
    assert plan(WidthClasses(((1,), (2, 4, 8, 16))), seconds, 0, auto_k=True).step_widths == (2, 4, 8, 16)
