"""A race on a real tiny model in which a fault can be planted, and whether the verdict found it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from engine.analysis.same import Verdict, compare
from engine.core.events import Event, Finished, Step
from engine.core.spec import SamplingParams
from engine.runner.prepared import Prepared
from tests.helpers.fakes import Empty, Random, tokens_of
from tests.helpers.races import unexplained
from tests.helpers.tiny import lane, random_ids

NEW_TOKENS = 32
WIDE = 8


def judge(baseline: Sequence[Event], speculative: Sequence[Event]) -> Verdict:
    """The race's verdict on two audited lanes of one class."""
    assert isinstance(baseline[-1], Finished)
    a, b = ([e for e in lane_ if isinstance(e, Step)] for lane_ in (baseline, speculative))
    assert sum(len(s.checksums) for s in a) == NEW_TOKENS
    names, ends = ("baseline", "speculative"), isinstance(speculative[-1], Finished)
    states = ("finished", "finished" if ends else "failed")
    return compare(a, b, names=names, same_class=True, dtype="float32", explain=unexplained, states=states)


class Real:
    """A race on a real tiny model: a baseline and a lane whose drafts are right about as often as wrong."""

    def __init__(self, model: Prepared, temperature: float = 0.0) -> None:
        self.model = model
        self.params = SamplingParams(temperature=temperature, seed=3, max_new_tokens=NEW_TOKENS)
        self.prompt = random_ids(30, model.vocab_size, 5)
        self.baseline = self.lane(Empty(), (WIDE,))
        self.truth = tokens_of(self.baseline)

    def lane(self, drafter: Any, widths: Sequence[int], **more: Any) -> list[Event]:
        return lane(self.model, drafter, self.prompt, widths, self.params, k=WIDE - 1, **more)

    def verdict(
        self,
        widths: Sequence[int] = (WIDE,),
        baseline_widths: Sequence[int] = (WIDE,),
        make: Callable[[], dict[str, Any]] = dict,
    ) -> Verdict:
        """`make()`: what both lanes are built with in place of the real parts."""
        drafter = Random(1, self.truth, self.model.vocab_size)
        return judge(self.lane(Empty(), baseline_widths, **make()), self.lane(drafter, widths, **make()))


def caught(verdict: Verdict) -> bool:
    return verdict.kind == "different" and (bool(verdict.rows_different) or verdict.first_difference is not None)


def last_bit(x: torch.Tensor, where: torch.Tensor | bool) -> torch.Tensor:
    """x, one unit larger in its last place where it is positive: what another kernel's order of sums does."""
    return torch.where(torch.as_tensor(where) & (x > 0), torch.nextafter(x, torch.full_like(x, torch.inf)), x)
