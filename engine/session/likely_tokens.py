"""The most probable tokens at every row of a lane's steps, with the noise that chose among them. Taken from a step's
logits after its clock has stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..core.sampling.noise import gumbel
from ..core.sampling.sampler import Sampler

if TYPE_CHECKING:
    from torch import Tensor

    from ..core.events import Step
    from ..runner.prepared import Prepared

NUM_LIKELY = 5  # tokens kept of every row, in addition to the drafted, the committed, and those that other seeds choose
OTHER_SEEDS = 2
DIGITS = 4


def dice_of(sampler: Sampler, prepared: Prepared) -> list[Sampler]:
    """The race's sampler, and the same with other seeds; [] at temperature 0."""
    params = sampler.params
    if params.temperature == 0:
        return []
    seeds = [(params.seed + i + 1) % 2**63 for i in range(OTHER_SEEDS)]
    others = (Sampler(replace(params, seed=seed), prepared.vocab_size, prepared.kernels) for seed in seeds)
    return [sampler, *others]


class Candidates:
    """Candidates of one lane. steps: for its recording (see `recordings/extras.py`). dice: from `dice_of`; [] if
    the lane does not choose by them."""

    def __init__(self, sampler: Sampler, dice: Sequence[Sampler]) -> None:
        self.steps: list[list[dict[str, Any]]] = []
        self._sampler, self._dice = sampler, dice

    def look(self, step: Step, logits: Tensor) -> None:
        """Add a step with its logits [num_drafted + 1, vocab]."""
        rows = self._sampler.processed_rows(logits) if self._sampler.params.temperature else logits.float()
        log_z = rows.logsumexp(-1).tolist()
        likely = rows.topk(min(NUM_LIKELY, rows.shape[-1])).indices.tolist()
        step_rows, decided = [], dict(zip(step.rows, step.token_ids, strict=True))
        for r, (ids, path) in enumerate(zip(likely, step.paths, strict=True)):
            committed = [decided[r]] if r in decided else []
            drafted = [token for token, row in zip(step.drafted, step.follows, strict=True) if row == r]
            position, dice = step.position + len(path), self._dice if committed else ()
            chosen = [die(logits[r], position) for die in dice[1:]]
            wanted = torch.tensor(sorted({*ids, *drafted, *committed, *chosen}), device=rows.device)
            values = rows[r, wanted]
            order = [i for i in values.argsort(descending=True).tolist() if values[i].isfinite()]
            row = {"ids": wanted[order].tolist(), "logits": _rounded(values[order]), "log_z": round(log_z[r], DIGITS)}
            if dice:
                tokens = wanted[order].to(torch.int32)
                row["noise"] = [_rounded(gumbel(tokens, die.params.seed, position, False)) for die in dice]
            step_rows.append(row)
        self.steps.append(step_rows)


def _rounded(values: Tensor) -> list[float]:
    return [round(value, DIGITS) for value in values.tolist()]
