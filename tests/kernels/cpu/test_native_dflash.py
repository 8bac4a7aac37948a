"""DFlash blocks by one compiled call: the drafts of the torch path but for rounding, whatever the head's form, the
threads and how context rows are taken; and lanes that draft so, `auto` and hybrids among them."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.drafters.auto import AutoDrafter
from engine.drafters.blend import Blend
from engine.drafters.device_heads import drafter_of
from engine.drafters.dflash import DFlashDrafter, HostDFlashDrafter
from engine.drafters.none import NoDrafter
from engine.errors import RaceError
from engine.kernels.cpu.build import has
from engine.kernels.cpu.dflash import reason_against_block
from tests.helpers.head_files import config_of, save
from tests.helpers.head_fixtures import HEADS, VOCAB, context, formats_target, made, raced, trained_target, written
from tests.helpers.random_heads import DFLASH, DFLASH_FORMS, LAYERS, ZLAB_CONFIG, dflash_tensors
from tests.helpers.tiny import threads

pytestmark = pytest.mark.skipif(not has("photofinish_block"), reason="there is no compiled kernel for it here")
K = 5
PROMPT = list(range(7, 60))
TEXT = "class Reader:\n    def read(self, size=-1):\n        return self.buffer.read(size)\n    def "
WIDE: dict[str, Any] = {"head_dim": 32}
MORE: dict[str, Any] = {
    "one head of keys": {"layers": {"num_key_value_heads": 1, "head_dim": 64}},
    "a head of keys for each of queries": {"layers": {"num_key_value_heads": 4}},
    "yarn, whose angles are scaled": {
        "layers": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}
    },
    "words that fill no block": {"config": {"draft_vocab_size": 77}},
}
SOME = ("speculators", "sliding", "z-lab, sliding, bidirectional", "from the anchor")


@pytest.fixture(scope="module")
def head_of(tmp_path_factory):
    """Packed random bfloat16 heads by form, made once."""

    @cache
    def head(form: str) -> Any:
        case = {**DFLASH_FORMS, **MORE}[form]
        layers = {**LAYERS, "model_type": "qwen3", **WIDE, **case.get("layers", {})}
        config = {**ZLAB_CONFIG, **case["zlab"]} if "zlab" in case else {**DFLASH, **case.get("config", {})}
        tensors = dflash_tensors(layers, {"aux_hidden_state_layer_ids": [2, 3, 4], **config}, own=case.get("own", 0))
        folder = save(
            tmp_path_factory.mktemp("head"),
            {**config, **layers} if "zlab" in case else {**config, "transformer_layer_config": layers},
            tensors,
        )
        return made(f"dflash:{folder}{case.get('option', '')}", formats_target("bfloat16"), K).head

    return head


def drafter(head: Any, natively: bool = True, k: int = K, **more: Any) -> Any:
    return (HostDFlashDrafter if natively else DFlashDrafter)(
        head, context(formats_target("bfloat16"), k, PROMPT, **more)
    )


def states(num: int) -> Tensor:
    """The target's of so many tokens."""
    return torch.randn(num, 3 * 64, generator=torch.Generator().manual_seed(1)).bfloat16()


def drafts(one: Any, ends: list[int], k: int = K) -> Any:
    """The draft after `ends[-1]` tokens of a text, which come in parts that end there, a draft asked for at each but
    the first."""
    hidden = states(len(PROMPT))
    one.prefill(PROMPT[: ends[0]], hidden[: ends[0] - 1])
    for before, end in zip(ends, [*ends[1:], len(PROMPT)], strict=True):
        draft = one.propose(PROMPT[:end], hidden[before - 1 : end - 1], k)
    return draft


def logits_of(draft: Any) -> Tensor:
    return draft.logits[:, draft.logits[0].isfinite()].float()


@pytest.mark.parametrize("form", [*DFLASH_FORMS, *MORE])
def test_rows_are_those_of_torch(head_of, form):
    """A mask or flag misread in C would only cost acceptance, and never be seen."""
    head = head_of(form)
    assert reason_against_block(head) is None
    for ends in ([1], [3, 4, 10], [len(PROMPT) - 2]):
        ours, theirs = (
            logits_of(drafts(drafter(head, natively, keep_logits=True), ends)) for natively in (True, False)
        )
        assert ours.shape == theirs.shape and torch.isfinite(ours).all()
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert float((a - b).abs().mean()) < 0.03 * float(b.std()), f"row {place} of {form}"


@pytest.mark.parametrize("form", SOME)
def test_bits_depend_on_nothing_else(head_of, form):
    """Whether a draft is right would depend on how many threads there are, how many tokens the last step committed, or
    how many drafts were asked for."""
    expected = None
    for num, k, ends in (
        (1, K, [3]),
        (2, K, [3]),
        (3, K, [20, 21, 32]),
        (2, K, [*range(1, len(PROMPT))]),
        (1, 2, [20, 31, 32]),
        (3, 1, [len(PROMPT) - 1]),
    ):
        with threads(num):
            one = drafter(head_of(form), keep_logits=True)
            rows = logits_of(drafts(one, ends, k))
        sides = torch.stack([side[0, :, : len(PROMPT) - 1] for side in (*one.buffers.keys, *one.buffers.values)])
        expected = (rows, sides) if expected is None else expected
        assert torch.equal(rows, expected[0][:k]) and torch.equal(sides, expected[1])


def test_a_new_race_remembers_nothing(head_of):
    """Keys and values of an earlier race, or of a block behind the text, would be looked at, or their NaN be mixed in
    with weight 0."""
    one = drafter(head_of("sliding"), keep_logits=True)
    first = drafts(one, [9, 12])
    for side in (*one.buffers.keys, *one.buffers.values):
        side.fill_(torch.nan)
    again = drafts(one, [9, 12])
    assert first.token_ids == again.token_ids and torch.equal(first.logits, again.logits)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_draft_ends_where_it_is_told_to(head_of, temperature):
    """`auto` would verify tokens that it gave up, or be told of margins of other tokens."""
    one, other = (
        drafter(head_of("a reduced vocabulary"), natively, temperature=temperature) for natively in (True, False)
    )
    whole = drafts(one, [9, 20]).token_ids
    assert len(whole) == K and whole == drafts(other, [9, 20]).token_ids
    for stop in range(1, K + 2):
        told: list[tuple[int, float]] = []
        draft = one.propose_while(
            PROMPT, None, K, lambda *pick, told=told, stop=stop: told.append(pick) or len(told) < stop
        )
        assert draft.token_ids == whole[:stop] == tuple(token_id for token_id, _ in told)
        rows = one._rows.draft(len(PROMPT) - 1, len(PROMPT) - 1, PROMPT[-1], K)
        expected = [one._host_picks(row, 1, len(PROMPT) - 9 + i)[0][1] for i, row in enumerate(rows)]
        assert [margin for _, margin in told] == expected[:stop]


def test_samplers_of_fewer_words_are_asked(head_of):
    """top-k and top-p would be left out of drafts."""
    one, other = (drafter(head_of("speculators"), natively, temperature=0.9) for natively in (True, False))
    for each in (one, other):
        each._host_picks = None
    assert drafts(one, [9, 20]).token_ids == drafts(other, [9, 20]).token_ids


def test_states_that_are_no_numbers_are_an_error(head_of):
    """A head that was given NaN would draft some token for ever, and the lane only be slow."""
    one = drafter(head_of("speculators"))
    one.prefill(PROMPT, torch.full_like(states(len(PROMPT) - 1), torch.nan))
    with pytest.raises(RaceError, match="not numbers"):
        one.propose(PROMPT, None, K)


def test_what_is_outside_is_refused(head_of):
    """Memory beyond the embedding or the cache would be read or written."""
    rows = drafter(head_of("speculators"))._rows
    for token in (-1, VOCAB):
        with pytest.raises(IndexError, match="outside"):
            rows.draft(0, 3, token, 1)
    for first, stop, num in ((0, 10**6, 1), (-1, 3, 1), (3, 2, 1), (0, 3, K + 1), (0, 3, 0)):
        with pytest.raises(AssertionError):
            rows.draft(first, stop, 1, num)


def test_heads_that_do_not_fit_take_the_old_path(tmp_path):
    """A head of float32, or of heads of 16 numbers, would be refused or computed wrongly."""
    folder = save(
        tmp_path / "head",
        {**DFLASH, "transformer_layer_config": {**LAYERS, "model_type": "qwen3"}},
        dflash_tensors(LAYERS, DFLASH),
    )
    for dtype, why in (("bfloat16", "multiples"), ("float32", "float32")):
        one = made(f"dflash:{folder}", formats_target(dtype), K)
        assert why in str(reason_against_block(one.head)) and type(one) is DFlashDrafter
        assert len(drafts(one, [9, 20]).token_ids) == K


# --- a trained head


def test_a_trained_head_drafts_as_before():
    """It would be worth less than it was, with nothing to see."""
    target = trained_target("bfloat16")
    prompt = target.tokenizer(TEXT)["input_ids"]
    ours = made(f"dflash:{HEADS['dflash']}", target, 7, prompt=prompt)
    assert type(ours) is HostDFlashDrafter and config_of(HEADS["dflash"])["block_size"] == 8
    theirs = drafter_of(ours.head, context(target, 7, prompt), on_device=False)
    steps = [raced(target, each, prompt, 7, num_new=100) for each in (ours, theirs)]
    assert written(steps[0]) == written(steps[1]) == written(raced(target, NoDrafter(), prompt, 0, num_new=100))
    num_accepted = [sum(step.num_accepted for step in each) for each in steps]
    assert num_accepted[0] >= 0.9 * num_accepted[1] > 0
    by_place = [{step.position: step.drafted for step in each if step.drafted} for each in steps]
    both = [place for place in by_place[0] if place in by_place[1]]
    assert len(both) > 10 and sum(by_place[0][place][0] == by_place[1][place][0] for place in both) >= 0.95 * len(both)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_lanes_write_what_the_baseline_writes(temperature):
    """What the whole engine is for; with drafts that `auto` ends, and copies behind or in place of them."""
    target, name = trained_target("bfloat16"), f"dflash:{HEADS['dflash']}"
    prompt = target.tokenizer(TEXT)["input_ids"]
    expected = written(raced(target, NoDrafter(), prompt, 0, temperature))
    for text in (name, f"hybrid:ngram+{name}"):
        fixed = raced(target, made(text, target, 3, prompt=prompt, temperature=temperature), prompt, 3, temperature)
        inner = made(text, target, 7, prompt=prompt, temperature=temperature, auto_k=True)
        auto = AutoDrafter(inner, [1 + 0.02 * num for num in range(8)])
        assert [type(part) for part in auto._parts] == [Blend]
        for steps in (fixed, raced(target, auto, prompt, 7, temperature)):
            assert written(steps) == expected and sum(step.num_accepted for step in steps) > 0, text
        lengths = {len(step.drafted) for step in steps}
        assert len(lengths) > 2, lengths
