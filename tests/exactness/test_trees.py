"""Trees of drafts: whatever they hold, the tokens, the bits of their logits and the hidden states are those of plain
decoding; and every fault that a tree's step can have is found."""

import ctypes
import random
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import decode as loop
from engine.core.decode import decode
from engine.core.errors import DrafterError
from engine.core.events import Failed, Step
from engine.core.interfaces import Draft
from engine.core.sampling.accept import Coupled
from engine.core.sampling.sampler import Sampler
from engine.core.spec import SamplingParams
from engine.exactness.probe import probe
from engine.exactness.widths import WidthClasses
from engine.kernels.cpu import build as build_module
from engine.runner.forward import Buffers
from engine.runner.prepared import Prepared
from engine.runner.target import StaticTarget
from engine.text import StopAt
from tests.helpers import native_kernels
from tests.helpers.native_kernels import NAMES, needs_kernels, prepared
from tests.helpers.tiny import threads
from tests.helpers.tree_drafts import LAYERS, TreeDrafter

pytestmark = needs_kernels
LENGTH, WIDTHS, NUM_TOKENS = 96, (1, 4, 8, 16), 40


class Lane(NamedTuple):
    """What a lane committed: tokens, a checksum of each one's row of logits, the hidden states between them, tokens per
    step, and whether each step kept a path of its tree."""

    token_ids: list[int]
    checksums: list[int]
    hidden: torch.Tensor
    per_step: float
    keeps_paths: bool


def lane(model: Prepared, drafter: TreeDrafter | None, prompt: Sequence[int], params: SamplingParams) -> Lane:
    """One lane of a race; without a drafter, plain."""
    target = StaticTarget(model, LENGTH, WIDTHS, LAYERS)
    assert target.takes_trees
    drafter = drafter or TreeDrafter((), 0, 1)
    rule, ending = Coupled(Sampler(params, model.vocab_size, model.kernels)), StopAt(params, frozenset(), None)
    k = WIDTHS[-1] - 1 if drafter._text else 0
    events = list(decode(target, drafter, rule, prompt, ending, params.max_new_tokens, k, audit=True))
    assert not [event for event in events if isinstance(event, Failed)]
    steps = [event for event in events if isinstance(event, Step)]
    paths = all(step.num_accepted == len(step.kept) == len(step.token_ids) - 1 for step in steps[:-1])
    ids, sums = ([x for step in steps for x in getattr(step, name)] for name in ("token_ids", "checksums"))
    return Lane(ids, sums, torch.cat(drafter.hidden), len(ids) / len(steps), paths)


def both(model: Prepared, seed: int, temperature: float = 0.0) -> tuple[Lane, Lane]:
    """The plain lane and one with trees, after a prompt whose length the seed decides."""
    draw = random.Random(seed)
    prompt = [draw.randrange(model.vocab_size) for _ in range(draw.randint(1, LENGTH - NUM_TOKENS - WIDTHS[-1]))]
    params = SamplingParams(temperature, seed=seed, max_new_tokens=NUM_TOKENS)
    plain = lane(model, None, prompt, params)
    return plain, lane(model, TreeDrafter(plain.token_ids, seed, model.vocab_size), prompt, params)


def same(plain: Lane, trees: Lane) -> bool:
    num = min(len(plain.hidden), len(trees.hidden))
    return trees.keeps_paths and plain[:2] == trees[:2] and torch.equal(plain.hidden[:num], trees.hidden[:num])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**30), temperature=st.sampled_from([0.0, 0.7, 1.2]))
def test_trees_commit_what_plain_decoding_does(name: str, seed: int, temperature: float) -> None:
    """A row that saw a sibling, another place or window would round otherwise, and some day say another token."""
    plain, trees = both(prepared(name), seed, temperature)
    assert same(plain, trees) and trees.per_step > 1.5


@pytest.mark.parametrize("num_threads", [2, 3])
def test_with_several_threads(num_threads: int) -> None:
    """Rows are shared out among threads: one of them might forget the tree."""
    with threads(num_threads):
        assert same(*both(prepared("mistral"), 5))


def in_source(file: str, right: str, wrong: str) -> Callable[[pytest.MonkeyPatch, Path], None]:
    """A fault in the compiled kernels."""

    def plant(patch: pytest.MonkeyPatch, folder: Path) -> None:
        for path in (*build_module.FOLDER.glob("*.h"), *build_module.FOLDER.glob("[bs]*.c")):  # bytes.c, step.c
            shutil.copy(path, folder)
        text = (folder / file).read_text()
        assert text.count(right) == 1
        (folder / file).write_text(text.replace(right, wrong))
        patch.setattr(build_module, "FOLDER", folder)
        patch.setattr(build_module, "FLAGS", ("-O1", *build_module.FLAGS[1:]))  # the same bits, compiled in a third
        path, _ = build_module._kept([shutil.which("cc") or "gcc"])
        patch.setattr(native_kernels, "_of", lambda variant: ctypes.CDLL(str(path)))

    return plant


def in_loop(owner: Any, name: str, wrong: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch, Path], None]:
    """A fault in Python. wrong: gets what was there before, then the arguments."""

    def plant(patch: pytest.MonkeyPatch, folder: Path) -> None:
        right = getattr(owner, name)
        patch.setattr(owner, name, lambda *arguments, **more: wrong(right, *arguments, **more))

    return plant


def keys_only(right: Any, target: StaticTarget, rows: Sequence[int]) -> None:
    values = [side.clone() for _, side in target.kv]
    right(target, rows)
    for (_, side), before in zip(target.kv, values, strict=True):
        side.copy_(before)


SLOTS = "a->at + row + 1"
COMPILED = (
    *("a sibling leaks", "a row does not see itself", "slots for positions"),
    *("a window cut by slots", "keys by slot", "values by slot"),
)
FAULTS = {
    "a sibling leaks": in_source(
        "attention.h",
        "tree->path[row][depth] = (uint8_t)row;",
        "tree->path[row][depth] = (uint8_t)row; if (depth > 0) tree->path[row][depth - 1] = (uint8_t)(row - 1);",
    ),
    "a row does not see itself": in_source(
        "attention.h",
        "a->tree->depth[a->base + row] : row) + 1;",
        "a->tree->depth[a->base + row] - (row > 0) : row) + 1;",
    ),
    "slots for positions": in_source("step.c", "(tree ? tree->depth[row] : row) * dim / 2", "row * dim / 2"),
    "a window cut by slots": in_source(
        "attention.h",
        "a->window > 0 && of.to[i] > a->window ? of.to[i] - a->window : 0;",
        f"a->window > 0 && {SLOTS} > a->window ? {SLOTS} - a->window : 0;",
    ),
    "keys by slot": in_source(
        "attention.h", "(column + j < of->to[i] ? place(of, i, column + j) : 0)", "least(column + j, S - 1)"
    ),
    "values by slot": in_source("attention.h", "values + place(of, i, column) * dim + e", "values + column * dim + e"),
    "another parent": in_loop(
        Buffers, "follow", lambda right, kept, rows, width: right(kept, tuple(max(0, row - 1) for row in rows), width)
    ),
    "the path is not moved": in_loop(StaticTarget, "keep", lambda right, target, rows: None),
    "values are not moved": in_loop(StaticTarget, "keep", keys_only),
    "hidden states of other nodes": in_loop(
        loop, "_decided", lambda right, rows, acceptance: rows[: len(acceptance.token_ids)]
    ),
    "a child of another row": in_loop(
        Draft,
        "after",
        lambda right, draft, row, token: next(
            (i for i, token_id in enumerate(draft.token_ids, 1) if token_id == token and i > row), None
        ),
    ),
}


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=[pytest.mark.slow] if name in COMPILED else []) for name in FAULTS]
)
def test_a_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A comparison that does not notice it proves nothing about trees."""
    FAULTS[fault](monkeypatch, tmp_path)
    prepared.cache_clear()  # a model keeps the library that it was made with
    try:
        assert any(not same(*both(prepared("gemma3"), seed)) for seed in range(3))
    finally:
        prepared.cache_clear()


@pytest.mark.parametrize("fault", [*COMPILED, "another parent", "the path is not moved", "values are not moved"])
def test_the_probe_finds_a_fault(fault: str, few_rows: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lanes with trees would promise bits on a machine where they have others."""
    assert set(WIDTHS) in map(set, without_a_fault().classes)
    FAULTS[fault](monkeypatch, tmp_path)
    prepared.cache_clear()
    try:
        classes = probe(StaticTarget(prepared("gemma3"), LENGTH, WIDTHS))
    finally:
        prepared.cache_clear()
    assert set(WIDTHS) not in map(set, classes.classes), classes


@cache
def without_a_fault() -> WidthClasses:
    return probe(StaticTarget(prepared("gemma3"), LENGTH, WIDTHS))


def test_what_is_no_tree_ends_the_lane() -> None:
    """A parent behind its child would let a row see what follows it; two equal children, the wrong one be kept."""
    model = prepared("llama")
    params = SamplingParams(max_new_tokens=8)
    rule = Coupled(Sampler(params, model.vocab_size, model.kernels))

    class Odd(TreeDrafter):
        ids: tuple[int, ...] = (1, 2, 3)

        def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
            return Draft(self.ids, parents=self._text)

    for parents in ((0, 0), (0, 2, 1), (0, 0, 3), (-1, 0, 0), (0, 0, True), (0, 0, 0, 0)):
        target = StaticTarget(model, LENGTH, WIDTHS, LAYERS)
        *_, last = decode(target, Odd(parents, 0, 9), rule, [1, 2], StopAt(params, frozenset(), None), 8, 3)
        assert isinstance(last, Failed) and "tree" in last.message
    for parents in ((0, 0, 0), (0, 1, 1), (0, 0, 2)):
        assert loop._propose(Odd(parents, 0, 9), [1, 2], None, 3, 9).parents == parents
    Odd.ids = (1, 1, 3)
    with pytest.raises(DrafterError, match="tree"):
        loop._propose(Odd((0, 0, 0), 0, 9), [1, 2], None, 3, 9)
