"""`auto` k over copies and a drafter that goes token by token: one draft of both, never another token."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import geometric_mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.auto import AutoDrafter
from engine.drafters.beliefs import Beliefs, chance_of_same, where_other, where_same
from engine.drafters.blend import Blend
from engine.drafters.hybrid import HybridDrafter
from engine.drafters.ngram import Copy, NgramDrafter
from engine.drafters.none import NoDrafter
from engine.events import Step
from engine.interfaces import Draft, MarginDrafter
from engine.spec import MAX_AUTO_K
from tests.helpers.auto_races import COSTS, TEXTS, decode_s, recorded, text
from tests.helpers.fakes import FakeClock, FakeTarget, run, sample_with, tokens_of

TOKEN_S = 0.0012


class Telling(MarginDrafter):
    """Guesses the truth, surely (right 0.95 of the time) or not (0.2), and tells each token and its margin. Records the
    hidden rows it was given."""

    def __init__(
        self,
        truth: Sequence[int],
        clock: FakeClock,
        seed: int = 0,
        sure: float = 0.5,
        hidden_layers: tuple[int, ...] = (),
    ) -> None:
        self.truth, self.clock, self.rng, self.sure, self.hidden_layers = (
            truth,
            clock,
            random.Random(seed),
            sure,
            hidden_layers,
        )
        self.hidden: list[Any] = []
        self.num_proposals = self.num_asked = 0

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self.num_prompt = len(prompt_ids)
        self.hidden = list(hidden or ())

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        if k:
            return self.propose_while(token_ids, hidden, k, lambda *_: True)
        self.num_proposals += 1
        self.hidden += hidden or ()
        return Draft()

    def propose_while(
        self, token_ids: Sequence[int], hidden: Any, k: int, go_on: Callable[[int, float], bool]
    ) -> Draft:
        self.num_proposals += 1
        self.hidden += hidden or ()
        done, ids = len(token_ids) - self.num_prompt, []
        for true in self.truth[done : done + k]:
            sure = self.rng.random() < self.sure
            self.clock.spend(TOKEN_S)
            self.num_asked += 1
            ids.append(true if self.rng.random() < (0.95 if sure else 0.2) else (true - 1 if true else 1))
            if not go_on(ids[-1], 6.0 if sure else 0.2):
                break
        return Draft(tuple(ids))


def seconds(make: Callable[[FakeClock], Any], prompt: Sequence[int], truth: Sequence[int]) -> float:
    clock = FakeClock()
    return decode_s(AutoDrafter(make(clock), COSTS, clock), clock, prompt, truth, MAX_AUTO_K)[0]


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.integers(0, 3),
    st.integers(1, 40),
    st.integers(0, 15),
    st.sampled_from([0.0, 0.8]),
    st.integers(0, 99),
)
def test_tokens_stay_and_every_row_arrives(prompt, table, length, k, temperature, seed):
    """A copy behind the head's tokens would change what is written, or the head lose the rows of a step that it was not
    asked in, or get them twice."""
    loop = {"prompt": prompt, "max_new_tokens": length, "sample": sample_with(temperature, 3)}
    truth = tokens_of(list(run(FakeTarget(table), NoDrafter(), k=0, **loop)))
    head = Telling(truth, FakeClock(), seed, hidden_layers=(1,))
    auto = AutoDrafter(HybridDrafter(NgramDrafter(1), head), COSTS)
    events = list(run(FakeTarget(table, hidden=True), auto, k=k, **loop))
    assert isinstance(auto._parts[0], Blend)
    assert tokens_of(events) == truth
    written = [*prompt, *truth]
    assert head.hidden == [(i, written[i]) for i in range(len(head.hidden))] and len(head.hidden) >= len(prompt) - 1
    assert head.num_proposals == sum(isinstance(e, Step) for e in events)


@given(TEXTS, st.lists(st.integers(0, 6), max_size=6), st.integers(0, 15))
def test_what_was_only_drafted_is_not_remembered(tokens, drafted, k):
    """A draft that was rejected would be copied later as if it had been written."""
    looked, fresh = NgramDrafter(1), NgramDrafter(1)
    looked.prefill(tokens[:1], None)
    fresh.prefill(tokens, None)
    copy = looked.look(tokens, drafted, k)
    assert looked.propose(tokens, None, k) == fresh.propose(tokens, None, k)
    assert looked.look(tokens, drafted, k) == copy and len(copy.token_ids) == (k if copy.match else 0)
    end = [*tokens, *drafted][-copy.match :]
    if copy.match and k:
        assert any(tokens[: i + 1][-copy.match - 1 :] == [*end, copy.token_ids[0]] for i in range(len(tokens)))


@pytest.mark.parametrize("sure", [0.3, 0.6, 0.9])
def test_both_against_the_better_one_chosen_afterwards(sure):
    """The copies would be believed where the head knows better, or the head asked where the text repeats itself."""
    ratios = []
    for seed, (prompt, truth) in enumerate(recorded()):
        both = seconds(
            lambda clock, truth=truth, seed=seed: HybridDrafter(NgramDrafter(1), Telling(truth, clock, seed, sure)),
            prompt,
            truth,
        )
        alone = seconds(lambda clock, truth=truth, seed=seed: Telling(truth, clock, seed, sure), prompt, truth)
        copies = seconds(lambda clock: NgramDrafter(1), prompt, truth)
        ratios.append(min(alone, copies) / both)
    assert geometric_mean(ratios) >= 0.99 and min(ratios) >= 0.87


def test_copies_that_are_always_wrong_are_not_believed_for_long():
    """A text full of short matches that mean nothing would cost what the head gains."""
    ratios = []
    for seed in range(6):
        rng = random.Random(seed)
        truth = [rng.randrange(32) for _ in range(1024)]
        ratios.append(
            seconds(lambda clock, truth=truth, seed=seed: Telling(truth, clock, seed, 0.8), [1], truth)
            / seconds(
                lambda clock, truth=truth, seed=seed: HybridDrafter(NgramDrafter(1), Telling(truth, clock, seed, 0.8)),
                [1],
                truth,
            )
        )
    assert geometric_mean(ratios) >= 0.98


def test_the_head_is_hardly_asked_in_a_loop():
    """A long match would wait for tokens that it does not need."""
    clock, truth = FakeClock(), [*range(20)] * 13
    head = Telling(truth, clock, sure=0.9)
    _, drafted = decode_s(
        AutoDrafter(HybridDrafter(NgramDrafter(1), head), COSTS, clock), clock, [31, *truth[:20]], truth, MAX_AUTO_K
    )
    asked = head.num_asked - sum((MAX_AUTO_K, MAX_AUTO_K, 1, 1))  # those of the calibration
    assert sum(drafted) >= 200 and asked <= len(drafted)


def test_nothing_depends_on_what_was_drafted_where_that_would_bias():
    """Under rejection a copy behind the head's token, or a token asked for because of the one before, would change the
    odds of what is written."""
    truth = text(0)
    looked: list[Sequence[int]] = []

    class Copies(NgramDrafter):
        def look(self, token_ids, drafted, k):
            looked.append(drafted)
            return super().look(token_ids, drafted, k)

    head = Telling(truth, FakeClock(), sure=0.9)
    head.propose_while = lambda *_: pytest.fail("asked token by token")
    head.propose = lambda token_ids, hidden, k: Draft(tuple(truth[len(token_ids) - 1 :][:k]))
    _, drafted = decode_s(
        AutoDrafter(HybridDrafter(Copies(1), head), COSTS, FakeClock(), by_margin=False),
        FakeClock(),
        [1],
        truth,
        MAX_AUTO_K,
    )
    assert any(drafted) and looked and not any(looked)


def test_dear_lookups_are_left_out():
    """On a target whose steps take no longer than a lookup, every step would pay for one."""
    clock = FakeClock()

    class Slow(NgramDrafter):
        def look(self, token_ids, drafted, k):
            clock.spend(0.005 if k else 0.0)
            return super().look(token_ids, drafted, k)

    truth = text(1)
    spent, _ = decode_s(AutoDrafter(Slow(1), COSTS, clock), clock, [1], truth, MAX_AUTO_K)
    assert len(truth) * COSTS[0] / spent >= 0.93


CHANCES = st.floats(0.01, 0.99)


@given(CHANCES, CHANCES)
def test_the_head_only_tells_more(copy, head):
    """What is believed of a copy and of a head, once it is seen whether they agree, would not average to what was
    believed before: one of them would be trusted for having been looked at."""
    same, both, (one, other) = chance_of_same(copy, head), where_same(copy, head), where_other(copy, head)
    assert same * both + (1 - same) * one == pytest.approx(copy)
    assert same * both + (1 - same) * other == pytest.approx(head)
    assert one + other <= 1


@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 12))
def test_a_later_token_of_a_copy_is_the_first_of_a_longer_match(match, num, place):
    """A copy that has held for long would still be believed as little as at its beginning."""
    beliefs = Beliefs()
    longer = beliefs.of_copy(Copy((1,) * num, match + place))
    assert beliefs.of_copy(Copy((1,) * (num + place), match))[place:] == longer
    chances = [rate() for rate in beliefs.of_copy(Copy((1,) * 40, 1))]
    assert chances == sorted(chances) and chances[0] < chances[-1]


def test_a_text_that_is_hard_to_copy_is_so_at_every_length():
    """Each kind of copy would have to fail by itself before it is believed less, and a text is over by then."""
    beliefs = Beliefs()
    before = {match: beliefs.of_copy(Copy((1,), match))[0]() for match in (1, 4, 16)}
    for _ in range(10):
        beliefs.of_copy(Copy((1,), 1))[0].add(False)
    assert all(beliefs.of_copy(Copy((1,), match))[0]() < chance for match, chance in before.items())
    for _ in range(20):
        beliefs.of_copy(Copy((1,), 1))[0].add(True)
    assert all(beliefs.of_copy(Copy((1,), match))[0]() > chance for match, chance in before.items())


@pytest.mark.parametrize(("row", "left_out"), [(0.4, True), (0.0, False)])
def test_a_token_that_its_drafter_doubts_is_left_out_where_a_row_is_dear(row, left_out):
    """Each head that was asked in vain would cost a row as well."""
    clock, truth = FakeClock(), text(3)
    head = Telling(truth, clock, sure=0.5)
    auto = AutoDrafter(head, [0.02 * (1 + row * m) for m in range(MAX_AUTO_K + 1)], clock)
    _, drafted = decode_s(auto, clock, [1], truth, MAX_AUTO_K)
    asked = head.num_asked - sum((MAX_AUTO_K, MAX_AUTO_K, 1, 1))  # those of the calibration
    assert asked > 0 and (sum(drafted) < asked) == left_out
