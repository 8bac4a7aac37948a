"""Faults that speculative decoders have had, planted one by one: the race's comparison must find each, no others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count, product
from typing import Any

import pytest
import torch
from transformers import AttentionInterface

from engine.analysis.same import Verdict
from engine.core.errors import UnsupportedModel
from engine.core.interfaces import Acceptance, Choice, Draft
from engine.core.sampling import accept
from engine.core.sampling.sampler import Sampler
from engine.exactness.probe import probe
from engine.layers import attention
from engine.layers.step import StepState
from engine.runner import forward as buffers
from engine.runner.prepare import prepare
from engine.runner.target import StaticTarget
from tests.helpers.fakes import Adversarial, Empty, FakeTarget, Random, checksums_of, run, tokens_of
from tests.helpers.planted import NEW_TOKENS, WIDE, Real, caught, judge
from tests.helpers.tiny import DTYPES, LENGTH, NAMES, PACKED, fresh, prepared

MODELS = [("gemma3", torch.bfloat16), ("trained", torch.float32)]
Configuration = tuple[str, torch.dtype, bool | None]
CONFIGURATIONS: list[Configuration] = list(product(("trained", *NAMES), reversed(DTYPES), (None, False)))
on_every_model = pytest.mark.parametrize(("name", "dtype"), MODELS, ids=lambda x: str(x))


@cache
def clean(name: str, dtype: torch.dtype, temperature: float = 0.0) -> Real:
    """A race without a fault; its verdict is that nothing differs."""
    race = Real(prepared(name, dtype), temperature)
    assert race.verdict().kind == "identical_bits"
    return race


@pytest.mark.parametrize("off", [-1, 1], ids=["one too few kept", "one too many kept"])
@on_every_model
def test_a_rollback_off_by_one_is_caught(name, dtype, off, monkeypatch):
    """A rejected draft stays in the context, or a committed token leaves it."""
    race = clean(name, dtype)
    right = StaticTarget.rollback
    monkeypatch.setattr(
        StaticTarget, "rollback", lambda self, length: right(self, max(0, min(self.length, length + off)))
    )
    assert caught(race.verdict())


def test_a_rollback_off_by_one_is_caught_on_the_fake(monkeypatch):
    """The fake would not need the invariant, and every test of the loop on it would prove nothing."""

    def race() -> Verdict:
        baseline = list(run(FakeTarget(), Empty(), [1, 2, 3], NEW_TOKENS, 5, audit=True))
        return judge(baseline, list(run(FakeTarget(), Random(2, truth), [1, 2, 3], NEW_TOKENS, 5, audit=True)))

    truth = tokens_of(list(run(FakeTarget(), Empty(), [1, 2, 3], NEW_TOKENS, 5)))
    assert race().kind == "identical_bits"
    right = FakeTarget.rollback
    monkeypatch.setattr(FakeTarget, "rollback", lambda self, length: right(self, min(len(self.cache), length + 1)))
    assert caught(race())


class ByCall(Choice):
    """Noise of the call's number, not of the position."""

    def __init__(self, sampler: Sampler, calls: Iterator[int]) -> None:
        self.sampler, self.calls = sampler, calls

    def __call__(self, row: torch.Tensor, position: int) -> int:
        return self.sampler(row, next(self.calls))


@on_every_model
def test_noise_keyed_by_call_order_is_caught(name, dtype):
    """One random generator for all lanes: each token's noise depends on how many were drawn before, by whomever."""
    race = Real(prepared(name, dtype), temperature=1.0)
    sampler = Sampler(race.params, race.model.vocab_size, PACKED)
    assert race.verdict(make=lambda: {"sample": sampler}).kind == "identical_bits"
    calls = count()
    assert caught(race.verdict(make=lambda: {"sample": ByCall(sampler, calls)}))


@on_every_model
def test_noise_keyed_by_call_order_is_caught_where_rows_are_drawn_ahead(name, dtype, monkeypatch):
    """One generator a lane, and a rule that draws for every row of a draft: rejected rows use up noise."""
    race = Real(prepared(name, dtype), temperature=1.0)
    sampler = Sampler(race.params, race.model.vocab_size, PACKED)

    def eager(self: accept.Coupled, draft: Draft, logits: torch.Tensor, position: int) -> Acceptance:
        chosen = [self.sample(logits[i], position + i) for i in range(len(draft) + 1)]
        num = next((i for i, t in enumerate(draft.token_ids) if t != chosen[i]), len(draft))
        return Acceptance(num, tuple(chosen[: num + 1]))

    def by_call() -> dict[str, Any]:
        return {"sample": ByCall(sampler, count())}

    monkeypatch.setattr(accept.Coupled, "__call__", eager)
    assert race.verdict(make=lambda: {"sample": sampler}).kind == "identical_bits"
    assert caught(race.verdict(make=by_call))


def sliced(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    sliding_window: int | None = None,
    state: StepState,
    **more: Any,
) -> Any:
    """The engine's attention over keys and values cut to their live length."""
    live = int(state.at[-1]) + 1
    cut = StepState(
        state.at,
        [(k[:, :, :live], v[:, :, :live]) for k, v in state.kv],
        {w: m[:, :live] for w, m in state.masks.items()},
    )
    return attention.attend(module, query, key, value, attention_mask, sliding_window=sliding_window, state=cut, **more)


@contextmanager
def attention_is(function: Callable) -> Iterator[None]:
    """The engine's attention replaced, for as long as this lasts."""
    AttentionInterface.register(attention.NAME, function)
    try:
        yield
    finally:
        AttentionInterface.register(attention.NAME, attention.attend)


def test_a_cache_sliced_to_its_live_length_is_caught():
    """Each step attends over as many columns as are live: other lengths, other sums. It is planted on one model after
    the other until this machine's kernels show it in some row."""

    def is_caught(configuration: Configuration) -> bool:
        race = Real(prepared(*configuration))
        assert race.verdict().kind == "identical_bits"
        with attention_is(sliced):
            return caught(race.verdict())

    assert any(map(is_caught, CONFIGURATIONS))


def test_a_one_wide_verify_in_a_wide_race_is_caught(few_rows):
    """A step without a draft run 1 wide "because that is faster", where the probe says it rounds otherwise."""

    def is_caught(configuration: Configuration) -> bool:
        race = Real(prepared(*configuration))
        assert race.verdict().kind == "identical_bits"
        apart = probe(StaticTarget(race.model, LENGTH, (1, WIDE))).classes == ((1,), (WIDE,))
        return apart and caught(race.verdict(widths=(1, WIDE)))

    assert any(map(is_caught, reversed(CONFIGURATIONS)))


def showing(
    seen: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[..., dict[int | None, torch.Tensor]]:
    """The masks of a step, but with these of its columns in sight of all rows. seen: from rows' places and columns."""
    masks = buffers.additive_masks

    def shown(shape: Any, at: torch.Tensor, columns: torch.Tensor, kind: torch.dtype) -> dict[int | None, torch.Tensor]:
        return {w: mask.masked_fill(seen(at, columns), 0.0) for w, mask in masks(shape, at, columns, kind).items()}

    return shown


@on_every_model
def test_padding_that_is_not_masked_is_caught(name, dtype, monkeypatch):
    """Every row of a step sees all its rows: drafts that will be rejected, and padding."""
    race = clean(name, dtype)
    unmasked = showing(lambda at, columns: (columns >= at[0]) & (columns <= at[-1]))
    monkeypatch.setattr(buffers, "additive_masks", unmasked)
    assert caught(race.verdict())
    with pytest.raises(UnsupportedModel):
        prepare(fresh(name, dtype))


@on_every_model
def test_a_stale_draft_left_visible_is_caught(name, dtype, few_rows, monkeypatch):
    """After a wide step was rejected a narrow one sees what it left behind the pointer."""
    race = Real(prepared(name, dtype))
    narrow = next(
        w
        for w in (2, 3, 4, WIDE)
        if any({w, WIDE} <= set(c) for c in probe(StaticTarget(race.model, LENGTH, (w, WIDE))).classes)
    )
    assert narrow < WIDE and race.verdict((narrow, WIDE), (narrow,)).kind == "identical_bits"
    leaky = showing(lambda at, columns: (columns > at[-1]) & (columns <= at[-1] + 2))
    monkeypatch.setattr(buffers, "additive_masks", leaky)
    assert caught(race.verdict((narrow, WIDE), (narrow,)))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@on_every_model
def test_a_rule_that_accepts_one_too_many_is_caught(name, dtype, temperature, monkeypatch):
    """The first wrong draft token stands, and the next one is judged in its context."""
    race = clean(name, dtype, temperature)
    right = accept.Coupled.__call__

    def generous(self: accept.Coupled, draft: Draft, logits: torch.Tensor, position: int) -> Acceptance:
        acceptance = right(self, draft, logits, position)
        num = acceptance.num_accepted
        if num == len(draft):
            return acceptance
        return Acceptance(num + 1, (*draft.token_ids[: num + 1], self.sample(logits[num + 1], position + num + 1)))

    monkeypatch.setattr(accept.Coupled, "__call__", generous)
    verdict = race.verdict()
    assert caught(verdict) and verdict.first_difference is not None


@on_every_model
def test_a_lane_of_another_prompt_is_caught(name, dtype):
    """Equal checksums would mean nothing if two other texts had them too."""
    race = Real(prepared(name, dtype))
    race.prompt[-2] = (race.prompt[-2] + 1) % race.model.vocab_size
    other = race.lane(Adversarial(race.truth, race.model.vocab_size), (WIDE,))
    assert not set(checksums_of(race.baseline)) & set(checksums_of(other)) and caught(judge(race.baseline, other))
