"""Which tokens of a draft stand.

Coupled: the target's own choice at each position is a function of its logits there (argmax, with noise that belongs to
the position), and a draft token stands exactly if it is that choice. So the committed tokens are the target's own
whatever was drafted, sampled too. Rows are looked at lazily and stop at the first rejection.

Rejection (Leviathan et al. 2023; Chen et al. 2023): a draft token stands with probability min(1, p/q), which keeps the
target's distribution but not its tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DrafterError
from ..interfaces import Acceptance, AcceptRule, Choice, Draft, Guarantee
from ..spec import SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

    from .sampler import Sampler

DRAFT, TEST, OWN = 1, 2, 3
"""Purposes of noise under rejection: what drafters pick with, what decides whether a draft token stands, what the
target's own token is drawn with. One stream for two of them would bias what is written (as in vLLM #47386)."""


class Coupled:
    """Accepts a draft token iff it equals the target's choice at its position; then the target's own token follows."""

    guarantee: Guarantee = "same tokens"

    def __init__(self, sample: Choice) -> None:
        self.sample = sample

    def __call__(self, draft: Draft, logits: Tensor, position: int) -> Acceptance:
        ids, chosen = draft.token_ids, self.sample.at_once(logits, draft.token_ids, position)
        while not chosen or (len(chosen) <= len(ids) and chosen[-1] == ids[len(chosen) - 1]):
            chosen.append(self.sample(logits[len(chosen)], position + len(chosen)))
        return Acceptance(len(chosen) - 1, tuple(chosen))


def coupled(params: SamplingParams, sample: Choice) -> Coupled:
    """The rule for any temperature; at temperature 0 it is greedy verification."""
    return Coupled(sample)


class Rejection:
    """Accepts a draft token x with probability min(1, p(x) / q(x)), else draws from the normalised max(0, p - q); after
    a whole draft, from p.

    p and q are the target's and the drafter's distributions after temperature, top-k and top-p. A draft without logits
    is deterministic: q is 1 at its token. What is written has the target's distribution exactly if the drafter drew
    each token from the q that it states, with `drafters_sampler`, or by no chance at all; and if how far it drafts does
    not depend on the token that it drew last. Raises DrafterError for logits that are of another shape or no numbers.
    """

    guarantee: Guarantee = "same distribution"

    def __init__(self, sampler: Sampler) -> None:
        self._sampler, self._test, self._own = sampler, sampler.stream(TEST), sampler.stream(OWN)

    def __call__(self, draft: Draft, logits: Tensor, position: int) -> Acceptance:
        if draft.logits is not None and tuple(draft.logits.shape) != (len(draft), logits.shape[-1]):
            raise DrafterError(
                f"the drafter's logits are {list(draft.logits.shape)}, not {[len(draft), logits.shape[-1]]}: one "
                "row of the vocabulary for each token"
            )
        for i, token in enumerate(draft.token_ids):
            p = self._probabilities(logits[i])
            q = None if draft.logits is None else self._probabilities(draft.logits[i])
            chance, proposed = float(p[token]), 1.0 if q is None else float(q[token])
            if proposed != proposed:
                raise DrafterError("the drafter's logits are not numbers (NaN)")
            if not self._test.uniform(position + i) * proposed < chance:
                return Acceptance(i, (*draft.token_ids[:i], self._own.draw(_residual(p, q, token), position + i)))
        n = len(draft)
        return Acceptance(n, (*draft.token_ids, self._own.draw(self._probabilities(logits[n]), position + n)))

    def _probabilities(self, row: Tensor) -> Tensor:
        return self._sampler.processed(row).softmax(-1)


def _residual(p: Tensor, q: Tensor | None, token: int) -> Tensor:
    """What is left of p where q proposed `token` and it did not stand: max(0, p - q), not normalised. Where rounding
    leaves nothing, p."""
    if q is None:
        rest = p.clone()
        rest[token] = 0
    else:
        rest = (p - q).clamp_(min=0)
    return rest if float(rest.max()) > 0 else p


def drafters_sampler(rule: AcceptRule, sampler: Sampler) -> Sampler:
    """What drafters pick with under a rule: the target's own noise where equal tokens are accepted, else noise of their
    own."""
    return sampler if rule.guarantee == "same tokens" else sampler.stream(DRAFT)


def rejection(params: SamplingParams, sampler: Sampler) -> Coupled | Rejection:
    """The rule that keeps the distribution. At temperature 0 both distributions are one-hot, and it is greedy
    verification."""
    return Coupled(sampler) if params.temperature == 0 else Rejection(sampler)
