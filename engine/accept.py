"""Which tokens of a draft stand.

Coupled: the target's own choice at each position is a function of its logits there (argmax, with noise that belongs to the position), and a draft
token stands exactly if it is that choice. So the committed tokens are the target's own whatever was drafted, sampled too. Rows are looked at
lazily and stop at the first rejection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import UsageError
from .interfaces import Acceptance, Draft, Guarantee
from .spec import SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

    from .sampling import Sample


class Coupled:
    """Accepts a draft token iff it equals the target's choice at its position; then the target's own token follows."""

    guarantee: Guarantee = "same tokens"

    def __init__(self, sample: Sample) -> None:
        self.sample = sample

    def __call__(self, draft: Draft, logits: Tensor, position: int) -> Acceptance:
        chosen: list[int] = []
        for i in range(len(draft) + 1):
            chosen.append(self.sample(logits[i], position + i))
            if i == len(draft) or chosen[i] != draft.token_ids[i]:
                break
        return Acceptance(len(chosen) - 1, tuple(chosen))


def coupled(params: SamplingParams, sample: Sample) -> Coupled:
    """The rule for any temperature; at temperature 0 it is greedy verification."""
    return Coupled(sample)


def greedy(params: SamplingParams, sample: Sample) -> Coupled:
    """The rule for temperature 0 alone. Raises UsageError for any other."""
    if params.temperature != 0:
        raise UsageError(f"rule 'greedy' needs temperature 0, not {params.temperature!r}; choose rule 'coupled' to sample")
    return Coupled(sample)
