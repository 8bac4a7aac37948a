"""Recordings that strangers made to keep the page busy: each is drawn, or refused in a sentence, in a moment."""

from __future__ import annotations

import pytest

from tests.helpers.hostile_recordings import FAMILIES, take

CPU_S = 3.0
"""Of the processor; generous, since a busy machine takes three times as long. What these sizes are to catch, quadratic
work, takes minutes. docs/measurements.md has the times at all sizes."""


@pytest.mark.parametrize("name", FAMILIES)
def test_no_recording_keeps_the_page_busy(name) -> None:
    """One anonymous request would take a processor for minutes, and a few dozen the page from everybody."""
    family = FAMILIES[name]
    taken = take(family.text(family.size))
    assert taken.cpu_s < CPU_S
    assert family.refused in taken.refused and bool(family.refused) == bool(taken.refused), taken.refused
    assert len(taken.refused) < 400
