"""Hybrid models with linear attention: a rollback after which nothing is left of what was rejected."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import UsageError
from engine.exactness.operators import same_bits
from engine.runner.target import StaticTarget
from tests.helpers.tiny import DELTA, DTYPES, HYBRIDS, LENGTH, prepared, random_ids

VOCAB = DELTA["vocab_size"]
names, dtypes = st.sampled_from(list(HYBRIDS)), st.sampled_from(DTYPES)


def target_of(name: str, dtype: torch.dtype = torch.float32) -> StaticTarget:
    return StaticTarget(prepared(name, dtype), LENGTH, (1, 2, 4, 8))


def memory(target: StaticTarget) -> list[torch.Tensor]:
    """All that a target remembers of its tokens: states and last inputs at the pointer, keys and values before it."""
    layers = [layer for i, layer in enumerate(target.kv) if i not in target.prepared.shape.linear.layers]
    return target.states() + [side[:, :, : target.length].clone() for layer in layers for side in layer]


def equal(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(ours) > 0 and all(same_bits(a, b) for a, b in zip(ours, theirs, strict=True))


@settings(max_examples=16)
@given(
    names,
    dtypes,
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 7)), min_size=1, max_size=7),
    st.integers(0, 9),
)
def test_any_accept_counts_leave_the_bits_of_decoding_token_by_token(name, dtype, num_prefill, steps, seed):
    """A rejected token has changed the state of every linear layer; whatever is left of it makes later tokens
    others."""
    width = 8
    ours, theirs = target_of(name, dtype), target_of(name, dtype)
    ids = random_ids(num_prefill + 64, VOCAB, seed)
    for target in (ours, theirs):
        target.extend(ids[:num_prefill], 0)
    done = num_prefill
    for index, (num, rejected) in enumerate(steps):
        kept = max(1, num - rejected)
        tokens = [*ids[done : done + kept], *random_ids(num - kept, VOCAB, seed + 100 + index)]
        rows = ours.extend(tokens, kept, width=width)[0].clone()
        ours.rollback(done + kept)
        others = torch.cat([theirs.extend([token], 1, width=width)[0].clone() for token in ids[done : done + kept]])
        done += kept
        assert same_bits(rows, others) and equal(memory(ours), memory(theirs))


def test_a_sequence_says_how_far_it_goes_back():
    """It would go on from the state that another position left at that place of the ring."""
    target = target_of("qwen3_next")
    target.extend(random_ids(100, VOCAB, 0), 0)
    for i in range(1, 4):
        target.extend(random_ids(8, VOCAB, i), 8)
    target.rollback(116)
    with pytest.raises(UsageError, match=r"back to 115 tokens.*from token 116 on"):
        target.rollback(115)
    target.rollback(0)
    assert all(bool((part == 0).all()) for part in target.states())
