"""The exact test of two servers' samples: its chances are right, and it seldom blames a healthy server."""

import random
from itertools import product
from math import comb

import pytest

from engine.doctor.servers.sampling import cells, fisher


def test_two_servers_of_one_distribution_are_seldom_called_different() -> None:
    """A healthy server would be blamed for its sampling: one study in 10,000 may be."""
    draw, least = random.Random(1), 1.0
    for _ in range(40):
        answers = [
            [draw.choices("abcdefghij", [30, 20, 10, 5, 5, 5, 5, 5, 5, 5], k=3) for _ in range(60)] for _ in "12"
        ]
        table = list(cells(*answers))
        least = min(least, *(cell.chance * len(table) for cell in table))
    assert least > 1e-3
    always = [["a", "a", "a"]] * 60
    assert min(cell.chance for cell in cells(answers[0], always)) < 1e-12
    assert not list(cells(always, always))


def test_the_exact_test_is_exact() -> None:
    """Its chance of a false alarm would not be what the report says."""
    for num_one, num_other in product((3, 5), (4, 6)):
        for total in range(num_one + num_other + 1):
            ways = {a: comb(num_one, a) * comb(num_other, total - a) for a in range(num_one + 1) if total - a >= 0}
            for a in (a for a, num in ways.items() if num):
                tails = [sum(n for i, n in ways.items() if keep(i)) for keep in (a.__le__, a.__ge__)]
                wanted = min(1, 2 * min(tails) / comb(num_one + num_other, total))
                assert fisher(a, total - a, num_one, num_other) == pytest.approx(wanted)
