"""Drafts that stay on the device until they are whole: token for token those that are picked row by row on the host."""

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.errors import RaceError
from engine.core.interfaces import Draft, Node
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.drafters.device_heads import DeviceDFlashDrafter, DeviceEagle3Drafter, drafter_of
from engine.drafters.draft_model import WIDTH, DeviceDraftModelDrafter, DraftModelDrafter
from engine.heads.names import parse_name
from engine.loading.load_head import load_head
from engine.progress import silent
from engine.runner.target import StaticTarget
from tests.helpers import tiny
from tests.helpers.heads import FORMATS, HEADS, formats_target, hidden_rows, published
from tests.helpers.tiny import random_ids
from tests.helpers.trained import context, trained

SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0, seed=5),
    "temperature": SamplingParams(temperature=0.8, seed=5),
    "top-k and top-p": SamplingParams(temperature=0.8, top_k=20, top_p=0.9, seed=5),
}
MADE = {"eagle3": DeviceEagle3Drafter, "dflash": DeviceDFlashDrafter, "draft_model": DeviceDraftModelDrafter}


def both(drafters: Any, committed: list[int], new: Any, k: int, stop: int) -> Any:
    """The draft of both drafters, which must be equal; stop: rated token by token, and given up after so many."""
    if not stop:
        ours, theirs = (drafter.propose(committed, new, k) for drafter in drafters)
        assert ours == theirs and len(ours) <= k
        return ours
    for drafter in drafters:
        drafter.begin(committed, new)
    node = Node()
    while node.depth < min(k, stop) and drafters[0].can_expand(node):
        assert drafters[1].can_expand(node)
        (ours,), (theirs,) = (drafter.expand([node], 2) for drafter in drafters)
        if not ours:
            assert not theirs
            break
        assert ours[0][0] == theirs[0][0] and ours[1][0] == -1
        if len(theirs) > 1:
            assert ours[0][1] - ours[1][1] == pytest.approx(theirs[0][1] - theirs[1][1], abs=1e-5)
        node = Node((*node.path, ours[0][0]), parent=node)
    return Draft(node.path)


# Draft models

K, NUM_IDS = 7, 190
# How tokens are picked knows nothing of the model that made the rows: each model with one rule, each rule on one.
PAIRS = [*zip(("gemma3", "qwen3_next", "qwen3_5"), SAMPLINGS, strict=True), *(("llama", which) for which in SAMPLINGS)]
up_to_k = st.integers(0, K)


@cache
def model_pair(name: str, dtype: torch.dtype, which: str) -> tuple[DeviceDraftModelDrafter, DraftModelDrafter]:
    """(the drafter on the device, the host's), over one model. The target's vocabulary is smaller."""
    prepared = tiny.prepared(name, dtype)
    sampler = Sampler(SAMPLINGS[which], NUM_IDS, prepared.kernels)
    ours, theirs = (StaticTarget(prepared, 256, (WIDTH,), reach=K) for _ in range(2))
    drafter = DeviceDraftModelDrafter(ours, sampler, NUM_IDS, K)
    drafter.warm()
    return drafter, DraftModelDrafter(theirs, sampler, NUM_IDS)


@pytest.mark.parametrize(("name", "which"), PAIRS)
@settings(max_examples=4)
@given(
    num_prompt=st.integers(1, 20),
    seed=st.integers(0, 999),
    steps=st.lists(st.tuples(up_to_k, up_to_k, st.integers(1, 4), up_to_k), min_size=1, max_size=8),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_a_draft_models_draft_is_the_hosts(name, which, num_prompt, seed, steps, dtype):
    """On CUDA acceptance would differ (a rejection, a linear state, a noise off), and only speed would tell."""
    drafters = model_pair(name, dtype, which)
    committed = random_ids(num_prompt, NUM_IDS, seed)
    for drafter in drafters:
        drafter.prefill(committed, None)
    for index, (k, num_accepted, num_new, stop) in enumerate([*steps, (K, 0, 1, 0)]):
        ours = both(drafters, committed, None, k, stop)
        assert len(ours) == min(k, stop or k) and drafters[0]._model.length == drafters[1]._model.length
        committed = [*committed, *ours.token_ids[:num_accepted], *random_ids(num_new, NUM_IDS, seed + index)]


# Heads

HEAD_K = 5
PUBLISHED = ("yuhuili", "yuhuili_spec")
WHICH = [(kind, place) for place in ("trained", "formats") for kind in HEADS] + [("eagle3", name) for name in PUBLISHED]


def ids(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(3, 500), min_size=1, max_size=most)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("heads")
    return {name: f"{published(name, place)}{'#aux=2,3,4' if name == 'yuhuili' else ''}" for name in PUBLISHED}


@cache
def head_pair(kind: str, source: str, temperature: float, dtype: str, is_trained: bool) -> tuple[Any, Any]:
    """(the drafter on the device, the host's), of one head."""
    loaded = (trained if is_trained else formats_target)(dtype)
    head = load_head(kind, parse_name(kind, source), loaded, silent)
    here = context(loaded, HEAD_K, temperature=temperature)
    ours, theirs = (drafter_of(head, here, on_device) for on_device in (True, False))
    assert type(ours) is MADE[kind] and not isinstance(theirs, MADE[kind])
    return ours, theirs


@pytest.mark.parametrize(("kind", "name"), WHICH, ids=str)
@settings(max_examples=5)
@given(
    prompt=ids(20),
    steps=st.lists(st.tuples(st.integers(0, HEAD_K), ids(HEAD_K + 1), st.integers(0, HEAD_K)), min_size=1, max_size=6),
    temperature=st.sampled_from([0.0, 0.9]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
def test_a_heads_draft_is_the_hosts(folders, kind, name, prompt, steps, temperature, dtype):
    """On CUDA acceptance would differ (a place, a token id or what is fed back off), and only speed would tell."""
    source = {"trained": str(HEADS[kind]), "formats": str(FORMATS / kind)}.get(name) or folders[name]
    drafters = head_pair(kind, source, temperature, dtype, name == "trained")
    size = drafters[0].buffers.hidden.shape[1] // len(drafters[0].hidden_layers)
    committed, new = list(prompt), None
    hidden = hidden_rows(drafters[0], [*prompt, *(t for _, tokens, _ in steps for t in tokens)], size)
    assert hidden is not None
    hidden = hidden.to(drafters[0].buffers.hidden)
    for drafter in drafters:
        drafter.prefill(prompt, hidden[: len(prompt) - 1])
    for k, tokens, stop in [*steps, (HEAD_K, [], 0)]:
        both(drafters, committed, new, k, stop)
        known = len(committed) - 1
        committed += tokens
        new = hidden[known : len(committed) - 1]


def test_what_must_be_picked_row_by_row_is():
    """A rule that weighs drafts by their logits would get none."""
    for kind, folder in HEADS.items():
        head = load_head(kind, parse_name(kind, str(folder)), trained(), silent)
        here = context(trained(), HEAD_K, temperature=1.0, keep_logits=True)
        assert type(drafter_of(head, here, True)) is type(drafter_of(head, here, False))


# What is not a number


@pytest.mark.parametrize("kind", MADE)
def test_a_drafter_without_numbers_is_an_error_in_words(kind, monkeypatch):
    """It would draft token -1, or look up a row of its embedding that does not exist."""
    prompt = list(range(7, 20))
    if kind == "draft_model":
        drafter, _ = model_pair("llama", torch.float32, "top-k and top-p")
        drafter.prefill(prompt, None)
        forward = drafter._forward
        monkeypatch.setattr(drafter, "_forward", lambda ids: (forward(ids)[0] * torch.nan, None))
        with pytest.raises(RaceError, match=r"not numbers \(NaN\)"):
            drafter.propose([*prompt, 4], None, 3)
        return
    head = load_head(kind, parse_name(kind, str(HEADS[kind])), trained(), silent)
    for on_device in (True, False):
        drafter = drafter_of(head, context(trained(), HEAD_K), on_device)
        drafter.prefill(prompt, torch.full((len(prompt) - 1, drafter.buffers.hidden.shape[1]), torch.nan))
        with pytest.raises(RaceError, match=r"not numbers \(NaN\)"):
            drafter.propose(prompt, None, 3)
