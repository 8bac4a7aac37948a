"""The contract of every registered drafter, the text form that names them, and what is special to `draft_model` and
`synthetic`. (Whole races of them: tests/exactness/test_matrix.py.)"""

import json
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import drafters
from engine.core.errors import UsageError
from engine.core.interfaces import BranchingDrafter, Draft, Drafter, Node
from engine.drafters import DRAFTERS
from engine.drafters.hybrid import HybridDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.synthetic import SyntheticDrafter
from tests.helpers.fakes import Fake, FakeTarget, Oracle, run, tokens_of
from tests.helpers.heads import hidden_rows, raced
from tests.helpers.tiny import TRAINED
from tests.helpers.trained import ARGUMENTS, DRAFT, NUM_NEW, PROMPTS, context, text_of, trained

NAMES = sorted(DRAFTERS)
SIZE = 128
few = settings(max_examples=6)


def prompt_ids() -> list[int]:
    return trained().tokenizer(PROMPTS[0])["input_ids"]


@cache
def made(name: str, which: int = 0) -> drafters.Drafter:
    """One of two drafters of that name, used again and again: nothing of an earlier race may matter."""
    reference = range(100, 100 + NUM_NEW)
    return drafters.make(text_of(name), context(trained(), 7, reference=lambda: reference, temperature=0.8))


IDS = st.one_of(st.integers(0, 2047), st.integers(5, 8))
STEPS = st.tuples(st.lists(IDS, min_size=1, max_size=8), st.integers(0, 7))  # what steps commit, k of the next
RACES = st.tuples(st.lists(IDS, min_size=1, max_size=24), st.lists(STEPS, min_size=1, max_size=6))  # with the prompt


def spoil(rows: Any) -> None:
    """What the target's next step may do to the rows that it handed out."""
    if rows is not None:
        rows.fill_(torch.nan)


def proposals(drafter, race) -> list[tuple[int, ...]]:
    """All drafts of a race. Lists and rows are spoiled after each call: a drafter may neither keep nor change them."""
    prompt, steps = race
    given, rows = list(prompt), hidden_rows(drafter, prompt[:-1], SIZE)
    drafter.prefill(given, rows)
    spoil(rows)
    assert given == prompt
    given[:] = [-1] * 99
    committed, drafts = list(prompt), []
    for tokens, k in [([], 7), *steps]:
        committed += tokens
        given = list(committed)
        rows = hidden_rows(drafter, tokens, SIZE) if tokens else None  # None at the first step
        draft = drafter.propose(given, rows, k).token_ids
        spoil(rows)
        assert given == committed
        given[:] = [-1] * 99
        assert isinstance(draft, tuple) and len(draft) <= k
        assert all(type(t) is int and 0 <= t < 2048 for t in draft)
        drafts.append(draft)
    return drafts


def test_every_drafter_is_tested():
    """A new line in the table would escape the contract tests."""
    assert set(ARGUMENTS) == set(DRAFTERS)


@pytest.mark.parametrize("name", NAMES)
@given(RACES, RACES)
@few
def test_the_contract(name, earlier, race):
    """A drafter would propose no token, too many or others in a second run, or keep something of an earlier race."""
    first = proposals(made(name), race)
    proposals(made(name), earlier)
    assert proposals(made(name), race) == first
    assert proposals(made(name, 1), race) == first


class Repeats(Drafter):
    """All that a new drafter has to write."""

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        pass

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        return Draft((token_ids[-1],) * k)


def test_prefill_and_propose_are_enough():
    """Whoever adds a drafter would find the other members one by one, each where something breaks for lack of it."""
    race: dict[str, Any] = {"prompt": [1, 2], "max_new_tokens": 30, "k": 4}
    truth = tokens_of(list(run(FakeTarget(), Fake(), **race)))
    mine: list[Drafter] = [Repeats(), HybridDrafter(NgramDrafter(), Repeats())]
    mine.append(SyntheticDrafter(truth, 0.7, 0, 32, cost=Repeats()))
    for drafter in mine:
        assert drafter.synthetic == isinstance(drafter, SyntheticDrafter)
        assert tokens_of(list(run(FakeTarget(hidden=True), drafter, **race))) == truth


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["draft_model", "eagle3", "dflash"])
def test_rated_tokens_begin_with_the_draft(name, dtype, temperature):
    """`auto` would draft other tokens than a fixed k, compiled or not, or rank tokens by something else than scores."""
    target, prompt = trained(dtype), prompt_ids()
    drafter: Any = drafters.make(text_of(name), context(target, 6, prompt, temperature))
    assert isinstance(drafter, BranchingDrafter)
    rows = hidden_rows(drafter, prompt[:-1], SIZE)
    rows = None if rows is None else rows.to(target.prepared.dtype)
    drafter.prefill(prompt, rows)
    whole = drafter.propose(prompt, None, 6).token_ids
    for num_best in (1, 4):
        drafter.prefill(prompt, rows)
        drafter.begin(prompt, None)
        node = Node()
        while node.depth < 6:
            assert drafter.can_expand(node)
            (rated,) = drafter.expand([node], num_best)
            node.is_expanded = True
            assert len({token for token, _ in rated}) == len(rated) and 1 <= len(rated) <= num_best
            assert [score for _, score in rated] == sorted((score for _, score in rated), reverse=True)
            node = Node((*node.path, rated[0][0]), parent=node)
        assert node.path == whole


# The text form


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("nosuch", ", ".join(sorted(DRAFTERS))),
        ("", "ngram"),
        (":0.5", "ngram"),
        ("NGRAM", "ngram"),
        ("none:1", "takes no argument"),
        ("ngram:", "colon"),
        *((f"ngram:{value}", "from 1 to 16") for value in ("0", "17", "-1", "1.5", "two", " 2", "٣", "9" * 20)),
        ("synthetic", "synthetic:0.8"),
        ("synthetic:", "colon"),
        ("synthetic:nan", "'nan'"),
        *((f"synthetic:{value}", "0 to 1") for value in ("inf", "-0.1", "1.01", "80%")),
        ("synthetic:0.8+", "synthetic:0.8\\+eagle3"),
        ("synthetic:0.8+synthetic:0.5", "cost of another"),
        ("synthetic:0.8+nosuch", "choose one of"),
        ("draft_model", "draft_model:owner/name"),
        ("draft_model:", "colon"),
        ("hybrid", "hybrid:ngram\\+draft_model"),
        ("hybrid:", "colon"),
        *((f"hybrid:{value}", "two drafters") for value in ("ngram", "ngram+", "+ngram")),
        ("hybrid:draft_model:a/b+ngram", "first is ngram"),
        ("hybrid:ngram:0+ngram", "1 to 16"),
        ("hybrid:ngram:+ngram", "colon"),
        ("hybrid:ngram+nosuch", "choose one of"),
        ("hybrid:ngram+draft_model", "needs a model"),
        ("hybrid:ngram+none", "cannot hold 'none'"),
        ("hybrid:ngram+synthetic:0.5", "cannot hold 'synthetic:0.5'"),
        ("hybrid:ngram+hybrid:ngram+ngram", "cannot hold"),
        ("eagle3:", "colon"),
        *((f"eagle3:x/y#{value}", "choose one of: aux=2,9,15") for value in ("causal", "aux=", "aux=a")),
        *((f"dflash:x/y#{value}", "choose one of: aux=2,9,15") for value in ("aux=1,,2", "k=3", "aux=1#causal")),
    ],
)
def test_an_unusable_drafter_is_refused_before_anything_is_loaded(text, names):
    """A visitor would wait for the model to load, then see a traceback, or a hybrid of hybrids."""
    with pytest.raises(UsageError, match=names):
        drafters.check(text)


# draft_model


@given(
    st.lists(IDS | st.just(2050), min_size=1, max_size=20),  # which a target padded further may write
    st.lists(st.lists(IDS | st.just(2050), min_size=1, max_size=12), min_size=1, max_size=6),
    st.integers(1, 7),
    st.integers(1, 7),
)
@few
def test_a_draft_model_sees_the_committed_tokens(prompt, steps, k, stop):
    """A rollback off by one, or a token left from a given-up draft, would change its context."""
    committed = list(prompt)
    drafter, fresh = made("draft_model"), made("draft_model", 1)
    drafter.prefill(committed, None)
    for tokens in steps:
        drafter.begin(committed, None)
        node = Node()
        while node.depth < min(k, stop):
            ((token, _),) = drafter.expand([node], 1)[0]
            node = Node((*node.path, token), parent=node)
        draft = node.path
        committed += [*draft[: len(tokens) % (k + 1)], *tokens]
        fresh.prefill(prompt, None)
        assert drafter.propose(committed, None, k) == fresh.propose(committed, None, k)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_model_that_drafts_for_itself_is_accepted(temperature):
    """Its noise would be of other positions, or its cache wrong after a whole draft was accepted."""
    drafter = drafters.make(f"draft_model:{TRAINED}", context(trained(), 7, prompt_ids(), temperature))
    assert drafter._model.prepared is trained().prepared, "a target that drafts for itself would be loaded twice"
    steps = raced(trained(), drafter, prompt_ids(), 5, temperature, NUM_NEW)
    assert sum(s.num_accepted for s in steps) >= 0.95 * sum(len(s.drafted) for s in steps)
    assert len(steps) <= NUM_NEW // 6 + 2


def swapped(value: dict[str, Any]) -> None:
    vocab = value["model"]["vocab"]
    a, b = (next(t for t, i in vocab.items() if i == n) for n in (700, 900))
    vocab[a], vocab[b] = vocab[b], vocab[a]


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("tokenizer.json", swapped, r"another tokenizer.*: token 700 is .*2,046 of 2,048 ids"),
        ("config.json", lambda config: config.update(max_position_embeddings=40), "40 positions"),
    ],
)
def test_a_draft_model_that_does_not_fit_is_refused(tmp_path, file, change, words):
    """Ids would mean other words to it, or it would run past its positions."""
    folder = tmp_path / "draft"
    shutil.copytree(DRAFT, folder)
    path: Path = folder / file
    path.chmod(0o644)
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    with pytest.raises(UsageError, match=words):
        drafters.make(f"draft_model:{folder}", context(trained(), 7))


# synthetic


TRUTH = st.lists(st.integers(0, 99), min_size=1, max_size=60)
RATES = st.floats(0, 1)


def synthetic(truth, rate, seed=0, prompt=(1, 2), vocab_size=100) -> SyntheticDrafter:
    drafter = SyntheticDrafter(truth, rate, seed, vocab_size)
    drafter.prefill(prompt, None)
    return drafter


@given(TRUTH, RATES, st.integers(0, 2**63 - 1), st.randoms(use_true_random=False))
def test_the_corruption_belongs_to_the_position(truth, rate, seed, rng):
    """The same race, cut into other steps, would have other drafts; or past its end some that the target never says."""
    whole = synthetic(truth, rate, seed).propose([1, 2], None, len(truth)).token_ids
    drafter = synthetic(truth, rate, seed)
    for done in rng.sample(range(len(truth) + 1), len(truth) + 1):
        assert drafter.propose([1, 2, *truth[:done]], None, 3).token_ids == whole[done : done + 3]


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 1.0])
def test_the_rate_is_the_share_of_right_tokens(rate):
    """Acceptance would not be what was asked for."""
    truth = [i * i % 100 for i in range(4000)]
    ids = synthetic(truth, rate).propose([1, 2], None, 4000).token_ids
    right = sum(a == b for a, b in zip(ids, truth, strict=True)) / 4000
    assert right == pytest.approx(rate, abs=0.03 if 0 < rate < 1 else 0)
    assert len(ids) == 4000 and all(0 <= t < 100 for t in ids)


def test_the_cost_of_another_drafter():
    """The other drafter would not be run, miss hidden rows, or its guesses be taken."""
    other = Oracle([99] * 9)
    other.hidden_layers, other.max_k = (1,), 3
    drafter = SyntheticDrafter([5, 6, 7, 8, 9], 1.0, 0, 100, other)
    drafter.prefill([1, 2], ["rows"])
    assert drafter.hidden_layers == (1,)
    assert drafter.propose([1, 2], None, 7).token_ids == (5, 6, 7)
    assert drafter.propose([1, 2, 5], ["more"], 0).token_ids == ()
    assert (other.num_prompt, other.hidden, other.asked) == (2, ["rows", "more"], [3, 0])
