"""Random races on the fake target, with their truth: for properties of the loop."""

from hypothesis import strategies as st

from tests.helpers.fakes import VOCAB, Empty, FakeChoice, FakeTarget, run


@st.composite
def races(draw):
    """Keyword arguments of a lane and the truth: what the loop writes with the empty drafter."""
    prompt = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6))
    lane = {
        "prompt": prompt,
        "max_new_tokens": draw(st.integers(1, 24)),
        "k": draw(st.integers(0, 7)),
        "end_ids": draw(st.lists(st.integers(0, VOCAB - 1), max_size=2)),
        "sample": FakeChoice(draw(st.sampled_from([0.0, 0.8])), draw(st.integers(0, 9))),
    }
    table = draw(st.integers(0, 3))
    return lane, table, list(run(FakeTarget(table), Empty(), **lane, audit=True))
