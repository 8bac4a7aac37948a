"""Which tokens of a draft are kept.

Coupled: the target's own choice at each position is a function of its logits there (argmax, with noise that belongs to
the position), and a draft token is kept iff it is that choice. In a tree, the walk goes to the child that holds the
choice, and ends where none does. So the committed tokens are the target's own whatever was drafted, also when sampling.
Only the rows along the walk are evaluated.

Rejection (Leviathan et al. 2023; Chen et al. 2023): a draft token is kept with probability min(1, p/q), which keeps the
target's distribution but not its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DrafterError
from ..interfaces import Acceptance, AcceptRule, Choice, Draft, Guarantee
from ..spec import SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

    from .sampler import Sampler

# Purposes of noise under rejection: drafters' picks, tests of draft tokens, and the target's own tokens. One stream for
# two of them would bias what is written (as in vLLM #47386).
DRAFT, TEST, OWN = 1, 2, 3


class Coupled:
    """Accepts a draft token iff it is the target's choice at its position; then the target's own token follows. At
    temperature 0 it is greedy verification."""

    guarantee: Guarantee = "same tokens"

    def __init__(self, sample: Choice) -> None:
        self.sample = sample

    def __call__(self, draft: Draft, logits: Tensor, position: int) -> Acceptance:
        known = [] if draft.parents else self.sample.at_once(logits, draft.token_ids, position)
        chosen: list[int] = []
        rows: list[int] = []
        row: int | None = 0
        while row is not None:
            num = len(chosen)
            token = known[num] if num < len(known) else self.sample(logits[row], position + num)
            chosen.append(token)
            rows.append(row)
            row = draft.after(row, token)
        return Acceptance(len(chosen) - 1, tuple(chosen), tuple(rows) if draft.parents else ())


class Rejection:
    """Accepts a draft token x with probability min(1, p(x) / q(x)), else draws from the normalised max(0, p - q); after
    a whole draft, from p.

    p and q are the target's and the drafter's distributions after temperature, top-k and top-p. A draft without logits
    is deterministic: q is 1 at its token. The output has exactly the target's distribution if the drafter drew each
    token from the stated q, with `drafters_sampler`, or deterministically, and if it decided that a token belongs to
    the draft before it drew that token (to leave unlikely ones out would change the distribution). Raises DrafterError
    for trees, and for logits of another shape or NaN."""

    guarantee: Guarantee = "same distribution"

    def __init__(self, sampler: Sampler) -> None:
        self._sampler, self._test, self._own = sampler, sampler.stream(TEST), sampler.stream(OWN)

    def __call__(self, draft: Draft, logits: Tensor, position: int) -> Acceptance:
        if draft.parents:
            raise DrafterError("the drafter proposed a tree; rule 'rejection' judges one token after the other")
        shape, needed = getattr(draft.logits, "shape", ()), (len(draft), logits.shape[-1])
        if draft.logits is not None and tuple(shape) != needed:
            raise DrafterError(
                f"the drafter's logits are {list(shape)}, not {list(needed)}: one row of the vocabulary for each token"
            )
        if draft.logits is not None and not bool(draft.logits.amax(-1).isfinite().all()):
            raise DrafterError("the drafter's logits are not numbers (NaN)")
        for i, token in enumerate(draft.token_ids):
            p = self._probabilities(logits[i])
            q = None if draft.logits is None else self._probabilities(draft.logits[i])
            chance, proposed = float(p[token]), 1.0 if q is None else float(q[token])
            if not self._test.uniform(position + i) * proposed < chance:
                return Acceptance(i, (*draft.token_ids[:i], self._own.draw(_residual(p, q, token), position + i)))
        n = len(draft)
        return Acceptance(n, (*draft.token_ids, self._own.draw(self._probabilities(logits[n]), position + n)))

    def _probabilities(self, row: Tensor) -> Tensor:
        return self._sampler.processed(row).softmax(-1)


def _residual(p: Tensor, q: Tensor | None, token: int) -> Tensor:
    """max(0, p - q), not normalised, after q proposed `token` and it was rejected; p where rounding leaves nothing."""
    if q is None:
        rest = p.clone()
        rest[token] = 0
    else:
        rest = (p - q).clamp_(min=0)
    return rest if float(rest.max()) > 0 else p


def drafters_sampler(rule: AcceptRule, sampler: Sampler) -> Sampler:
    """What drafters pick with: the target's own noise where equal tokens are accepted, else a separate stream."""
    return sampler if rule.guarantee == "same tokens" else sampler.stream(DRAFT)


def distribution_rule(params: SamplingParams, sampler: Sampler) -> Coupled | Rejection:
    """The rule that keeps the distribution. At temperature 0 both are one-hot, and it is greedy verification."""
    return Coupled(sampler) if params.temperature == 0 else Rejection(sampler)
