"""Drafts that stay on the device until they are whole, by direct calls: token for token those that are picked row by
row."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.choice.sampler import Sampler
from engine.drafters.device_heads import DeviceDFlashDrafter, DeviceEagle3Drafter, drafter_of
from engine.errors import RaceError
from engine.heads.loading import load_head
from engine.heads.names import parse_name
from engine.progress import silent
from tests.helpers.dispatch import Watch
from tests.helpers.head_files import published
from tests.helpers.head_fixtures import (
    FIXTURES,
    FORMATS,
    HEADS,
    context,
    formats_target,
    hidden_rows,
    raced,
    trained_target,
)
from tests.helpers.tapes import record_fixed_calls
from tests.helpers.tiny import PACKED

K = 5
MADE = {"eagle3": DeviceEagle3Drafter, "dflash": DeviceDFlashDrafter}
PUBLISHED = ("yuhuili", "yuhuili_spec")
WHICH = (
    ("eagle3", "trained"),
    ("dflash", "trained"),
    ("eagle3", "formats"),
    ("dflash", "formats"),
    *(("eagle3", name) for name in PUBLISHED),
)
few = settings(max_examples=8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("heads")
    return {name: f"{published(name, place)}{'#aux=2,3,4' if name == 'yuhuili' else ''}" for name in PUBLISHED}


@cache
def pair(kind: str, source: str, temperature: float, dtype: str, whole: bool) -> tuple[Any, Any]:
    """(the drafter whose drafts stay on the device, the other), of one head."""
    loaded = (trained_target if whole else formats_target)(dtype)
    head = load_head(kind, parse_name(kind, source), loaded, silent)
    here = context(loaded, K, temperature=temperature)
    ours, theirs = (drafter_of(head, here, on_device) for on_device in (True, False))
    assert type(ours) is MADE[kind] and not isinstance(theirs, MADE[kind])
    return ours, theirs


def source_of(kind: str, name: str, folders: dict[str, str]) -> str:
    return {"trained": str(HEADS[kind]), "formats": str(FORMATS / kind)}.get(name) or folders[name]


@pytest.mark.parametrize(("kind", "name"), WHICH, ids=lambda x: str(x))
@given(
    prompt=st.lists(st.integers(3, 500), min_size=1, max_size=20),
    steps=st.lists(
        st.tuples(st.integers(0, K), st.lists(st.integers(3, 500), min_size=1, max_size=K + 1), st.integers(0, K)),
        min_size=1,
        max_size=6,
    ),
    temperature=st.sampled_from([0.0, 0.9]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
@few
def test_a_draft_on_the_device_is_the_same_draft(folders, kind, name, prompt, steps, temperature, dtype):
    """Heads would have another acceptance on CUDA: a place, a position, a token id or what is fed on would be off, and
    only speed would tell."""
    drafters = pair(kind, source_of(kind, name, folders), temperature, dtype, name == "trained")
    size = drafters[0].buffers.hidden.shape[1] // len(drafters[0].hidden_layers)
    committed, new = list(prompt), None
    everything = [*prompt, *(t for _, tokens, _ in steps for t in tokens)]
    hidden = hidden_rows(drafters[0], everything, size)
    assert hidden is not None
    hidden = hidden.to(drafters[0].buffers.hidden)
    for drafter in drafters:
        drafter.prefill(prompt, hidden[: len(prompt) - 1])
    for k, tokens, stop in [*steps, (K, [], 0)]:
        if stop:
            told: list[list[float]] = [[], []]
            ours, theirs = (
                d.propose_while(
                    committed, new, k, lambda _, m, said=said, stop=stop: said.append(m) or len(said) < stop
                )
                for d, said in zip(drafters, told, strict=True)
            )
        else:
            ours, theirs = (d.propose(committed, new, k) for d in drafters)
            told = [[], []]
        assert ours == theirs
        assert told[0] == pytest.approx(told[1], abs=1e-5)
        known = len(committed) - 1
        committed += tokens
        new = hidden[known : len(committed) - 1]


@pytest.mark.parametrize("kind", HEADS)
def test_a_draft_of_k_tokens_is_read_once_and_never_asks_the_host(kind, monkeypatch):
    """Each token of a chain would wait for the host, which takes as long as drafting it."""
    drafter, _ = pair(kind, str(HEADS[kind]), 0.9, "float32", True)
    prompt = list(range(7, 20))
    drafter.prefill(
        prompt, hidden_rows(drafter, prompt[:-1], drafter.buffers.hidden.shape[1] // len(drafter.hidden_layers))
    )
    reads, read = [], drafter._picks._read
    monkeypatch.setattr(drafter._picks, "_read", lambda values: reads.append(1) or read(values))
    calls = (
        [*drafter._catch_up.values(), drafter._whole_chain, drafter._chain]
        if kind == "eagle3"
        else [*drafter._forward.values()]
    )
    for k in (K, K - 1):
        reads.clear()
        assert len(drafter.propose(prompt, None, k)) == k and reads == [1]
    for call in calls:
        with torch.inference_mode(), Watch() as watch:
            call()
        assert len(watch.seen) > 20


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("kind", HEADS)
def test_recorded_drafts_are_the_same(kind, temperature, monkeypatch):
    """A graph repeats what was done when it was captured: every draft would be that of one place."""
    loaded = trained_target()
    head = load_head(kind, parse_name(kind, str(HEADS[kind])), loaded, silent)
    prompt = json.loads((FIXTURES / "golden.json").read_text())["prompt_token_ids"]
    here = context(loaded, K, prompt, temperature)
    lanes = [raced(loaded, drafter_of(head, here, False), prompt, K, temperature)]
    tapes = record_fixed_calls(monkeypatch)
    drafter = drafter_of(head, here, True)
    num_made = len(tapes)
    lanes += [raced(loaded, drafter, prompt, K, temperature)]
    ours, theirs = ([(s.drafted, s.num_accepted, s.token_ids, s.checksums) for s in lane] for lane in lanes)
    assert ours == theirs and len({s.num_accepted for s in lanes[0]}) > 1
    assert len(tapes) == num_made + 1, "all but the target's were recorded before the race"


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_without_numbers_says_so(kind):
    """It would draft token -1, or look up a row of its embedding that there is not."""
    drafter, other = pair(kind, str(HEADS[kind]), 0.0, "float32", True)
    prompt = list(range(7, 20))
    rows = torch.full((len(prompt) - 1, drafter.buffers.hidden.shape[1]), torch.nan)
    for each in (drafter, other):
        each.prefill(prompt, rows)
        with pytest.raises(RaceError, match=r"not numbers \(NaN\)"):
            each.propose(prompt, None, 3)
        each.buffers.hidden.zero_()
        for side in (*each.buffers.keys, *each.buffers.values):
            side.zero_()


@pytest.mark.parametrize("kind", HEADS)
def test_what_must_be_picked_row_by_row_is(kind):
    """A rule that weighs drafts by their logits would get none."""
    loaded = trained_target()
    head = load_head(kind, parse_name(kind, str(HEADS[kind])), loaded, silent)
    made = context(loaded, K, temperature=1.0, keep_logits=True)
    assert type(drafter_of(head, made, True)) is type(drafter_of(head, made, False))


@pytest.mark.parametrize("kind", HEADS)
def test_top_p_is_picked_on_the_device_too(kind):
    """Each token of a draft would ask the host several times; or top-p be left out."""
    loaded, prompt = trained_target(), json.loads((FIXTURES / "golden.json").read_text())["prompt_token_ids"]
    head = load_head(kind, parse_name(kind, str(HEADS[kind])), loaded, silent)
    made = context(loaded, K, prompt, temperature=0.9)
    params = replace(made.params, top_k=30, top_p=0.8)
    made = replace(made, params=params, sample=Sampler(params, loaded.prepared.vocab_size, PACKED))
    drafters = [drafter_of(head, made, on_device) for on_device in (True, False)]
    assert type(drafters[0]) is MADE[kind]
    ours, theirs = ([(s.drafted, s.token_ids) for s in raced(loaded, drafter, prompt, K, 0.9)] for drafter in drafters)
    assert ours == theirs
