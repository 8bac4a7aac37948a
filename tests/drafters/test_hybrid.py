"""`hybrid:ngram+X`: a copy where there is one, else X's draft, and X never misses a token or a hidden row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import drafters
from engine.drafters.auto import AutoDrafter
from engine.drafters.hybrid import HybridDrafter, parts_of
from engine.drafters.ngram import NgramDrafter
from engine.errors import UsageError
from tests.helpers.fakes import Fake, FakeTarget, Oracle, Random, run, sample_with, tokens_of

RACES = st.tuples(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.integers(0, 3),
    st.integers(1, 40),
    st.integers(0, 7),
    st.sampled_from([0.0, 0.8]),
)


class Told(Random):
    """Asks for hidden states."""

    hidden_layers = (1,)


@given(RACES)
def test_tokens_are_the_targets_and_the_second_sees_every_row(race):
    """A head in a hybrid would lose the rows of a step in which the copy was taken, or get them twice."""
    prompt, table, length, k, temperature = race
    lane = {"prompt": prompt, "max_new_tokens": length, "k": k, "sample": sample_with(temperature, 3)}
    truth = tokens_of(list(run(FakeTarget(table), Fake(), **lane)))
    for wrapped in (lambda hybrid: hybrid, lambda hybrid: AutoDrafter(hybrid, [1.0 + 0.1 * m for m in range(8)])):
        second = Told(table, truth)
        target = FakeTarget(table, hidden=True)
        events = list(run(target, wrapped(HybridDrafter(NgramDrafter(1), second)), **lane))
        assert tokens_of(events) == truth
        text = [*prompt, *truth]
        assert second.hidden == [(i, text[i]) for i in range(len(second.hidden))]
        assert len(second.hidden) >= len(prompt) - 1
        assert second.num_proposals == len(events) - 2


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 7))
def test_the_copy_comes_first(tokens, k):
    """X would be asked although the text repeats itself, or nobody where it does not."""
    second, alone = Oracle([9] * 20), NgramDrafter(2)
    second.hidden_layers = ()
    hybrid = HybridDrafter(NgramDrafter(2), second)
    hybrid.prefill(tokens, None)
    alone.prefill(tokens, None)
    copied = alone.propose(tokens, None, k)
    assert hybrid.propose(tokens, None, k) == (copied if len(copied) else second.guess(0, k))
    assert second.asked == [0 if len(copied) else k]


@pytest.mark.parametrize(
    ("argument", "parts"),
    [
        ("ngram+draft_model:a/b", ("ngram", "draft_model:a/b")),
        ("ngram:2+draft_model:a/b", ("ngram:2", "draft_model:a/b")),
        ("ngram+draft_model:/x+y/c++", ("ngram", "draft_model:/x+y/c++")),
        ("ngram:2+ngram:5", ("ngram:2", "ngram:5")),
    ],
)
def test_the_second_part_may_hold_anything(argument, parts):
    """A path with a plus in it would be cut."""
    assert parts_of(argument) == parts
    assert drafters.parse(f"hybrid:{argument}") == ("hybrid", argument)
    drafters.check(f"hybrid:{argument}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hybrid", "hybrid:ngram\\+draft_model"),
        ("hybrid:", "colon"),
        ("hybrid:ngram", "two drafters"),
        ("hybrid:ngram+", "two drafters"),
        ("hybrid:+ngram", "two drafters"),
        ("hybrid:draft_model:a/b+ngram", "first is ngram"),
        ("hybrid:ngram:0+ngram", "1 to 16"),
        ("hybrid:ngram:+ngram", "colon"),
        ("hybrid:ngram+nosuch", "choose one of"),
        ("hybrid:ngram+draft_model", "needs a model"),
        ("hybrid:ngram+none", "cannot hold 'none'"),
        ("hybrid:ngram+synthetic:0.5", "cannot hold 'synthetic:0.5'"),
        ("hybrid:ngram+hybrid:ngram+ngram", "cannot hold"),
    ],
)
def test_what_cannot_be_a_hybrid_is_refused(text, said):
    """The race would fail after the model was loaded, or in a hybrid of hybrids."""
    with pytest.raises(UsageError, match=said):
        drafters.check(text)
