"""`auto` k never changes a token, and saves time: against the best fixed k, and the better part of a hybrid."""

import json
import random
from collections.abc import Callable, Sequence
from statistics import geometric_mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.events import Step
from engine.core.interfaces import BranchingDrafter, Draft, Node
from engine.core.spec import MAX_AUTO_K, RaceSpec, SamplingParams, standard_lanes
from engine.drafters.auto import AutoDrafter
from engine.drafters.chances import of_scores, sharpness
from engine.drafters.hybrid import HybridDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.none import NoDrafter
from engine.exactness.widths import WidthClasses, plan
from engine.session import TorchRace
from engine.text import encode_prompt
from tests.helpers import ROOT
from tests.helpers.fakes import VOCAB, Fake, FakeChoice, FakeClock, FakeTarget, Random, run, tokens_of
from tests.helpers.trained import PROMPTS, text_of, trained

# Races are simulated on a fake clock, at the costs of this project's machine.
STEP_S = {1: 0.025, 2: 0.02625, 4: 0.0275, 8: 0.03125, 16: 0.03625}  # seconds of a step by its width, on two cores
COSTS = [next(s for w, s in STEP_S.items() if w > m) for m in range(MAX_AUTO_K + 1)]
# Small alphabets, so that there are many matches, of every length.
TEXTS = st.integers(1, 6).flatmap(lambda size: st.lists(st.integers(0, size), min_size=1, max_size=400))
FIXED = (0, 1, 2, 3, 5, 7, 15)
Make = Callable[[FakeClock], Any]


class Sure(Fake, BranchingDrafter):
    """Guesses the truth, surely (right 0.95 of the time) or not (0.2). knows False: it always seems half sure."""

    pass_s = 0.0012

    def __init__(self, truth: Sequence[int], clock: FakeClock, seed: int, share: float, knows: bool = True) -> None:
        super().__init__()
        self.truth, self.clock, self.seed, self.share, self.knows = truth, clock, seed, share, knows

    def begin(self, token_ids: Sequence[int], hidden: Any) -> None:
        self.num_proposals += 1
        self.hidden += hidden or ()
        self.at = len(token_ids) - self.num_prompt

    def can_expand(self, node: Node) -> bool:
        return node.parent is None or node.parent.is_expanded

    def expand(self, nodes: Sequence[Node], num_best: int) -> list[list[tuple[int, float]]]:
        self.clock.spend(self.pass_s)
        return [self.rated(self.at + node.depth)[:num_best] for node in nodes]

    def rated(self, place: int) -> list[tuple[int, float]]:
        if place >= len(self.truth):
            return []
        rng, true = random.Random(f"{self.seed} {place}"), self.truth[place]
        sure = rng.random() < self.share
        wrong = list(range(true + 1, true + 7))
        ids = [true, *wrong] if rng.random() < (0.95 if sure else 0.2) else [*wrong, true]
        step = (1.8 if sure else 0.2) if self.knows else 0.8
        return [(token, -step * rank) for rank, token in enumerate(ids)]

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        self.begin(token_ids, hidden)
        node = Node()
        while node.depth < k and (best := self.expand([node], 1)[0]):
            node = Node((*node.path, best[0][0]), parent=node)
        return Draft(node.path)


class Slow(Sure):
    pass_s = 0.003


class Wavering(Sure):
    """Has the truth among its best two."""

    def rated(self, place: int) -> list[tuple[int, float]]:
        if place >= len(self.truth):
            return []
        true, first = self.truth[place], random.Random(f"{self.seed} {place}").random() < 0.55
        ids = [true, true + 1] if first else [true + 1, true]
        return [*((token, -0.2 * rank) for rank, token in enumerate(ids)), *((true + i, -8.0 - i) for i in range(2, 6))]


def decode_s(drafter: Any, clock: FakeClock, prompt: Sequence[int], truth: Sequence[int], k: int) -> float:
    """Seconds that writing `truth` takes."""
    if isinstance(drafter, AutoDrafter):
        drafter.calibrate(prompt, None)
    drafter.prefill(prompt, None)
    started, verify_s, done = clock(), 0.0, 0
    while done < len(truth):
        draft = drafter.propose((*prompt, *truth[:done]), None, min(k, len(truth) - done - 1))
        row: int | None = 0
        while row is not None:
            row = draft.after(row, truth[done]) if done + 1 < len(truth) else None
            done += 1
        verify_s += COSTS[len(draft)]
    return clock() - started + verify_s


def recorded() -> list[tuple[list[int], list[int]]]:
    """(prompt, completion) of the races that ship."""
    out = []
    for path in sorted((ROOT / "assets" / "races").glob("*.json")):
        race = json.loads(path.read_text(encoding="utf-8"))
        steps = [e for e in race["events"] if e["lane"] == "baseline" and e["type"] == "step"]
        out.append((race["prompt"]["token_ids"], [t for step in steps for t in step["token_ids"]]))
    return out


def text(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1000) for _ in range(256)]


def auto_s(make: Make, prompt: Sequence[int], truth: Sequence[int], branches: bool = True) -> float:
    """Seconds of `auto` for that text."""
    clock = FakeClock()
    drafter = AutoDrafter(make(clock), COSTS, branches, 0.8, clock=clock)
    return decode_s(drafter, clock, prompt, truth, MAX_AUTO_K)


def compared(make: Make, prompt: Sequence[int], truth: Sequence[int]) -> tuple[float, float]:
    """Seconds of (the best fixed k, no drafts), each over those of `auto`."""
    fixed = {}
    for k in FIXED:
        clock = FakeClock()
        fixed[k] = decode_s(make(clock), clock, prompt, truth, k)
    auto = auto_s(make, prompt, truth)
    return min(fixed.values()) / auto, fixed[0] / auto


def head(truth: Sequence[int], seed: int, share: float, kind: type[Sure] = Sure, knows: bool = True) -> Make:
    return lambda clock: kind(truth, clock, seed, share, knows)


def beside_copies(drafter: Make) -> Make:
    return lambda clock: HybridDrafter(NgramDrafter(1), drafter(clock))


def copier(clock: FakeClock) -> Any:
    return NgramDrafter(1)


# Against the best fixed k


def test_copies_on_recorded_races():
    """A k chosen with hindsight would be much faster, or drafting cost where no copy pays."""
    ratios = [compared(copier, prompt, truth) for prompt, truth in recorded()]
    assert geometric_mean(best for best, _ in ratios) >= 0.97 and min(best for best, _ in ratios) >= 0.9
    assert min(none for _, none in ratios) >= 0.97 and len(ratios) >= 7


def test_a_draft_ends_where_the_drafter_is_not_sure():
    """Drafts would go on after doubtful tokens or end after sure ones."""
    texts = [(text(seed), seed) for seed in range(6)]
    mean = [geometric_mean(auto_s(head(*case, 0.5, Slow, knows), [1], case[0]) for case in texts) for knows in (0, 1)]
    assert mean[0] / mean[1] >= 1.05


def test_branches_pay_where_rows_are_cheap():
    """A tree would be slower than the chain that it holds."""
    texts = [([token // 200 for token in text(seed)], seed) for seed in range(6)]
    makes = [(head(*case, 0.3, Wavering), [1], case[0]) for case in texts]
    gains = [auto_s(*make, branches=False) / auto_s(*make) for make in makes]
    assert geometric_mean(gains) >= 1.05 and min(gains) >= 1.0


# Hybrids


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_both_against_the_better_one_chosen_with_hindsight(share):
    """Copies would be trusted where the head knows better, or the head asked where the text repeats itself."""
    ratios = []
    for seed, (prompt, truth) in enumerate(recorded()):
        own = head(truth, seed, share)
        alone = min(auto_s(make, prompt, truth) for make in (own, copier))
        ratios.append(alone / auto_s(beside_copies(own), prompt, truth))
    assert geometric_mean(ratios) >= 0.98 and min(ratios) >= 0.75, ratios


def test_copies_that_are_always_wrong_cost_little():
    """A text full of short matches that mean nothing would cost what the head gains."""
    ratios = []
    for seed in range(6):
        rng = random.Random(seed)
        truth = [rng.randrange(32) for _ in range(1024)]
        own = head(truth, seed, 0.8)
        ratios.append(auto_s(own, [1], truth) / auto_s(beside_copies(own), [1], truth))
    assert geometric_mean(ratios) >= 0.92, ratios


# Trees


@given(TEXTS, st.integers(1, MAX_AUTO_K), st.booleans(), st.integers(0, 9), st.sampled_from([0.2, 0.9]))
def test_a_size_is_a_number_of_nodes_and_smaller_trees_are_their_beginnings(tokens, size, branches, seed, share):
    """What if would compute a race that nobody can run, or a node come before the one that it follows."""
    split = 1 + seed * len(tokens) // 20
    make = beside_copies(head(tokens[split:], seed, share))
    both = [AutoDrafter(make(FakeClock()), COSTS, branches, 0.8, num) for num in (size, MAX_AUTO_K)]
    for drafter in both:
        drafter.prefill(tokens[:split], None)
    for end in range(split, len(tokens)):
        some, most = (drafter.propose(tokens[:end], None, MAX_AUTO_K) for drafter in both)
        assert some.token_ids == most.token_ids[:size]
        assert (some.parents or chain(some)) == (most.parents or chain(most))[:size]
        assert all(parent <= i for i, parent in enumerate(some.parents)), "a parent that comes later"
        assert list(most.chances) == sorted(most.chances, reverse=True)
        if not branches:
            assert (most.parents or chain(most)) == chain(most)


def chain(draft: Draft) -> tuple[int, ...]:
    return tuple(range(len(draft)))


# Tokens


RACES = st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 3), st.integers(1, 40), st.integers(0, 15)


@pytest.mark.parametrize("kind", ["sure", "copies and sure", "copies and random, any k fixed"])
@given(*RACES, st.sampled_from([0.0, 0.8]), st.integers(0, 99))
def test_tokens_stay_and_every_row_arrives(kind, prompt, table, length, k, temperature, seed):
    """A cut draft would change what is written, or a drafter lose hidden rows or get them twice, after copies too."""
    loop = {"prompt": prompt, "max_new_tokens": length, "sample": FakeChoice(temperature, 3)}
    truth = tokens_of(list(run(FakeTarget(table), NoDrafter(), k=0, **loop)))
    inner: Any = Random(seed, truth) if "random" in kind else Sure([t % 30 for t in truth], FakeClock(), seed, 0.5)
    inner.hidden_layers = (1,)
    drafter = HybridDrafter(NgramDrafter(1), inner) if "copies" in kind else inner
    if "fixed" not in kind:
        drafter = AutoDrafter(drafter, COSTS, False, 0.8, clock=FakeClock())
    events = list(run(FakeTarget(table, hidden=True, vocab_size=VOCAB), drafter, k=k, **loop))
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
    copies = looked.look(tokens, drafted, k)
    assert looked.propose(tokens, None, k) == fresh.propose(tokens, None, k)
    assert looked.look(tokens, drafted, k) == copies and all(len(copy.token_ids) == k for copy in copies)


@pytest.mark.parametrize(
    ("drafter", "rule", "why"),
    [
        (f"hybrid:ngram+{text_of('eagle3')}", "rejection", "under rule rejection it is fixed"),
        (f"synthetic:0.7+{text_of('eagle3')}", "coupled", "its drafter rates no tokens"),
        (text_of("eagle3"), "coupled", ""),
    ],
)
def test_a_length_is_fixed_where_tokens_may_not_choose_it(drafter, rule, why):
    """Under rejection what was drafted would change the odds of what is written; or a race be refused."""
    spec = RaceSpec(standard_lanes(drafter, "auto", rule=rule), SamplingParams(0.8, seed=3, max_new_tokens=24))
    race = TorchRace(trained(), spec, encode_prompt(trained().tokenizer, PROMPTS[0], False))
    (note,) = race.order.limits or [""]
    assert note == (f"lane speculative: k = 4 instead of auto: {why}" if why else "")
    assert race.spec.lanes[-1].k == ("auto" if not why else 4)
    assert isinstance(race.lanes["speculative"].drafter, AutoDrafter) == (not why)


# Widths


def test_a_class_with_a_cheap_floor_is_preferred():
    """Where the widest width is alone in its class, every step without a draft would be as dear as one with fifteen."""
    seconds = {1: 1.0, 2: 1.05, 4: 1.1, 8: 1.25, 16: 1.45}
    assert plan(WidthClasses(((1,), (2, 4, 8), (16,))), seconds, 0, auto_k=True).step_widths == (2, 4, 8)
    assert plan(WidthClasses(((1,), (2, 4, 8, 16))), seconds, 0, auto_k=True).step_widths == (2, 4, 8, 16)


@given(st.lists(st.floats(0, 12), min_size=6, max_size=6), st.floats(0.02, 0.3))
def test_little_temperature_is_like_none(below, temperature):
    """Greedy and nearly greedy drafts would be as doubtful as those with noise, at 5 to 10 % of their speed."""
    logits = [-gap for gap in sorted(below)]
    greedy = of_scores(logits, sharpness(0.0))
    warm = of_scores([logit / temperature for logit in logits], sharpness(temperature))
    assert all(abs(a - b) < 0.06 for a, b in zip(greedy, warm, strict=True))
    assert sum(greedy) < 1 and greedy == sorted(greedy, reverse=True)
    assert of_scores([0.0, -2.0], sharpness(0.0))[0] > of_scores([0.0, -2.0 / 1.2], sharpness(1.2))[0]
    assert 0.7 < of_scores([0.0], sharpness(temperature))[0] < 1
