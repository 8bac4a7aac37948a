"""A race on this machine: what is measured before it, once and again."""

from __future__ import annotations

import pytest
import torch

from engine.target.target import StaticTarget
from tests.helpers.trained import race, trained


def test_a_later_race_keeps_the_best(monkeypatch):
    """One busy moment would decide the widths of all races to come."""
    first = race()
    measure = StaticTarget.time_widths

    def slow(target, *given, **more):
        return {width: value + 1.0 for width, value in measure(target, *given, **more).items()}

    monkeypatch.setattr(StaticTarget, "time_widths", slow)
    second = race()
    assert second.widths.seconds == first.widths.seconds  # each second longer: nothing was learned

    def quick(target, *given, **more):
        return dict.fromkeys(measure(target, *given, **more), 1e-9)

    monkeypatch.setattr(StaticTarget, "time_widths", quick)
    assert set(race().widths.seconds.values()) == {1e-9}
    trained().attached(
        ("seconds", second.widths.length, tuple(sorted(second.widths.seconds)), torch.get_num_threads()), dict
    ).clear()


def test_every_width_of_a_race_runs_untimed_before_it(monkeypatch):
    """The first step of a lane would be timed cold."""
    ran: set[int] = set()
    step = StaticTarget._step
    monkeypatch.setattr(StaticTarget, "_step", lambda target, width: ran.add(width) or step(target, width))
    for _ in range(2):
        ran.clear()
        made = race()
        assert ran >= {width for lane in made.lanes.values() for width in lane.target.widths}


def test_prefills_are_warmed_once(monkeypatch):
    """Every lane of every race would run its whole prompt untimed before it may start; or the first of a size be timed
    cold."""
    made = race()
    size = len(made.prompt.token_ids) - 1
    assert size in made.prepared.kernels.warmed
    target = StaticTarget(made.prepared, made.widths.length, (4,))
    sizes = []
    prefill = StaticTarget._prefill
    monkeypatch.setattr(StaticTarget, "_prefill", lambda target, ids: sizes.append(len(ids)) or prefill(target, ids))
    made.prepared.kernels.warmed.discard(size)
    for _ in range(2):
        target.warm(made.prompt.token_ids[:-1])
    assert sizes == [size] and target.length == 0


@pytest.mark.parametrize("fill", [0.0, float("nan")])
def test_a_new_sequence_begins_with_zeros(fill):
    """Memory that is not cleared can hold NaN, and NaN times a masked weight of 0 is NaN."""
    made = race()
    size = (1, made.prepared.shape.num_kv_heads, made.widths.length, made.prepared.shape.head_dim)
    junk = [torch.full(size, fill, dtype=made.prepared.dtype) for _ in range(64)]
    del junk
    target = StaticTarget(made.prepared, made.widths.length, (4,))
    assert all(bool((side == 0).all()) for layer in target.kv for side in layer)
