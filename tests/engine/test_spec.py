"""Configuration: checked when made, refused in words that name the value and the limits."""

import re
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import UsageError
from engine.core.spec import (
    MAX_AUTO_K,
    MAX_K,
    MAX_LANES,
    MAX_NEW_TOKENS,
    MAX_WIDTH,
    ROLES,
    RULES,
    LaneSpec,
    RaceSpec,
    SamplingParams,
)

values = st.integers() | st.floats() | st.booleans() | st.none() | st.text(max_size=3)
numbers = values | st.sampled_from([10**400, -(10**400), 1j, "1", b"1", (), []])


LIMITS = {
    "temperature": "from 0 to 100|at least 0.001",
    "top_p": "above 0 and at most 1",
    "top_k": "from 0 to",
    "seed": f"from 0 to {2**63 - 1}",
    "max_new_tokens": f"from 1 to {MAX_NEW_TOKENS}",
    "stop": "a tuple of strings|up to 16 strings of 1 to 200 characters",
}
stops = st.sampled_from([("",), ("x",) * 17, ("x" * 201,), (1,)])


@given(st.sampled_from(sorted(LIMITS)), numbers | st.sampled_from([-0.1, 1e-4, 1.01, 2**63]) | stops)
def test_sampling_params_hold_only_what_can_be_sampled_with(name, value):
    """A NaN temperature or a negative length would reach the loop; or a refusal not say what to change."""
    try:
        params = SamplingParams(**{name: value})
    except UsageError as error:
        assert re.match(rf"{name} .*({LIMITS[name]})", str(error))
        return
    assert type(params.temperature) in (int, float) and (params.temperature == 0 or 1e-3 <= params.temperature <= 100)
    assert type(params.top_p) in (int, float) and 0 < params.top_p <= 1
    assert type(params.top_k) is int and params.top_k >= 0
    assert type(params.seed) is int and 0 <= params.seed < 2**63
    assert type(params.max_new_tokens) is int and 1 <= params.max_new_tokens <= MAX_NEW_TOKENS
    assert params.stop == ()


@given(
    numbers | st.just("auto"),
    numbers,
    st.sampled_from(["none", "ngram", ""]) | numbers,
    st.sampled_from([*RULES, "classic"]) | numbers,
)
def test_a_lane_always_fits_its_draft(k, width, drafter, rule):
    """A step with k drafts would not fit its width, or run under a rule that does not exist."""
    try:
        lane = LaneSpec("a", drafter=drafter, k=k, width=width, rule=rule)
    except UsageError:
        return
    assert (lane.k == "auto" or (type(lane.k) is int and 0 <= lane.k <= MAX_K)) and lane.rule in RULES
    assert 0 <= lane.max_drafts <= (MAX_AUTO_K if lane.k == "auto" else lane.k)
    holds = type(lane.width) is int and lane.max_drafts + 1 <= lane.width <= MAX_WIDTH
    assert lane.width in ("auto", "fastest") or holds
    assert lane.drafter == "none" or lane.max_drafts > 0


@given(st.sampled_from(["plain", "baseline", "speculative", "a"]), st.sampled_from(["", *ROLES]))
def test_a_role_follows_from_the_name_and_never_contradicts_it(name, role):
    """A lane called baseline that drafts would be what the others are compared with, or an old spec read otherwise."""
    reserved = name in ("plain", "baseline")
    if reserved and role not in ("", name):
        with pytest.raises(UsageError, match=f"the name '{name}'"):
            LaneSpec(name, role=role)
    else:
        role = name if reserved else role or "speculative"
        assert LaneSpec(name, role=role).role == role
        for only, lane in (("speculative", {"drafter": "ngram", "k": 3}), ("plain", {"width": "fastest"})):
            with nullcontext() if role == only else pytest.raises(UsageError, match=f"a {role} lane"):
                LaneSpec(name, role=role, **lane)


@given(st.lists(st.sampled_from(ROLES), max_size=20))
def test_a_race_has_one_lane_of_the_roles_that_others_are_compared_with(roles):
    """With two baselines a verdict would not say which; more lanes than are read could not be saved."""
    lanes = tuple(LaneSpec(str(i), role=role) for i, role in enumerate(roles))
    if 1 <= len(lanes) <= MAX_LANES and roles.count("plain") <= 1 and roles.count("baseline") <= 1:
        assert RaceSpec(lanes).named("speculative") == [lane.name for lane in lanes if lane.role == "speculative"]
    else:
        with pytest.raises(UsageError, match=r"a race (needs from 1 to 16 lanes|has one (plain|baseline) lane)"):
            RaceSpec(lanes)
