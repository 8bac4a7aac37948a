"""The choice of widths: only what was probed exact, never wider than it pays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.exactness.widths import DOMINATED, WidthClasses, candidates, plan
from engine.spec import MAX_K, MAX_WIDTH


@st.composite
def races(draw):
    """(what the probe found, step seconds of each candidate, k, the width asked for)."""
    k = draw(st.integers(0, MAX_K))
    width = draw(st.just("auto") | st.integers(k + 1, MAX_WIDTH))
    widths = candidates(k, width)
    home = {w: draw(st.integers(-1, 2)) for w in widths}
    classes = tuple(c for c in (tuple(w for w in widths if home[w] == i) for i in range(3)) if c)
    found = WidthClasses(classes, tuple(w for w in widths if home[w] == -1))
    return found, {w: draw(st.floats(1e-3, 1)) for w in widths}, k, width


@given(st.integers(0, MAX_K), st.just("auto") | st.integers(1, MAX_WIDTH), st.booleans())
def test_candidates_hold_what_may_be_needed(k, width, fine):
    """The width asked for, or the one a full draft needs, would never be probed."""
    widths = candidates(k, width, fine)
    assert set(candidates(k, width)) <= set(widths) and (not fine or k < 4 or 6 in widths)
    assert list(widths) == sorted(set(widths)) and widths[0] == 1 and widths[-1] <= MAX_WIDTH
    assert k + 1 in widths and (width == "auto" or width in widths)
    assert len(widths) <= (14 if fine else 10)


@given(races())
def test_exact_lanes_mix_only_widths_of_one_class(race):
    """Lanes would be promised equal and differ in their last bits."""
    found, seconds, k, width = race
    chosen = plan(found, seconds, k, width)
    assert set(chosen.step_widths) <= set(found.of(chosen.width)) == set(chosen.widths_class)
    assert max(chosen.step_widths) == chosen.width > k
    assert chosen.exact == (chosen.width not in found.unstable)
    if width == "auto":
        assert chosen.exact == any(w > k and w not in found.unstable for w in seconds)
    else:
        assert chosen.step_widths == (width,)


@given(races())
def test_no_step_runs_at_a_width_that_a_wider_one_beats(race):
    """A step without a draft would run slower than one with."""
    found, seconds, k, _ = race
    steps = plan(found, seconds, k).step_widths
    assert not any(seconds[wide] < DOMINATED * seconds[narrow] for narrow in steps for wide in steps if wide > narrow)


@given(races())
def test_the_plain_lane_is_the_fastest_and_the_note_says_what_is_promised(race):
    """The headline ratio would be taken against a slow baseline; a race that is not exact would look as if it were."""
    found, seconds, k, width = race
    chosen = plan(found, seconds, k, width)
    assert seconds[chosen.plain_width] == min(s for w, s in seconds.items() if w <= 8)
    assert chosen.exact == ("not exact" not in chosen.note) and str(chosen.width) in chosen.note


@given(races(), st.integers(1, MAX_WIDTH))
def test_a_width_belongs_to_one_class(race, width):
    """An unstable width would be taken for one of a class."""
    found = race[0]
    assert width in found.of(width)
    assert all(found.of(other) == found.of(width) for other in found.of(width))
