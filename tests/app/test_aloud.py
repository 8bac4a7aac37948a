"""The stage's line to read aloud, without a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.pure_js import pure_js


@pytest.fixture(scope="module")
def pure() -> Iterator[Callable[..., Any]]:
    with pure_js("shows/aloud.js") as call:
        yield call


@given(
    moment=st.sampled_from(["before", "waiting", "running", "over"]),
    sense=st.sampled_from(["faster", "slower", "even", "none"]),
    kind=st.sampled_from(["identical_bits", "near_tie", "same_text", ""]),
    tokens=st.tuples(st.integers(0, 400), st.integers(0, 400)),
    ratio=st.floats(0.1, 20),
    per_step=st.floats(1, 16) | st.just(0),
    loops=st.booleans(),
)
def test_the_line_says_what_the_board_says(pure: Any, moment, sense, kind, tokens, ratio, per_step, loops):
    """A speaker who reads out "undefined", a gain that is a loss or a loop's, or that texts are the same which are
    not."""
    shown = f"{ratio:.2f}×"
    race = {"moment": moment, "sense": sense, "kind": kind, "tokens": tokens, "total": max(tokens), "ratio": shown,
            "perStep": per_step, "loops": loops}  # fmt: skip
    said = pure("aloud", race)
    assert said.endswith((".", "?")) and not re.search("undefined|NaN|null", said)
    assert ("slower" in said) == (moment == "over" and sense == "slower")
    if moment == "over":
        assert said.startswith("Not the same text") == (kind in ("near_tie", ""))
        assert (f"{shown} as fast" in said) == (sense in ("faster", "slower"))
        assert ("repeats itself" in said) == (loops and sense == "faster")
    numbers = {float(each) for each in re.findall(r"\d+(?:\.\d+)?", said)}
    known = {*map(float, tokens), float(max(tokens)), float(shown[:-1]), round(per_step, 2)}
    known.add(round(per_step / float(shown[:-1]), 2))
    assert all(any(abs(number - other) < 0.011 for other in known) for number in numbers), said
