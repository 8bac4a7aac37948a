"""Races of any steps for one drafter with a head, and all that it drafts in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from engine.interfaces import Draft
from tests.helpers.head_fixtures import VOCAB, features

K = 5
_IDS = st.integers(0, VOCAB - 1)
RACES = st.tuples(
    st.lists(_IDS, min_size=1, max_size=20),  # the prompt
    st.lists(
        st.tuples(st.integers(0, K), st.lists(_IDS, min_size=1, max_size=K + 1)), min_size=1, max_size=5
    ),  # the k of a step, what it commits
)
few = settings(max_examples=8)


def drafts(drafter: Any, race: Any, layers: Sequence[int]) -> Iterator[tuple[Draft, int, list[int], Tensor]]:
    """Every draft of a race on formats/target and of the step after it, with its k, all tokens before it, and the
    target's states of all but the last of these."""
    prompt, steps = race
    aux = features([*prompt, *(token for _, tokens in steps for token in tokens)], layers)
    committed, new = list(prompt), None
    drafter.prefill(committed, aux[: len(prompt) - 1])
    for k, tokens in [*steps, (K, [])]:
        known = len(committed) - 1
        yield drafter.propose(committed, new, k), k, committed, aux[:known]
        committed += tokens
        new = aux[known : len(committed) - 1]
