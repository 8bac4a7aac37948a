"""What a drafter must have and may have, and that `auto` treats a drafter the same whoever computes its rows: compiled
kernels, torch, or the device."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.choice.sampler import Sampler
from engine.drafters.auto import AutoDrafter
from engine.drafters.blend import Blend
from engine.drafters.device_heads import DeviceDFlashDrafter, DeviceEagle3Drafter
from engine.drafters.dflash import DFlashDrafter, HostDFlashDrafter
from engine.drafters.draft_model import DraftModelDrafter
from engine.drafters.eagle3 import Eagle3Drafter, HostEagle3Drafter
from engine.drafters.hybrid import HybridDrafter
from engine.drafters.ngram import NgramDrafter
from engine.drafters.synthetic import SyntheticDrafter
from engine.heads.loading import load_head
from engine.heads.names import parse_name
from engine.interfaces import Draft, Drafter
from engine.kernels.cpu.dflash import reason_against_block
from engine.kernels.cpu.eagle3 import reason_against_head
from engine.kernels.torch import TorchKernels
from engine.progress import silent
from tests.helpers.fakes import Fake, FakeTarget, run, tokens_of
from tests.helpers.head_fixtures import HEADS, context, trained_target
from tests.helpers.tiny import PACKED

K = 5
PROMPT = [7, 8, 9]
NUM_NEW = 90
STEP_S = [0.001 * (1 + 0.1 * num) for num in range(K + 1)]


# --- a drafter of one's own


class Repeats(Drafter):
    """All that a newcomer has to write."""

    def prefill(self, prompt_ids: Sequence[int], hidden: Any) -> None:
        pass

    def propose(self, token_ids: Sequence[int], hidden: Any, k: int) -> Draft:
        return Draft((token_ids[-1],) * k)


def test_prefill_and_propose_are_enough():
    """Whoever adds a drafter would find the other members one by one, each where something breaks for want of it."""
    lane: dict[str, Any] = {"prompt": [1, 2], "max_new_tokens": 30, "k": 4}
    truth = tokens_of(list(run(FakeTarget(), Fake(), **lane)))
    mine: list[Drafter] = [Repeats(), AutoDrafter(Repeats(), STEP_S), HybridDrafter(NgramDrafter(), Repeats())]
    mine += [AutoDrafter(mine[-1], STEP_S), SyntheticDrafter(truth, 0.7, 0, 32, cost=Repeats())]
    for drafter in mine:
        assert drafter.synthetic == isinstance(drafter, SyntheticDrafter)
        assert tokens_of(list(run(FakeTarget(hidden=True), drafter, **lane))) == truth


# --- heads: who computes the rows


def head_of(kind: str, dtype: str) -> Any:
    return load_head(kind, parse_name(kind, str(HEADS[kind])), trained_target(dtype), silent)


def natively(kind: str) -> str | None:
    """Why compiled kernels do not compute that head's rows here."""
    return (reason_against_head if kind == "eagle3" else reason_against_block)(head_of(kind, "bfloat16"))


def sampler() -> Sampler:
    here = context(trained_target(), K, temperature=0.8)
    return Sampler(here.params, here.loaded.prepared.vocab_size, PACKED)


MAKERS: dict[str, tuple[tuple[Callable[..., Any], str], ...]] = {
    "eagle3": (
        (HostEagle3Drafter, "bfloat16"),
        (Eagle3Drafter, "float32"),
        (DeviceEagle3Drafter, "float32"),
    ),
    "dflash": ((HostDFlashDrafter, "bfloat16"), (DFlashDrafter, "float32"), (DeviceDFlashDrafter, "float32")),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_constructor_computes_nothing(kind, monkeypatch):
    """Whoever derives from a class would have to know which of its fields the base already uses while it is made."""
    called: list[Any] = []
    monkeypatch.setattr(TorchKernels, "fixed", lambda self, function, *more: lambda: called.append(function))
    for make, dtype in MAKERS[kind]:
        if dtype == "bfloat16" and natively(kind):
            continue
        make(head_of(kind, dtype), context(trained_target(dtype), K, PROMPT, 0.8))
    assert not called


class Rows:
    """Rows of logits as a head might give them, by the place in the text of the token that they are for: most say what
    is to be written, surely or not."""

    def __init__(self, num_columns: int, target_ids: Sequence[int], seed: int) -> None:
        rng = random.Random(seed)
        size, generator = (len(PROMPT) + NUM_NEW + 2 * K, num_columns), torch.Generator().manual_seed(seed)
        self.table = torch.randint(0, 8, size, generator=generator).bfloat16() / 8
        columns = [rng.randrange(num_columns) for _ in self.table]
        self.truth = [target_ids[column] for column in columns[len(PROMPT) :]][:NUM_NEW]
        for row, column in zip(self.table, columns, strict=True):
            lead = rng.choice((0.25, 0.75, 1.25, 2.5, 3.5, 6.0))
            row[column if rng.random() < 0.4 + lead / 10 else rng.randrange(num_columns)] = 0.875 + lead

    def at(self, place: int) -> Tensor:
        return self.table[place]

    def block(self, place: int, num: int) -> Tensor:
        return self.table[place : place + num]


def give_rows(drafter: Any, rows: Rows) -> None:
    """From now on the drafter picks from these rows. Only what computes rows is replaced: between compiled kernels,
    torch and the device they differ by rounding."""
    if isinstance(drafter, HostDFlashDrafter):
        drafter._rows = RowsBlock(rows)
    elif isinstance(drafter, DeviceDFlashDrafter):

        def block() -> None:
            first, num = drafter._start + 1, drafter.max_k
            drafter._pick_on_device(rows.block(int(first), num), drafter.buffers.columns[:num], first)

        drafter._forward = dict.fromkeys(drafter._forward, block)
    elif isinstance(drafter, DFlashDrafter):
        drafter._forward = dict.fromkeys(drafter._forward, lambda: rows.block(int(drafter._start) + 1, drafter.max_k))
    elif isinstance(drafter, DeviceEagle3Drafter):

        def first() -> None:
            drafter._pointer.copy_(drafter._first)
            drafter._feed(rows.at(int(drafter._pointer) + 2))

        drafter._catch_up = dict.fromkeys(drafter._catch_up, first)
        drafter._chain = lambda: drafter._feed(rows.at(int(drafter._pointer) + 2))
    else:
        drafter._first_row = lambda start, stop: rows.at(stop + 1)
        drafter._next_row = lambda token_id, position: rows.at(position + 2)


class RowsBlock:
    """Blocks by a compiled call whose rows these are."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def draft(self, first: int, start: int, last_token: int, num: int) -> Tensor:
        return self.rows.block(start + 1, num)

    def absorb(self, start: int, stop: int) -> None:
        pass


class RowsModel:
    """A draft model whose rows these are."""

    def __init__(self, rows: Rows) -> None:
        self.rows, self.length = rows, 0

    def rollback(self, length: int) -> None:
        self.length = length

    def extend(self, token_ids: Sequence[int], num_logits: int) -> tuple[Tensor, None]:
        self.length += len(token_ids)
        return self.rows.block(self.length - len(token_ids) + 1, num_logits), None


def decisions(drafter: Any, truth: Sequence[int]) -> list[tuple[int, ...]]:
    """What `auto` drafts, step by step, on a clock on which every look takes as long."""
    ticks = count()
    auto = AutoDrafter(drafter, STEP_S, clock=lambda: next(ticks) * 1e-5)
    auto.calibrate(PROMPT, None)
    auto.prefill(PROMPT, None)
    assert [type(part) for part in auto._parts] == [Blend]
    drafted, done = [], 0
    while done < len(truth):
        ids = auto.propose((*PROMPT, *truth[:done]), None, min(K, len(truth) - done - 1)).token_ids
        drafted.append(ids)
        done += next((i for i, token in enumerate(ids) if token != truth[done + i]), len(ids)) + 1
    return drafted


def assert_all_equal(found: list[list[tuple[int, ...]]]) -> None:
    assert len({len(ids) for ids in found[0]}) > 3, "they would be equal whatever `auto` did"
    for each in found[1:]:
        assert each == found[0]


@pytest.mark.parametrize("hybrid", [False, True], ids=["alone", "hybrid"])
@pytest.mark.parametrize("temperature", [0.0, 0.3])
@pytest.mark.parametrize("kind", MAKERS)
def test_auto_decides_the_same_whoever_computes_the_rows(kind, temperature, hybrid):
    """A head would be worth less where there is no C compiler, or on CUDA: `auto` could not end its drafts where it is
    not sure."""
    found = []
    for make, dtype in MAKERS[kind]:
        if dtype == "bfloat16" and natively(kind):
            continue
        head = head_of(kind, dtype)
        drafter = make(head, context(trained_target(dtype), K, PROMPT, temperature, num_new=NUM_NEW))
        target_ids = range(drafter._vocab_size) if head.target_ids is None else head.target_ids.tolist()
        rows = Rows(len(target_ids), target_ids, 1)
        give_rows(drafter, rows)
        found.append(decisions(HybridDrafter(NgramDrafter(), drafter) if hybrid else drafter, rows.truth))
    assert len(found) > 1
    assert_all_equal(found)


@pytest.mark.parametrize("temperature", [0.0, 0.3])
def test_auto_decides_the_same_over_a_draft_model(temperature):
    """As above: with compiled kernels a token is chosen in another way."""
    found = []
    for compiled in (True, False):
        here = context(trained_target(), K, PROMPT, temperature)
        assert here.sample is not None
        if not compiled:
            here.sample._chooser = None
        rows = Rows(512, range(512), 2)
        model: Any = RowsModel(rows)
        found.append(decisions(DraftModelDrafter(model, here.sample, 512), rows.truth))
    assert_all_equal(found)


@pytest.mark.parametrize("make", [DFlashDrafter, DeviceDFlashDrafter])
def test_a_block_ends_where_it_is_told_to(make):
    """`auto` would verify tokens that it gave up, or be told margins of other tokens."""
    head = head_of("dflash", "float32")
    drafter = make(head, context(trained_target(), K, PROMPT, 0.8))
    drafter.prefill(PROMPT, None)
    whole = drafter.propose(PROMPT, None, K).token_ids
    margins: list[float] = []
    drafter.propose_while(PROMPT, None, K, lambda token_id, margin: margins.append(margin) or True)
    assert len(whole) == len(margins) == K and all(margin > 0 for margin in margins)
    for stop in range(1, K + 1):
        told: list[tuple[int, float]] = []

        def go_on(*pick: Any, told: list[Any] = told, stop: int = stop) -> bool:
            told.append(pick)
            return len(told) < stop

        draft = drafter.propose_while(PROMPT, None, K, go_on)
        assert draft.token_ids == whole[:stop] and told == list(zip(whole, margins, strict=True))[:stop]
