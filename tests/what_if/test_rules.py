"""What servers keep that draw drafts by probability, in closed form."""

import itertools
import math
import random
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from engine.what_if.odds import Odds
from engine.what_if.tables import Text

Row = Sequence[float]


def one_by_one(p: Sequence[Row], q: Sequence[Row], text: Sequence[int]) -> list[float]:
    """By what is kept, how probable it is that this is kept and that the text goes on (Leviathan et al. 2023)."""
    so_far, written = 1.0, []
    for ours, theirs, here in zip(p, q, text, strict=False):
        rest = [max(0.0, a - b) for a, b in zip(ours, theirs, strict=True)]
        struck = sum(b * (1 - min(1.0, a / b)) for a, b in zip(ours, theirs, strict=True))
        written.append(so_far * struck * rest[here] / sum(rest) if struck > 0 else 0.0)
        so_far *= min(theirs[here], ours[here])
    return [*written, so_far * p[len(q)][text[len(q)]]]


def as_a_block(p: Sequence[Row], q: Sequence[Row], text: Sequence[int]) -> list[float]:
    """The same of every draft, by the paper's algorithm 2 (Sun et al. 2024, arXiv:2403.10444)."""
    num, written = len(q), [0.0] * (len(q) + 1)
    for draft in itertools.product(range(3), repeat=num):
        ratios = itertools.accumulate(
            (p[i][x] / q[i][x] for i, x in enumerate(draft)), lambda w, r: min(w * r, 1.0), initial=1.0
        )
        weights, stays = list(ratios), 1.0
        drawn = math.prod(q[i][x] for i, x in enumerate(draft))
        for kept in reversed(range(num + 1)):
            weight, here = weights[kept], text[kept]
            rest = (
                [1.0] * 3 if kept == num else [max(0.0, weight * a - b) for a, b in zip(p[kept], q[kept], strict=True)]
            )
            accepts = weight if kept == num else sum(rest) / (sum(rest) + 1 - weight) if sum(rest) else 0.0
            accepts = 1.0 if kept == 0 else accepts
            own = p[kept][here] if kept == num else rest[here] / sum(rest) if sum(rest) else 0.0
            written[kept] += drawn * stays * accepts * own * (draft[:kept] == tuple(text[:kept]))
            stays *= 1 - accepts
    return written


@pytest.mark.parametrize("rule", [one_by_one, as_a_block], ids=["one by one", "as a block"])
@pytest.mark.parametrize("seed", range(20))
def test_a_rule_keeps_as_much_as_is_computed(seed, rule):
    """Tokens a step would be of no server's rule: here every way to write a text of three letters is followed."""
    rng = random.Random(seed)
    num, k = rng.randrange(1, 7), rng.randrange(1, 5)
    text = [rng.randrange(3) for _ in range(num)]

    def chances() -> list[float]:
        weights = [rng.random() * (rng.random() < 0.8) + 1e-3 for _ in range(3)]
        return [weight / sum(weights) for weight in weights]

    p, q = [chances() for _ in range(num)], [[chances() for _ in range(k)] for _ in range(num)]
    likely, steps = [0.0] * num + [1.0], [0.0] * (num + 1)  # of what is written from a position on
    for at in reversed(range(num)):
        for kept, own in enumerate(rule(p[at:], q[at][: num - at - 1], text[at:])):
            likely[at] += own * likely[at + kept + 1]
            steps[at] += own * (likely[at + kept + 1] + steps[at + kept + 1])
    assert likely[0] == pytest.approx(math.prod(row[token] for row, token in zip(p, text, strict=True)))
    logs = [[math.log(row[token]) for row, token in zip(rows, text[at:], strict=False)] for at, rows in enumerate(q)]
    known = SimpleNamespace(
        _drawn=[(k, row) for row in logs],
        _written=[math.log(row[token]) for row, token in zip(p, text, strict=True)],
        _text=Text((0,), tuple(text), num),
    )
    totals = Odds._race_at(known, k, [0.75] * (k + 1), rule is as_a_block)  # type: ignore[arg-type]
    assert totals[0] == pytest.approx(steps[0] / likely[0])
    assert totals[1] == pytest.approx(0.75 * totals[0])
