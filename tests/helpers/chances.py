"""Whether counts are those of a distribution."""

import math

import torch


def excess(observed: torch.Tensor, expected: torch.Tensor) -> float:
    """A chi-square statistic in standard deviations (Wilson and Hilferty 1931): beyond 4 is no chance."""
    kept = expected > 0
    assert observed[~kept].sum() == 0
    df = int(kept.sum()) - 1
    chi2 = float(((observed[kept] - expected[kept]).square() / expected[kept]).sum())
    return ((chi2 / df) ** (1 / 3) - (1 - 2 / (9 * df))) / math.sqrt(2 / (9 * df))
