"""Which tokens stand: top-k, and top-p of one row or, without asking the host, so that it can be captured as a CUDA graph, of many.

Of many, a row's result must not depend on how many rows are processed together, or a token would depend on the width of its step. Sums of floats may: their order is
the kernel's affair. So probabilities are whole numbers here, whose sum is the same in any order, and all else is done number by number.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import RaceError

NUCLEUS_FIRST = 1024
NOT_NUMBERS = "the model's logits are not numbers (NaN); choose dtype float32"
UNIT = 2.0**40
"""What the largest of a row's probabilities counts. The sum of 2**22 of them is still an int64; what is 28 below the largest score counts nothing."""
LEAST = -(2**31)


def kept_by_top_k(scores: Tensor, k: int) -> Tensor:
    """`scores` [..., vocab] with all but the k largest of each row at -inf; ties with the k-th stay."""
    if not 0 < k < scores.shape[-1]:
        return scores
    return scores.masked_fill(scores < scores.topk(k).values[..., -1:], -torch.inf)


def kept_by_top_p(scores: Tensor, p: float) -> Tensor:
    """`scores` [vocab] with all but the nucleus at -inf: the smallest set of largest values whose softmax mass reaches p (Holtzman et al. 2020)."""
    if p >= 1:
        return scores
    log_z = scores.logsumexp(-1)
    if not log_z.isfinite():
        raise RaceError(NOT_NUMBERS)
    top = scores.topk(min(NUCLEUS_FIRST, scores.shape[-1])).values
    mass = (top - log_z).exp().cumsum(0)
    if float(mass[-1]) >= p:
        threshold = top[int((mass < p).sum())]
    else:
        threshold = _threshold_by_bisection(scores, (scores - log_z).exp_(), p)
    return scores.masked_fill(scores < threshold, -torch.inf)


def _threshold_by_bisection(scores: Tensor, probs: Tensor, p: float) -> Tensor:
    """The largest value t of `scores` such that the mass of {score >= t} reaches p: for flat distributions, where a sort would be the alternative."""
    low, high = float(scores[scores > -torch.inf].min()), float(scores.max())
    while low < (middle := (low + high) / 2) < high and high - low > 1e-6 * max(1.0, abs(high)):
        if float(probs[scores >= middle].sum()) >= p:
            low = middle
        else:
            high = middle
    return scores[scores >= low].min()


def nucleus_rows(scores: Tensor, p: float) -> Tensor:
    """`kept_by_top_p` of each row of scores [n, vocab] (float32): all but its nucleus at -inf. It differs from that only where rounding decides
    whether a mass reaches p. A row whose largest score is not a finite number becomes NaN."""
    if p >= 1:
        return scores
    top = scores.amax(-1, keepdim=True)
    weights = ((scores - top).exp() * UNIT).round().long()
    total = weights.sum(-1, keepdim=True)
    needed = (total.double() * p).ceil().long().minimum(total)
    keys = ordered(scores)
    threshold = torch.full_like(needed, LEAST, dtype=torch.int32)
    for bit in (LEAST, *(1 << place for place in reversed(range(31)))):
        higher = threshold ^ bit
        mass = weights.masked_fill(keys < higher, 0).sum(-1, keepdim=True)
        threshold = torch.where(mass >= needed, higher, threshold)
    return scores.masked_fill(keys < threshold, -torch.inf).masked_fill(~top.isfinite(), torch.nan)


def ordered(scores: Tensor) -> Tensor:
    """float32 -> int32 of the same order, in which both zeros are equal."""
    bits = (scores + 0.0).view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)
