"""The most probable tokens at every row of a lane's steps, with the noise that chose among them. Taken from a step's
logits after its clock has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..core.sampling.noise import gumbel
from ..core.sampling.sampler import Sampler

if TYPE_CHECKING:
    from torch import Tensor

    from ..core.events import Step

NUM_LIKELY = 5  # tokens kept of every row, in addition to the drafted and the committed
DIGITS = 4


class Candidates:
    """Candidates of one lane. steps: for its recording (see `recordings/extras.py`). by_noise: whether the lane chooses
    by the sampler's noise."""

    def __init__(self, sampler: Sampler, by_noise: bool) -> None:
        self.steps: list[list[dict[str, Any]]] = []
        self._sampler, self._by_noise = sampler, by_noise

    def look(self, step: Step, logits: Tensor) -> None:
        """Add a step with its logits [num_drafted + 1, vocab]."""
        rows = self._sampler.processed_rows(logits) if self._sampler.params.temperature else logits.float()
        log_z = rows.logsumexp(-1).tolist()
        likely = rows.topk(min(NUM_LIKELY, rows.shape[-1])).indices.tolist()
        step_rows, decided = [], dict(zip(step.rows, step.token_ids, strict=True))
        for r, (ids, path) in enumerate(zip(likely, step.paths, strict=True)):
            committed = [decided[r]] if r in decided else []
            drafted = [token for token, row in zip(step.drafted, step.follows, strict=True) if row == r]
            wanted = torch.tensor(sorted({*ids, *drafted, *committed}), device=rows.device)
            values = rows[r, wanted]
            order = [i for i in values.argsort(descending=True).tolist() if values[i].isfinite()]
            row = {"ids": wanted[order].tolist(), "logits": _rounded(values[order]), "log_z": round(log_z[r], DIGITS)}
            if self._by_noise and committed:
                tokens, seed = wanted[order].to(torch.int32), self._sampler.params.seed
                row["noise"] = [_rounded(gumbel(tokens, seed, step.position + len(path), False))]
            step_rows.append(row)
        self.steps.append(step_rows)


def _rounded(values: Tensor) -> list[float]:
    return [round(value, DIGITS) for value in values.tolist()]
