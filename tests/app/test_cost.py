"""The cost line tells what the formula says, and saves nothing that a plain lane would have saved too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cost import MAX_DOLLARS, Cost, check_dollars, costs, saving
from app.texts import cost_line
from engine.errors import UsageError
from engine.metrics import cost_per_million, lane_metrics, ratio
from engine.recordings.recording import events_of
from tests.helpers.races import recordings

dollars = st.none() | st.floats(0.001, 1000)


@given(recordings(), st.floats(0, MAX_DOLLARS))
def test_every_lane_is_charged_by_its_own_speed(recording, price):
    """One price, one formula: a lane's cost is that of its own tokens a second."""
    events = events_of(recording)
    assert [(each.lane, each.dollars) for each in costs(events, price)] == [
        (lane, cost_per_million(lane_metrics(events, lane).tokens_per_s, price))
        for lane in ("plain", "baseline", "speculative")
    ]


@given(dollars, dollars, dollars)
def test_the_saving_is_against_the_cheapest_plain_decoding(plain, baseline, speculative):
    """Against the dearer of two lanes that both draft nothing, speculation would save what it does not."""
    found = saving([Cost("plain", plain), Cost("baseline", baseline), Cost("speculative", speculative)])
    known = [each for each in (plain, baseline) if each is not None]
    assert found == (None if plain is None or speculative is None else 1 - ratio(speculative, min(known)))


def test_the_line_on_the_page_says_all_of_it():
    """Three costs under the names of their lanes, and what speculation saves."""
    line = cost_line([Cost("plain", 4.0), Cost("baseline", 5.0), Cost("speculative", 1.0)])
    assert [
        words in line
        for words in ("$4.00</b> plain", "$5.00</b> baseline", "$1.00</b> speculative", "75.0 % less than plain")
    ] == [True] * 4
    assert cost_line(None) != line


@pytest.mark.parametrize("value", [-1, MAX_DOLLARS * 2, float("nan"), "ten", True, None])
def test_a_price_that_is_none_is_refused(value):
    """A browser sends what it likes; a visitor is told the limits."""
    with pytest.raises(UsageError, match="from 0 to 1000000"):
        check_dollars(value)
