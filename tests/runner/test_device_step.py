"""Whole steps on the device, by direct calls: they commit what rows judged on the host commit."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import RaceError
from engine.core.events import Step
from engine.core.interfaces import Draft
from engine.core.sampling.accept import Coupled, Rejection
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.exactness.operators import same_bits
from engine.runner.prepared import Prepared
from engine.runner.target import StaticTarget
from engine.runner.whole_step import DeviceStep, StepInput
from tests.helpers.fakes import Adversarial, Empty, FakeChoice, Oracle, Random, tokens_of
from tests.helpers.tiny import DTYPES, HYBRIDS, LENGTH, NAMES, PACKED, TORCH, lane, prepared, random_ids

WIDTHS = (2, 4, 8)
temperatures, seeds = st.sampled_from([0.0, 0.3, 1.0, 2.5]), st.integers(0, 2**63 - 1)


# The choice


@settings(max_examples=150)
@given(st.data(), temperatures, seeds, st.sampled_from(DTYPES), st.sampled_from([3, 64, 257]), st.sampled_from(WIDTHS))
def test_a_step_judges_a_draft_as_the_rule_does(data, temperature, seed, dtype, vocab, width):
    """Another token than on the host: on ties, in the padding, after a rejection, where unused rows are no numbers."""
    position, num_drafted = data.draw(st.integers(0, 90)), data.draw(st.integers(0, width - 1))
    generator = torch.Generator().manual_seed(seed % 1000)
    logits = torch.randn(width, vocab, generator=generator).mul(3).round().to(dtype)  # ties
    for row in data.draw(st.sets(st.integers(0, width - 1), max_size=2)):
        logits[row, data.draw(st.integers(0, vocab - 1))] = torch.nan
    rule = Coupled(Sampler(SamplingParams(temperature=temperature, seed=seed), vocab, PACKED))
    right = [rule.sample(row, position + i) if not row.isnan().any() else 0 for i, row in enumerate(logits)]
    drafted = tuple(
        right[i] if data.draw(st.integers(0, 3)) else data.draw(st.integers(0, vocab - 1)) for i in range(num_drafted)
    )
    step_input = StepInput(width, TORCH)
    step = DeviceStep(lambda ids: (logits, None), step_input, (width,), rule.sample, 100, TORCH, None)
    try:
        expected = rule(Draft(drafted), logits[: num_drafted + 1], position)
    except RaceError as error:
        with pytest.raises(RaceError, match=r"not numbers \(NaN\)"):
            step.call(width, 5, position, (1, *drafted))
        assert "NaN" in str(error)
        return
    acceptance, rows, hidden = step.call(width, 5, position, (1, *drafted))
    assert acceptance == expected and hidden is None and rows is logits
    assert all(type(t) is int for t in (acceptance.num_accepted, *acceptance.token_ids))
    assert step_input.ids(width)[0].tolist() == [1, *drafted, *[0] * (width - num_drafted - 1)]
    assert int(step_input.pointer) == 5


# Whole lanes


def target_of(model: Prepared, whole: bool, **more: Any) -> StaticTarget:
    target = StaticTarget(model, LENGTH, WIDTHS, **more)
    target._judges_on_device = whole
    return target


def written(target: StaticTarget, drafter: Any, prompt: list[int], params: SamplingParams) -> list[Any]:
    """A lane's events without their times."""
    events = lane(target.prepared, drafter, prompt, WIDTHS, params, max(WIDTHS) - 1, target=target)
    return [replace(e, draft_s=0.0, verify_s=0.0) if isinstance(e, Step) else e for e in events][1:-1]


DRAFTERS = {
    "none": lambda truth, seed, vocab: Empty(),
    "random": lambda truth, seed, vocab: Random(seed, truth, vocab),
    "all right": lambda truth, seed, vocab: Oracle(truth),
    "all wrong": lambda truth, seed, vocab: Adversarial(truth, vocab),
}
models = st.sampled_from([*NAMES, *HYBRIDS])
CUTS = st.sampled_from([{}, {"top_k": 5}, {"top_p": 0.9}, {"top_k": 40, "top_p": 0.7}])


@settings(max_examples=12)
@given(models, st.sampled_from(DTYPES), temperatures, CUTS, st.integers(0, 99), st.integers(0, 40))
def test_whole_steps_write_what_rows_write(name, dtype, temperature, cuts, seed, num_prompt):
    """Lanes on CUDA and the CPU would be two decoders: in tokens, bits, accepted counts, or what a draft leaves."""
    model = prepared(name, dtype)
    params = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=14, **cuts)
    prompt = random_ids(num_prompt + 1, model.vocab_size, seed)
    plain = written(target_of(model, False), Empty(), prompt, params)
    truth = tokens_of(plain)
    for drafter, make in DRAFTERS.items():
        ours, theirs = (
            plain
            if drafter == "none" and not whole
            else written(target_of(model, whole), make(truth, seed, model.vocab_size), prompt, params)
            for whole in (True, False)
        )
        assert ours == theirs and tokens_of(ours) == truth


@pytest.mark.parametrize("name", ["mistral", "qwen3_next"])
def test_forwards_between_whole_steps_see_the_same_sequence(name):
    """The device hears of the pointer only with the next call: a row explained after a race, a second prefill or a
    timing would run elsewhere. Draft heads read the hidden states of the same tokens."""
    model = prepared(name)
    ids = random_ids(40, model.vocab_size, 4)
    rule = Coupled(Sampler(SamplingParams(), model.vocab_size, PACKED))
    targets = [target_of(model, whole, hidden_layers=(0, 2)) for whole in (True, False)]
    assert targets[1].verifier(rule) is None
    rows = []
    for target in targets:
        verify = target.verifier(rule)
        target.extend(ids[:20], 0)
        tensors = []
        for start in (20, 24):
            if verify is None:
                rows_and_states = target.extend(ids[start : start + 4], 4)
            else:
                _, *rows_and_states = verify(ids[start], Draft(tuple(ids[start + 1 : start + 4])), start)
            tensors += [x.clone() for x in rows_and_states]
        target.rollback(22)
        tensors += target.states()
        tensors.append(target.extend(ids[22:25], 3)[0].clone())
        target.rollback(23)
        target.extend(ids[23:30], 0)
        tensors.append(target.extend(ids[30:31], 1)[0].clone())
        target.warm(ids, rule)
        target.time_widths(1, 30)
        target.extend(ids[:30], 0)
        tensors.append(target.extend(ids[30:31], 1)[0].clone())
        rows.append(tensors)
    assert len(rows[0]) == len(rows[1]) >= 4 and all(same_bits(a, b) for a, b in zip(*rows, strict=True))


def test_other_rules_stay_on_the_host():
    """Another rule's draft would be judged as a coupled one."""
    target = target_of(prepared("qwen3"), True)
    assert target.verifier(Rejection(Sampler(SamplingParams(temperature=1.0), target.vocab_size, PACKED))) is None
    assert target.verifier(Coupled(FakeChoice())) is None
