"""The contract of every registered drafter, the text form that names them, and what is special to `draft_model`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import drafters
from engine.choice.sampler import Sampler
from engine.drafters import DRAFTERS
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.none import NoDrafter
from engine.errors import UsageError
from engine.events import Step
from engine.spec import SamplingParams
from engine.target.target import StaticTarget
from tests.helpers import ROOT
from tests.helpers.head_fixtures import hidden_rows, spoil
from tests.helpers.tiny import LENGTH, PACKED, TRAINED, lane
from tests.helpers.trained import ARGUMENTS, DRAFT, NUM_NEW, PROMPTS, context, text_of, trained

NAMES = sorted(DRAFTERS)
WIDTHS = (8,)
SIZE = 128
few = settings(max_examples=12)


@cache
def made(name: str, which: int = 0) -> drafters.Drafter:
    """One of two drafters of that name, used again and again: as `prefill` promises, nothing of an earlier race may
    matter."""
    return drafters.make(text_of(name), context(reference=range(100, 100 + NUM_NEW), temperature=0.8))


IDS = st.one_of(st.integers(0, 2047), st.integers(5, 8))
RACES = st.tuples(
    st.lists(IDS, min_size=1, max_size=24),  # the prompt
    st.lists(
        st.tuples(st.lists(IDS, min_size=1, max_size=8), st.integers(0, 7)), min_size=1, max_size=6
    ),  # what steps commit, k of the next
)


def proposals(drafter, race) -> list[tuple[int, ...]]:
    """All drafts of a race. The lists and rows handed out are spoiled after each call: a drafter may not keep them; nor
    may it change the lists."""
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
    """A drafter would propose what is no token, or too many; keep or change the loop's list; differ between two runs;
    or remember an earlier race."""
    first = proposals(made(name), race)
    proposals(made(name), earlier)
    assert proposals(made(name), race) == first
    assert proposals(made(name, 1), race) == first


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(0, 2047), st.integers(0, 7))
@few
def test_a_prompt_of_one_token(name, token, k):
    """Prefill of nothing, and no token before the last, would fail."""
    assert len(proposals(made(name), ([token], [([token], k)]))) == 2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("text", PROMPTS)
def test_a_race_writes_the_baselines_tokens(name, temperature, text):
    """A drafter would change what the target says, or a bit of its logits."""
    prompt = trained().tokenizer(text)["input_ids"]
    baseline, steps = baseline_of(text, temperature)
    here = context(prompt, baseline, temperature)
    assert written(drafters.make(text_of(name), here), prompt, temperature, 7)[0] == baseline
    assert len(baseline) == len(steps) == NUM_NEW


@cache
def baseline_of(text, temperature) -> tuple[list[int], list[Step]]:
    return written(NoDrafter(), trained().tokenizer(text)["input_ids"], temperature, 0)


def written(drafter, prompt, temperature, k) -> tuple[list[int], list[Step]]:
    """(tokens, steps) of a whole lane of the real loop."""
    here = context(prompt, temperature=temperature)
    target = StaticTarget(here.loaded.prepared, LENGTH, WIDTHS, drafter.hidden_layers)
    events = lane(here.loaded.prepared, drafter, prompt, WIDTHS, here.params, k, target=target)
    steps = [e for e in events if isinstance(e, Step)]
    assert events[-1].reason == "length"
    return [t for s in steps for t in s.token_ids], steps


# --- the text form


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("nosuch", ", ".join(sorted(DRAFTERS))),
        ("", "ngram"),
        (":0.5", "ngram"),
        ("NGRAM", "ngram"),
        ("none:1", "takes no argument"),
        ("ngram:", "colon"),
        ("ngram:0", "1 to 16"),
        ("ngram:two", "1 to 16"),
        ("synthetic", "synthetic:0.8"),
        ("synthetic:", "colon"),
        ("synthetic:nan", "'nan'"),
        ("synthetic:inf", "0 to 1"),
        ("synthetic:-0.1", "0 to 1"),
        ("synthetic:1.01", "0 to 1"),
        ("synthetic:80%", "0 to 1"),
        ("synthetic:0.8+", "synthetic:0.8\\+eagle3"),
        ("synthetic:0.8+synthetic:0.5", "cost of another"),
        ("synthetic:0.8+nosuch", "choose one of"),
        ("draft_model", "draft_model:owner/name"),
        ("draft_model:", "colon"),
    ],
)
def test_an_unusable_drafter_is_refused_before_anything_is_loaded(text, names):
    """A visitor would wait for the model to load, then see a traceback."""
    with pytest.raises(UsageError, match=names):
        drafters.check(text)


def test_checking_needs_no_torch():
    """`race --drafter typo` would take seconds to say so; `import engine.drafters` would be slow."""
    texts, heavy = [text_of(n) for n in NAMES], {"torch", "transformers", "numpy", "rich"}
    code = f"import sys, engine.drafters as d; [d.check(t) for t in {texts!r}]; print({heavy!r} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "set()"


def test_an_argument_may_hold_colons():
    """A path or revision would be cut."""
    assert drafters.parse("draft_model:C:/models/draft") == ("draft_model", "C:/models/draft")


# --- synthetic


def test_only_synthetic_is_labelled_synthetic():
    """Its figures would pass for a drafter's."""
    assert [n for n in NAMES if made(n).synthetic] == ["synthetic"]


# --- draft_model


@given(
    st.lists(IDS, min_size=1, max_size=20),
    st.lists(st.lists(IDS, min_size=1, max_size=12), min_size=1, max_size=6),
    st.integers(1, 7),
)
@few
def test_a_draft_model_sees_the_committed_tokens(prompt, steps, k):
    """A rollback off by one, or a rejected token left in its cache, would make it draft after another text."""
    committed = list(prompt)
    drafter, fresh = made("draft_model"), made("draft_model", 1)
    drafter.prefill(committed, None)
    for tokens in steps:
        draft = drafter.propose(committed, None, k).token_ids
        committed += [*draft[: len(tokens) % (k + 1)], *tokens]
        fresh.prefill(prompt, None)
        assert drafter.propose(committed, None, k) == fresh.propose(committed, None, k)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_model_that_drafts_for_itself_is_accepted(temperature):
    """Its noise would be that of other positions than the target's, or its cache wrong after a whole draft was
    accepted."""
    prompt = trained().tokenizer(PROMPTS[0])["input_ids"]
    _, steps = written(
        drafters.make(f"draft_model:{TRAINED}", context(prompt, temperature=temperature)), prompt, temperature, 5
    )
    assert sum(s.num_accepted for s in steps) >= 0.95 * sum(len(s.drafted) for s in steps)
    assert len(steps) <= NUM_NEW // 6 + 2


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_draft_ends_where_it_is_told_to(temperature):
    """`auto` would pay for tokens that it no longer wanted, or be told of others than were drafted."""
    prompt = trained().tokenizer(PROMPTS[0])["input_ids"]
    here = context(prompt, temperature=temperature)
    drafter, fresh = (drafters.make(f"draft_model:{DRAFT}", here) for _ in range(2))
    committed = list(prompt)
    drafter.prefill(prompt, None)
    for stop in (1, 3, 6, 2, 6):
        margins: list[float] = []
        draft = drafter.propose_while(
            committed, None, 6, lambda _, margin, stop=stop, told=margins: told.append(margin) or len(told) < stop
        )
        fresh.prefill(prompt, None)
        assert (
            draft.token_ids == fresh.propose(committed, None, 6).token_ids[:stop] and len(draft) == len(margins) == stop
        )
        assert min(margins) >= 0
        committed += draft.token_ids[: stop // 2 + 1]


@pytest.mark.slow
def test_coupled_noise_keeps_acceptance():
    """A draft model that picked its likeliest tokens would be rejected more often as soon as the target samples."""
    prompt = trained().tokenizer(PROMPTS[0])["input_ids"]
    rates = []
    for sample in (context(prompt, temperature=0.9).sample, Sampler(SamplingParams(), 2048, PACKED)):
        drafter = drafters.make(
            f"draft_model:{DRAFT}", replace(context(prompt, temperature=0.9, max_new_tokens=200), sample=sample)
        )
        steps = [
            e
            for e in lane(
                trained().prepared, drafter, prompt, WIDTHS, SamplingParams(0.9, seed=5, max_new_tokens=200), 3, 512
            )
            if isinstance(e, Step)
        ]
        rates.append(sum(s.num_accepted for s in steps) / sum(len(s.drafted) for s in steps))
    assert rates[0] > rates[1] > 0


def copied(folder: Path, file: str, change) -> Path:
    """The draft fixture in `folder`, with one JSON file changed."""
    shutil.copytree(DRAFT, folder)
    path = folder / file
    path.chmod(0o644)
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    return folder


def test_another_tokenizer_is_refused(tmp_path):
    """Ids would mean other words to it, and acceptance would be a mystery."""

    def swap(value):
        vocab = value["model"]["vocab"]
        a, b = (next(t for t, i in vocab.items() if i == n) for n in (700, 900))
        vocab[a], vocab[b] = vocab[b], vocab[a]

    folder = copied(tmp_path / "draft", "tokenizer.json", swap)
    with pytest.raises(UsageError, match=r"another tokenizer.*first difference is token 700.* 2048 and 2048 tokens"):
        drafters.make(f"draft_model:{folder}", context())


def test_a_draft_model_too_short_for_the_race_is_refused(tmp_path):
    """It would draft beyond its positions."""
    folder = copied(tmp_path / "draft", "config.json", lambda config: config.update(max_position_embeddings=40))
    with pytest.raises(UsageError, match="40 positions"):
        drafters.make(f"draft_model:{folder}", context())


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    """A traceback of transformers would be shown."""
    with pytest.raises(UsageError, match="no model"):
        drafters.make(f"draft_model:{tmp_path}", context())


def test_a_race_draws_from_one_set_of_weights():
    """A target that drafts for itself would be loaded twice."""
    drafter = drafters.make(f"draft_model:{TRAINED}", context())
    assert isinstance(drafter, DraftModelDrafter) and drafter._model.prepared is trained().prepared
