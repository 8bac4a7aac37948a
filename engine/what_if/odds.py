"""What a server would keep that draws drafts by probability and keeps token x with probability min(1, p(x) / q(x))
(Leviathan et al. 2023): expected over all its dice, along the text of a race.

Where the target writes y, a token drawn from q is kept with probability min(1, q(y) / p(y)). So a drafter that is fed
the text itself tells everything: E[i] = 1 + sum over n of P(n kept) E[i + n + 1] steps from position i.

Verified as a block (Sun et al. 2024, arXiv:2403.10444), at least n tokens are kept, where the target writes y, with the
least of 1 and the products of the first 1, 2, ... n ratios q(y) / p(y)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from ..analysis.costs import Costs
from ..core.sampling.sampler import Sampler
from ..core.spec import LaneSpec
from ..drafters import GREEDY, serves_every_k
from .tables import Text

if TYPE_CHECKING:
    from torch import Tensor

    from ..session import TorchRace


class Forced(Sampler):
    """Picks the tokens of a text, whatever their probability; the first column for a token that has none."""

    is_filtered = True  # so that no kernel picks by the logits

    def __init__(self, race: TorchRace, token_ids: Sequence[int]) -> None:
        super().__init__(race.spec.params, race.prepared.vocab_size, race.prepared.kernels)
        self._text = token_ids

    def __call__(self, row: Tensor, position: int) -> int:
        wanted = self._text[min(position, len(self._text) - 1)]
        return int((self._tokens[: row.shape[-1]] == wanted).int().argmax())


class Odds:
    """How probable the text's tokens are to a drafter, by `ask`, and to the target, by `look`. question: that of its
    table at temperature 0, in ask.py; most: tokens of a draft. q has the race's temperature, but no top-p and no top-k,
    as in vLLM 0.32.0."""

    def __init__(self, race: TorchRace, text: Text, question: Any, most: int) -> None:
        self._race, self._text, self._table = race, text, question.name
        self.drafter, longest = question.drafter.removesuffix(GREEDY), min(most, question.made.max_k)
        lane = LaneSpec(f"the odds of {self.drafter}", self.drafter, longest, rule="rejection")  # drafts have logits
        self.made = race.build_drafter(lane, Forced(race, text.token_ids))
        self._written: list[float] = []  # log p of each token
        self._drawn: list[tuple[int, list[float]]] = []  # by position, a draft's length, and log q of what follows

    def look(self, logits: Tensor) -> None:
        """Take the target's logits [n, vocab] of the next n tokens of the text, or of more than are left."""
        tokens = self._text.token_ids[len(self._written) :][: len(logits)]
        self._written += _logs(self._race.sampler.processed_rows(logits[: len(tokens)]), tokens)

    def ask(self, token_ids: Sequence[int], hidden: Tensor | None, k: int) -> None:
        """As `_Question.ask` in ask.py."""
        draft, position = self.made.propose(token_ids, hidden, min(k, self.made.max_k)), len(self._drawn)
        tokens = self._text.token_ids[position : position + len(draft)]
        rows = draft.logits[: len(tokens)].float() / self._race.spec.params.temperature if tokens else None
        self._drawn.append((len(draft), [] if rows is None else _logs(rows, tokens)))

    def expected(self, costs: Costs) -> dict[str, dict[str, float]]:
        """By k, the race's `steps` and `seconds`, and its `block_steps` if drafts are verified as a block: at every k
        or, of a drafter whose drafts depend on it, at its own."""
        ks = range(1, len(costs.verify_s)) if serves_every_k(self.drafter) else [self.made.max_k]
        step_s = [sum(both) for both in zip(costs.draft_s[self._table], costs.verify_s, strict=True)]
        rows = {}
        for k in ks:
            steps, seconds = self._race_at(k, step_s, is_block=False)
            block_steps, _ = self._race_at(k, step_s, is_block=True)
            rows[str(k)] = {"steps": steps, "seconds": seconds, "block_steps": block_steps}
        return rows

    def _race_at(self, k: int, step_s: Sequence[float], is_block: bool) -> tuple[float, float]:
        """Steps and seconds."""
        steps, seconds = ([0.0] * (len(self._drawn) + k + 1) for _ in range(2))
        for at, (length, drawn) in reversed([*enumerate(self._drawn)]):
            num = min(k, length, self._text.room(at))
            steps[at], seconds[at] = 1.0, step_s[num]
            ratios = [q - self._written[at + i] for i, q in enumerate(drawn[:num])]
            least = accumulate(accumulate(ratios), min, initial=0.0)
            reached = least if is_block else accumulate((min(0.0, one) for one in ratios), initial=0.0)
            for kept, (enough, more) in enumerate(pairwise([*map(math.exp, reached), 0.0])):
                steps[at] += (enough - more) * steps[at + kept + 1]
                seconds[at] += (enough - more) * seconds[at + kept + 1]
        return steps[0], seconds[0]


def _logs(rows: Tensor, tokens: Sequence[int]) -> list[float]:
    """The logarithms of the tokens' probabilities, one in each row of logits."""
    return [float(row[token]) for row, token in zip(rows.log_softmax(-1), tokens, strict=True)]
