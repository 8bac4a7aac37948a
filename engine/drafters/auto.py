"""How much to draft: nodes are bought while they are worth more than they cost (k "auto"), or up to a fixed number
("tree:N"). Standard library only.

A node is worth the chance that it is kept. It costs a row of the target's step, and to find out what follows it costs a
pass of its drafter; a second is worth the lane's own speed in tokens. Comparing worth with cost at that speed maximises
tokens per second in the long run (Dinkelbach 1967), also where some steps have better chances than others."""

import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from ..core.interfaces import BranchingDrafter, Draft, Drafter, Node
from .chances import NUM_SCORES, sharpness
from .ngram import NgramDrafter
from .pace import Pace, SizeTime
from .tree import SURE, Tree

FIRST, SECOND, THIRD = 0.6, 0.12, 0.06  # chances of what would follow a node, before a pass finds out
AHEAD = 6  # further passes that may follow one
CALIBRATIONS = 2  # how often each kind of pass is timed before the race


def parts_of(drafter: Drafter) -> tuple[NgramDrafter | None, BranchingDrafter | None] | None:
    """The copies and the rated drafts that make up a drafter; None if it has other parts."""
    parts = drafter.parts or (drafter,)
    copies = [part for part in parts if isinstance(part, NgramDrafter)]
    rated = [part for part in parts if isinstance(part, BranchingDrafter)]
    if len(copies) > 1 or len(rated) > 1 or len(copies) + len(rated) < len(parts):
        return None
    return copies[0] if copies else None, rated[0] if rated else None


class AutoDrafter(Drafter):
    """Drafts trees from copies and from a drafter's rated tokens, either of which may be missing.

    parts: from `parts_of`.
    step_s: seconds of the target's step that verifies 0, 1, ... drafted tokens; its length limits a draft.
    branches: whether the target takes trees; if not, drafts are chains.
    temperature: of the race.
    size: drafts have this many tokens, as far as there are any; 0: as many as pay.
    """

    def __init__(
        self,
        drafter: Drafter,
        step_s: Sequence[float],
        branches: bool,
        temperature: float,
        size: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        parts = parts_of(drafter)
        assert parts is not None
        self.drafters = drafter.parts or (drafter,)
        self.hidden_layers, self.synthetic = drafter.hidden_layers, drafter.synthetic
        self._copies, self._rated = parts
        self._step_s, self._branches, self._size, self._clock = tuple(step_s), branches, size, clock
        self._weight = sharpness(temperature)
        self._first_s, self._pass_s = SizeTime(), SizeTime()
        self._start(0)

    def calibrate(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        """Time passes of one node and of several, before the race; arguments like `prefill`. Raises whatever the
        drafter raises."""
        for _ in range(CALIBRATIONS if self._rated else 0):
            self.prefill(prompt_ids, hidden)
            self._draft(prompt_ids, None, min(len(self._step_s) - 1, 7), min(len(self._step_s) - 1, 7))

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        """See `interfaces.Drafter`. Forgets all but the times of passes."""
        self._start(len(prompt_ids))
        for drafter in self.drafters:
            drafter.prefill(prompt_ids, hidden if drafter.hidden_layers else None)

    def _start(self, num_tokens: int) -> None:
        self._pace = Pace(self._step_s)
        self._num_tokens, self._last_s = num_tokens, self._step_s[0]

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        """See `interfaces.Drafter`; k is an upper limit."""
        if num_written := len(token_ids) - self._num_tokens:
            self._pace.add(num_written, self._last_s)
        self._num_tokens = len(token_ids)
        k = min(k, len(self._step_s) - 1)
        draft = self._draft(token_ids, hidden, k, min(k, self._size))
        self._last_s += self._step_s[len(draft)]
        return draft

    def _draft(self, token_ids: Sequence[int], hidden: Any, k: int, size: int) -> Draft:
        """A tree of at most k nodes; size: of this many if there are as many, else as many as pay."""
        rated, self._last_s = self._rated, 0.0
        if rated is not None:
            rated.begin(token_ids, hidden if rated.hidden_layers else None)
        tree = Tree(self._copies, token_ids, k, self._branches, self._weight)
        while True:
            nodes = tree.ranked()[:k]
            num = size or self._best_size(nodes)
            if rated is None or not k:
                break
            batch = self._missing(tree, nodes[:num], num) if size else self._worthwhile(tree, nodes, num)
            if not batch:
                break
            self._expand(tree, rated, batch[: rated.most_nodes])
        return tree.draft(nodes[:num])

    def _expand(self, tree: Tree, rated: BranchingDrafter, batch: Sequence[Node]) -> None:
        """One pass of the drafter."""
        started = self._clock()
        ratings = rated.expand(batch, NUM_SCORES)
        for node, rating in zip(batch, ratings, strict=True):
            tree.expand(node, rating)
        times = self._first_s if batch[0].parent is None else self._pass_s
        times.add(len(batch), self._clock() - started)
        self._last_s += times(len(batch))

    def _open(self, tree: Tree, nodes: Sequence[Node]) -> list[Node]:
        """The nodes that the drafter could continue and whose continuation is not sure already, by falling chance."""
        assert self._rated is not None
        return [
            node
            for node in (tree.root, *nodes)
            if not node.is_expanded
            and self._rated.can_expand(node)
            and max((child.own for child in node.children.values()), default=0.0) < SURE
        ]

    def _missing(self, tree: Tree, nodes: Sequence[Node], size: int) -> list[Node]:
        """The nodes whose children may belong to the first `size`."""
        least = nodes[-1].chance if len(nodes) == size else 0.0
        batch = [node for node in self._open(tree, nodes) if node.chance > least and node.depth < size]
        return batch[:1] if batch and batch[0].parent is None else batch

    def _best_size(self, nodes: Sequence[Node]) -> int:
        """How many of these nodes are worth most."""
        worths = accumulate((node.chance for node in nodes), initial=0.0)
        prices = (self._pace.rate * seconds for seconds in self._step_s)
        values = [worth - price for worth, price in zip(worths, prices, strict=False)]
        return values.index(max(values))

    def _worthwhile(self, tree: Tree, nodes: Sequence[Node], num: int) -> list[Node]:
        """The nodes that pay to continue, in one pass; none if none does."""
        rate, step_s = self._pace.rate, self._step_s
        more = [(step_s[n] - step_s[num]) / (n - num) for n in range(num + 1, len(step_s))]
        row = rate * min(more) if more else nodes[num - 1].chance
        batch = self._open(tree, nodes)
        if batch and batch[0].parent is None:
            batch = batch[:1]
        times = self._first_s if batch and batch[0].parent is None else self._pass_s
        gains = accumulate((self._gain(node.chance, row, rate) for node in batch), initial=0.0)
        values = [gain - (rate * times(n) if n else 0.0) for n, gain in enumerate(gains)]
        return batch[: values.index(max(values))]

    def _gain(self, chance: float, row: float, rate: float, ahead: int = AHEAD) -> float:
        """What it is worth to know what follows a node with this chance, where a row costs `row` tokens."""
        first = chance * FIRST
        gain = sum(max(0.0, chance * (1 - FIRST) * share - row) for share in (SECOND, THIRD))
        if first > row:
            gain += first - row
            if ahead:
                gain += max(0.0, self._gain(first, row, rate, ahead - 1) - rate * self._pass_s(1))
        return gain
