"""Public tests of others, on the rules here: sizes, limits and exact figures are theirs."""

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.core.interfaces import Draft
from engine.core.sampling.accept import DRAFT, Coupled, Rejection, _residual, drafters_sampler
from engine.core.sampling.noise import keys_of
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.what_if.odds import Odds
from engine.what_if.tables import Text
from tests.helpers.tiny import PACKED

TRIALS = 200_000


class SharedNoise(Rejection):
    """The fault that vLLM #47386 mended: the drafter and what replaces its token draw with the same noise."""

    def __init__(self, sampler: Sampler) -> None:
        super().__init__(sampler)
        self._own = sampler.stream(DRAFT)


def picked(sampler: Sampler, row: Tensor, positions: Tensor) -> Tensor:
    return sampler.pick_rows(row.expand(len(positions), -1), keys_of(sampler.params.seed, positions))


def uniforms(sampler: Sampler, positions: Tensor) -> Tensor:
    low, high = keys_of(sampler.params.seed, positions).long().unbind(-1)
    return ((((high << 21) & (2**53 - 1)) | ((low & (2**32 - 1)) >> 11)) + 0.5) * 2.0**-53


def committed(rule_of: Any, target: Tensor, draft: Tensor, k: int) -> Tensor:
    """What a rule commits in TRIALS steps whose logits are always these rows, [TRIALS, k + 1], -1 behind the end:
    all at once, and the first of them by the rule itself as well."""
    sampler, starts = Sampler(SamplingParams(1.0), len(target), PACKED), torch.arange(TRIALS) * (k + 1)
    rule = rule_of(sampler)
    drafter, own = drafters_sampler(rule, sampler), getattr(rule, "_own", sampler)
    p, q = target.softmax(-1), draft.softmax(-1)
    tokens, alive = torch.full((TRIALS, k + 1), -1), torch.arange(TRIALS)
    for i in range(k):
        at = starts[alive] + i
        drafted, words = picked(drafter, draft, at), picked(own, target, at)
        if rule_of is not Coupled:
            stands = uniforms(rule._test, at) * q[drafted] < p[drafted]
            words = torch.where(stands, drafted, picked(own, _residual(p, q, 0).log(), at))
        tokens[alive, i] = words
        alive = alive[words == drafted]
    tokens[alive, k] = picked(own, target, starts[alive] + k)
    for start, row in zip(starts[:100].tolist(), tokens.tolist(), strict=False):
        ids = tuple(drafter(draft, start + i) for i in range(k))
        kept = rule(Draft(ids, draft.expand(k, -1)), target.expand(k + 1, -1), start)
        assert [*kept.token_ids, *[-1] * (k - kept.num_accepted)] == row
    return tokens


@pytest.mark.parametrize("rule_of", [Coupled, Rejection, SharedNoise])
def test_words_come_as_often_as_vllm_asks(rule_of):
    """vLLM tests/v1/spec_decode/test_rejection_sampler_utils.py at 0822b17a, test_gumbel_drafted_rejection_sample_is_
    unbiased: 16 words that the drafter ranks the other way round, so that most drafts are rejected. What a rule writes
    instead would come too often or too seldom; or fewer tokens stand than can."""
    target = torch.randn(16, generator=torch.Generator().manual_seed(42))
    tokens, p, q = committed(rule_of, target, -target, 3), target.softmax(-1), (-target).softmax(-1)
    equal = 1 / torch.maximum(p / p[:, None], q / q[:, None]).sum(1)  # of one noise's choices from p and from q
    chance = float((equal if rule_of is Coupled else torch.minimum(p, q)).sum())
    for i in range(1 if rule_of is SharedNoise else 4):
        words = tokens[:, i][tokens[:, i] >= 0]
        expected = p * len(words)
        chi2 = float(((torch.bincount(words, minlength=16) - expected).square() / expected).sum())
        assert (chi2 < 15 + 10 * math.sqrt(2 * 15)) == (rule_of is not SharedNoise), (i, chi2)
        assert abs(len(words) - TRIALS * chance**i) <= 4 * math.sqrt(TRIALS * chance**i * (1 - chance**i))


@pytest.mark.parametrize("rule_of", [Coupled, Rejection])
def test_two_words_keep_ten_ninths(rule_of):
    """SGLang #36516, the example of Sun et al. 2025 (arXiv 2403.10444), section 2: of two drafted tokens 10/9 stand
    where each is judged alone, and 11/9 as a block, which is no rule of this engine. The closed form of servers' steps
    would not be what a server does: here a step that drafts two tokens, then steps of one, for three tokens."""
    p, q = torch.tensor([1 / 3, 2 / 3]).log(), torch.tensor([2 / 3, 1 / 3]).log()
    assert abs(float((committed(rule_of, p, q, 2) >= 0).sum()) / TRIALS - 1 - 10 / 9) < 0.008
    steps = [0.0, 0.0]
    for text in product((0, 1), repeat=3):
        written = p.double()[[*text]]
        drawn = [(2, q[[*text[:2]]].tolist()), (0, []), (0, [])]
        known: Any = SimpleNamespace(_drawn=drawn, _written=written.tolist(), _text=Text((0,), text, 3))
        for is_block in (False, True):
            steps[is_block] += float(written.sum().exp()) * Odds._race_at(known, 2, [0.0] * 3, is_block)[0]
    assert steps == pytest.approx([3 - 10 / 9, 3 - 11 / 9])
