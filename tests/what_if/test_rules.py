"""What servers keep that draw drafts by probability, in closed form."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest

from engine.what_if.odds import Odds
from engine.what_if.tables import Text


@pytest.mark.parametrize("seed", range(20))
def test_rejection_keeps_as_much_as_is_computed(seed):
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
        so_far, room = 1.0, min(k, num - at - 1)
        for kept in range(room + 1):
            ours, here, own = p[at + kept], text[at + kept], p[at + kept][text[at + kept]]
            if kept < room:
                theirs = q[at][kept]
                rest = [max(0.0, a - b) for a, b in zip(ours, theirs, strict=True)]
                struck = sum(b * (1 - min(1.0, a / b)) for a, b in zip(ours, theirs, strict=True))
                own = struck * rest[here] / sum(rest) if struck > 0 else 0.0
            likely[at] += so_far * own * likely[at + kept + 1]
            steps[at] += so_far * own * (likely[at + kept + 1] + steps[at + kept + 1])
            so_far *= min(q[at][kept][here], ours[here]) if kept < room else 0.0
    assert likely[0] == pytest.approx(math.prod(row[token] for row, token in zip(p, text, strict=True)))
    logs = [[math.log(row[token]) for row, token in zip(rows, text[at:], strict=False)] for at, rows in enumerate(q)]
    known = SimpleNamespace(
        _drawn=[(k, row) for row in logs],
        _written=[math.log(row[token]) for row, token in zip(p, text, strict=True)],
        _text=Text((0,), tuple(text), num),
    )
    found = Odds._race_at(known, k, [0.5] * (k + 1), [0.25] * (k + 1))  # type: ignore[arg-type]
    assert found["steps"] == pytest.approx(steps[0] / likely[0])
    assert found["seconds"] == pytest.approx(0.75 * found["steps"])
