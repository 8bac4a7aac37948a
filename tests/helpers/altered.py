"""Recordings with one value changed by chance: for tests of what no file may break."""

import copy
from typing import Any

from hypothesis import strategies as st

OF_EVENTS = ("num_drafted", "wall_s", "copied")
OF_TABLES = ("tables", "table_parents", "table_pieces")
# Fields that an event, and a recording of schema 2, may have.
BESIDE = (*OF_TABLES, "costs", "oracles", "candidates", "promises")

NUMBERS = st.integers(-(2**64), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
JSON_VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def altered(draw: st.DrawFn, whole: st.SearchStrategy[Any]) -> Any:
    """One of these recordings with a value somewhere replaced, removed or added."""
    recorded = copy.deepcopy(draw(whole))
    at: Any = recorded
    while True:
        key = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not at[key] or not isinstance(at[key], (dict, list)) or draw(st.integers(0, 3)) == 0:
            break
        at = at[key]
    how = draw(st.sampled_from(["replace", "remove", "add"]))
    if how == "remove":
        del at[key]
    else:
        is_added = how == "add" and isinstance(at, dict)
        at[draw(st.sampled_from(OF_EVENTS + BESIDE)) if is_added else key] = draw(JSON_VALUES)
    return recorded
