"""Which tokens can be chosen: top-k, and top-p of one row on the host or of many rows on the device.

Top-p of many rows, on a GPU, can be captured as a graph. A row's result must not depend on how many rows are processed
together, else a token would depend on the width of its step. Sums of floats can, because kernels choose their order. So
probabilities become integers, whose sum is the same in any order; all else is elementwise."""

import torch
from torch import Tensor

from ..errors import NOT_NUMBERS, RaceError

NUCLEUS_FIRST = 1024
# The integer weight of a row's largest score: 2**22 of them fit int64. A score 28.5 below it weighs 0.
UNIT = 2.0**40
LEAST = -(2**31)


def kept_by_top_k(scores: Tensor, k: int) -> Tensor:
    """`scores` [..., vocab] with all but the k largest of each row at -inf; ties with the k-th stay."""
    if not 0 < k < scores.shape[-1]:
        return scores
    return scores.masked_fill(scores < scores.topk(k).values[..., -1:], -torch.inf)


def kept_by_top_p(scores: Tensor, p: float) -> Tensor:
    """`scores` [vocab] with all but the nucleus at -inf: the smallest set of largest values whose softmax mass reaches
    p (Holtzman et al. 2020)."""
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
    """The largest t of `scores` with mass of {score >= t} at least p: for flat distributions, without sorting."""
    low, high = float(scores[scores > -torch.inf].min()), float(scores.max())
    while low < (middle := (low + high) / 2) < high and high - low > 1e-6 * max(1.0, abs(high)):
        if float(probs[scores >= middle].sum()) >= p:
            low = middle
        else:
            high = middle
    return scores[scores >= low].min()


def nucleus_rows(scores: Tensor, p: float) -> Tensor:
    """`kept_by_top_p` of each row of scores [n, vocab] (float32).

    Differs from `kept_by_top_p` only where rounding decides whether a mass reaches p. Where that would raise (the row's
    largest score is not finite), the row becomes NaN. The threshold is found bit by bit, from the highest."""
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
