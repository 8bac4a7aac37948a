"""Whole lanes with a head: the baseline's tokens and the baseline's bits, whatever is drafted, and drafts that are
worth having."""

from __future__ import annotations

import pytest

from engine.drafters.none import NoDrafter
from engine.interfaces import Drafter
from tests.helpers.head_files import changed
from tests.helpers.head_fixtures import HEADS, made, raced, trained_target, written

TEXT = "class Reader:\n    def read(self, size=-1):\n        return self.buffer.read(size)\n    def "
LIMITS = {"eagle3": 15, "dflash": 7}


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    return trained_target().tokenizer(TEXT)["input_ids"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_tokens_and_bits_are_the_baselines(dtype, temperature, prompt):
    """A head would change what the target says, or a bit of its logits: its hidden states are taken from the very
    forwards that verify."""
    target = trained_target(dtype)
    for length, num_new, ks in ((len(prompt), 24, (1, 7, 15)), (1, 9, (4,)), (2, 9, (4,)), (3, 9, (4,))):
        for k in ks:
            widths = (16,) if k > 7 else (8,)
            baseline = written(raced(target, NoDrafter(), prompt[:length], 0, temperature, num_new, widths))
            for kind in (kind for kind, limit in LIMITS.items() if k <= limit):
                steps = raced(
                    target,
                    made(f"{kind}:{HEADS[kind]}", target, k, prompt=prompt[:length], temperature=temperature),
                    prompt[:length],
                    k,
                    temperature,
                    num_new,
                    widths,
                )
                assert written(steps) == baseline, (kind, k, length)
                assert max(len(s.drafted) for s in steps) == k


class Interrupted(Drafter):
    """A drafter that is asked for nothing at every third step, and for less at others, as hybrid and auto k do."""

    def __init__(self, inner) -> None:
        self.inner, self.hidden_layers, self.calls = inner, inner.hidden_layers, 0

    def prefill(self, prompt_ids, hidden) -> None:
        self.calls = 0
        self.inner.prefill(prompt_ids, hidden)

    def propose(self, token_ids, hidden, k):
        self.calls += 1
        return self.inner.propose(token_ids, hidden, 0 if self.calls % 3 else min(k, self.calls % 4))


@pytest.mark.parametrize("kind", HEADS)
def test_steps_without_a_draft_cost_no_later_draft(kind, prompt):
    """Rows of a step without a draft would be lost, and every later draft be made from a text with holes."""
    target = trained_target()
    always = {
        s.position: s.drafted for s in raced(target, made(f"{kind}:{HEADS[kind]}", target, 4), prompt, 4, num_new=80)
    }
    drafter = Interrupted(made(f"{kind}:{HEADS[kind]}", target, 4))
    steps = [s for s in raced(target, drafter, prompt, 4, num_new=80) if s.drafted]
    same = [s for s in steps if s.position in always]
    assert len(same) >= 4 and all(s.drafted == always[s.position][: len(s.drafted)] for s in same)
    assert written(raced(target, drafter, prompt, 4)) == written(raced(target, NoDrafter(), prompt, 0))


@pytest.mark.parametrize("kind", HEADS)
def test_a_second_race_drafts_as_the_first(kind, prompt):
    """Rows of an earlier race would be drafted from."""
    target = trained_target()
    drafter = made(f"{kind}:{HEADS[kind]}", target, 4)
    first = [s.drafted for s in raced(target, drafter, prompt, 4)]
    raced(target, drafter, prompt[:5], 4, num_new=20)
    assert [s.drafted for s in raced(target, drafter, prompt, 4)] == first


def test_a_trained_head_is_worth_having_and_an_upset_one_is_not(prompt, tmp_path):
    """Tokens stay right whatever is drafted, so only acceptance shows a head whose words are one off."""
    target = trained_target()

    def rate(folder) -> float:
        steps = raced(target, made(f"eagle3:{folder}", target, 3), prompt, 3, num_new=60)
        return sum(s.num_accepted for s in steps) / sum(len(s.drafted) for s in steps)

    upset = changed(
        HEADS["eagle3"],
        tmp_path / "upset",
        None,
        lambda t: t.update({"lm_head.weight": t["lm_head.weight"].roll(1, 0)}),
    )
    assert rate(HEADS["eagle3"]) > max(0.2, 3 * rate(upset))
