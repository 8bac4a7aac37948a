"""The rejection rule keeps the target's distribution, counted over seeds; rules biased on purpose are caught."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.core.decode import decode
from engine.core.errors import DrafterError, RaceError
from engine.core.events import Failed, Step
from engine.core.interfaces import Draft, Drafter
from engine.core.sampling.accept import Coupled, Rejection, distribution_rule, drafters_sampler
from engine.core.sampling.sampler import Sampler
from engine.core.spec import RaceSpec, SamplingParams, standard_lanes
from engine.drafters.draft_model import DraftModelDrafter
from engine.loading.loading import load
from engine.recordings import recording as recordings
from engine.runner.target import StaticTarget
from engine.session import TorchRace
from engine.text import encode_prompt
from tests.helpers import chances
from tests.helpers.fakes import Ends, FakeTarget
from tests.helpers.tiny import PACKED, TRAINED
from tests.helpers.trained import DRAFT

VOCAB = 5
NUM_RACES = 800
PLAIN = SamplingParams(temperature=1.0, max_new_tokens=3)
PROMPT = (1, 2, 3)


class Table(FakeTarget):
    """The fake target with tensors for rows: random logits that depend on the last three tokens."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed, VOCAB)

    def extend(self, token_ids: Sequence[int], num_logits: int, *, parents: tuple[int, ...] = ()) -> tuple[Any, Any]:
        logits, hidden = super().extend(token_ids, num_logits)
        return torch.tensor(logits).reshape(num_logits, VOCAB), hidden


class Guesser(Drafter):
    """Drafts from another table. `stated`: with its logits; `greedy`: it does not draw from what it states."""

    def __init__(self, sample: Any, stated: bool = True, greedy: bool = False) -> None:
        self.model, self.sample, self.stated, self.greedy = Table(1), sample, stated, greedy

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        self.num_prompt = len(prompt_ids)

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        ids, rows = list(token_ids), []
        for _ in range(k):
            rows.append(torch.tensor(self.model.row(ids)))
            ids.append(int(rows[-1].argmax()) if self.greedy else self.sample(rows[-1], len(ids) - self.num_prompt))
        return Draft(tuple(ids[len(token_ids) :]), torch.stack(rows) if rows and self.stated else None)


def joint(sampler: Sampler) -> dict[tuple[int, int], float]:
    """The target's own odds of its first two tokens."""
    first, *after = (
        sampler.processed(torch.tensor(Table().row([*PROMPT, *tokens]))).double().softmax(-1).tolist()
        for tokens in ((), *([token] for token in range(VOCAB)))
    )
    return {(a, b): p * q for a, p in enumerate(first) for b, q in enumerate(after[a]) if p * q > 0}


def excess(seen: Counter, odds: dict[tuple[int, int], float]) -> float:
    """`chances.excess`, pairs of fewer than 5 expected put together."""
    assert not set(seen) - set(odds), "a token was written that the target never says"
    total = seen.total()
    often = {pair: p * total for pair, p in odds.items() if p * total >= 5}
    observed, expected = [seen[pair] for pair in often], [*often.values()]
    if (rest := total - sum(expected)) >= 1:
        observed, expected = [*observed, total - sum(observed)], [*expected, rest]
    return chances.excess(torch.tensor(observed), torch.tensor(expected))


def bias(params: SamplingParams = PLAIN, k: int = 2, **guesser: Any) -> float:
    seen: Counter = Counter()
    for seed in range(NUM_RACES):
        sampler = Sampler(SamplingParams(params.temperature, params.top_k, params.top_p, seed, 3), VOCAB, PACKED)
        rule = Rejection(sampler)
        drafter = Guesser(drafters_sampler(rule, sampler), **guesser)
        events = list(decode(Table(), drafter, rule, PROMPT, Ends(3), 3, k))
        assert not isinstance(events[-1], Failed), events[-1]
        first, second, *_ = (t for e in events if isinstance(e, Step) for t in e.token_ids)
        seen[first, second] += 1
    return excess(seen, joint(Sampler(params, VOCAB, PACKED)))


CASES: list[dict[str, Any]] = [
    {"k": 0}, {"k": 2}, {"k": 2, "stated": False, "greedy": True},
    {"k": 1, "params": SamplingParams(0.7, top_k=3)}, {"k": 2, "params": SamplingParams(1.3, top_p=0.8)},
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_first_two_tokens_have_the_targets_odds(case):
    """What the page calls the same distribution would be another one."""
    assert abs(bias(**case)) < 4


def test_a_drafter_that_states_other_odds_than_it_draws_from_is_caught():
    """A greedy drafter with logits would bias what is written, and the test above not see it."""
    assert bias(greedy=True) > 6


def test_a_drafter_that_is_the_target_is_always_accepted():
    """Rounding, or another processing of the two rows, would reject what is right."""
    logits = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)) * 3
    for seed in range(50):
        sampler = Sampler(SamplingParams(0.8, top_k=40, top_p=0.9, seed=seed), 1000, PACKED)
        rule = Rejection(sampler)
        ids = tuple(drafters_sampler(rule, sampler)(row, 5 + i) for i, row in enumerate(logits[:3]))
        assert rule(Draft(ids, logits[:3]), logits, 5).num_accepted == 3


def test_at_temperature_0_it_is_greedy_verification():
    """There the two promises are one: a race at temperature 0 would be compared less strictly than it can be."""
    rule = distribution_rule(SamplingParams(), Sampler(SamplingParams(), VOCAB, PACKED))
    assert isinstance(rule, Coupled) and rule.guarantee == "same tokens"


@pytest.mark.parametrize("params", [PLAIN, replace(PLAIN, top_p=0.9)], ids=["all", "top-p"])
@pytest.mark.parametrize(
    ("draft", "logits", "error"),
    [
        (Draft((1,), torch.zeros(2, VOCAB)), torch.zeros(2, VOCAB), DrafterError),
        (Draft((1,), torch.zeros(1, VOCAB + 1)), torch.zeros(2, VOCAB), DrafterError),
        (Draft((1,), torch.full((1, VOCAB), torch.nan)), torch.zeros(2, VOCAB), DrafterError),
        (Draft((1,), torch.full((1, VOCAB), -torch.inf)), torch.zeros(2, VOCAB), DrafterError),
        (Draft((1,), "logits"), torch.zeros(2, VOCAB), DrafterError),
        (Draft((1, 2), parents=(0, 0)), torch.zeros(3, VOCAB), DrafterError),
        (Draft((1,), torch.zeros(1, VOCAB)), torch.full((2, VOCAB), torch.nan), RaceError),
        (Draft(), torch.full((1, VOCAB), torch.nan), RaceError),
    ],
    ids=["rows", "vocabulary", "NaN", "nothing", "no tensor", "a tree", "target NaN", "target NaN, no draft"],
)
def test_rows_that_cannot_be_judged_fail_the_lane(draft, logits, error, params):
    """A token would be drawn from noise, a traceback shown, or the model blamed for what its drafter wrote."""
    with pytest.raises(error):
        Rejection(Sampler(params, VOCAB, PACKED))(draft, logits, 0)


# --- with real models


def test_a_draft_model_draws_from_what_it_states():
    """Its rows, its vocabulary or its sampler would not be what the rule takes them for."""
    draft = load(str(DRAFT), "float32", "cpu")
    prompt, vocab_size = draft.tokenizer("def read(self")["input_ids"], draft.prepared.vocab_size + 5
    sampler = Sampler(SamplingParams(1.5, top_k=3, seed=2), vocab_size, PACKED)
    picks = drafters_sampler(Rejection(sampler), sampler)
    drafter = DraftModelDrafter(StaticTarget(draft.prepared, 256, (2,)), picks, vocab_size, True)
    drafter.prefill(prompt, None)
    for ids in (prompt, [*prompt, 5, 6]):
        made = drafter.propose(ids, None, 4)
        assert made.logits.shape == (4, vocab_size) and (made.logits[:, -5:] == -torch.inf).all()
        places = range(len(ids) - len(prompt), 100)
        assert made.token_ids == tuple(map(picks, made.logits, places)) and len({*made.token_ids}) > 1


@pytest.mark.parametrize("k", [3, "auto"])
def test_a_race_under_it_promises_the_distribution_and_nothing_else(few_rows, k):
    """Tokens that may differ would be a fault, its recording not be readable, or the other lanes not be comparable."""
    loaded = load(str(TRAINED), "float32", "cpu")
    prompt = encode_prompt(loaded.tokenizer, "import os\n", False)
    results = {}
    for temperature in (0.0, 0.9):
        spec = RaceSpec(
            standard_lanes(f"draft_model:{DRAFT}", k, "auto", "rejection"),
            SamplingParams(temperature, seed=3, max_new_tokens=24),
        )
        race = TorchRace(loaded, spec, prompt)
        recording = recordings.build(race.header(), list(race.events()), race.result())
        recordings.check(recording.fields)
        assert recordings.failures(recording) == {} and recording.spec == race.spec
        results[temperature] = recording
    assert results[0.0]["verdicts"]["speculative"]["kind"] == "identical_tokens", "greedily it is the same"
    assert results[0.9]["verdicts"]["speculative"]["kind"] == "same_distribution"
    assert results[0.9]["verdicts"]["plain"]["kind"] != "same_distribution", "two lanes that sample alike are compared"
    assert isinstance(race, TorchRace) and isinstance(race.lanes["speculative"].accept, Rejection)
