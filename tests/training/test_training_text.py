"""Text to train heads on: what the target writes itself, beginnings and prompts to continue, and pieces of texts."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from engine.errors import UsageError
from engine.progress import silent
from engine.training.features import Features
from engine.training.heads import TargetWeights
from engine.training.openings import openings
from engine.training.prompts import MAKERS, prompts
from engine.training.texts import texts_of
from engine.training.written import Writer, Writing, write_features
from tests.helpers import ROOT, tiny
from tests.helpers.training_heads import LAYERS, TEXT, stock, windows


@pytest.mark.parametrize("name", ["trained", *tiny.NAMES])
def test_what_the_target_writes_is_its_own(name):
    """A head would learn states that no step of the target ever has, or text that it does not write."""
    model, stock_forward = tiny.fresh(name), tiny.stock(name)
    output = TargetWeights.of(model).output
    words = torch.arange(3, len(output))
    writer = Writer(model, output, words, LAYERS, Writing(24, 8, (1e-4, 1.0)))
    beginnings = [[5, 9, 11 + i] for i in range(8)]
    found = writer.write(beginnings, 1)
    assert found["ids"].shape == (8, 26) and found["hidden"].shape[:2] == found["last"].shape[:2] == (8, 26)
    assert found["ids"][:, :3].tolist() == beginnings and int(found["ids"].min()) >= 3
    again = writer.write(beginnings, 1)
    assert torch.equal(found["ids"], again["ids"]) and not torch.equal(found["ids"], writer.write(beginnings, 2)["ids"])
    with torch.inference_mode():
        out = stock_forward.get_decoder()(input_ids=found["ids"], use_cache=False, output_hidden_states=True)
    for ours, theirs in (
        (found["last"], out.last_hidden_state),
        (found["hidden"], torch.cat([out.hidden_states[i] for i in LAYERS], -1)),
    ):
        torch.testing.assert_close(ours.float(), theirs.bfloat16().float(), atol=0.02, rtol=0.02)
    cold = Writer(model, output, words, LAYERS, Writing(24, 8, (1e-4,), num_free=0)).write(beginnings, 1)["ids"]
    with torch.inference_mode():
        greedy = stock_forward(input_ids=cold, use_cache=False).logits[:, 2:-1, 3:].argmax(-1) + 3
    assert float((greedy == cold[:, 3:]).float().mean()) > 0.99


def test_samples_have_the_targets_distribution():
    """Heads would learn another distribution than the one they are judged at."""
    writer = object.__new__(Writer)
    scores = torch.tensor([2.0, 0.0, -1.0, 1.0])
    chosen = writer._sample(scores.repeat(20_000, 1), torch.Generator().manual_seed(5))
    torch.testing.assert_close(
        torch.bincount(chosen[:, 0], minlength=4) / len(chosen), scores.softmax(-1), atol=0.01, rtol=0
    )


def test_what_ends_early_counts_to_its_end():
    """What the target says after the end of a text would be trained on."""
    model = tiny.fresh("trained")
    output = TargetWeights.of(model).output
    writer = Writer(model, output, torch.arange(len(output)), LAYERS, Writing(40, 8, (1.0,)))
    writer._ends = torch.tensor([7, 8, 9, 10])
    found = writer.write([[5, 9]] * 8, 3)
    for ids, length in zip(found["ids"].tolist(), found["lengths"].tolist(), strict=True):
        first = next((i for i, token in enumerate(ids[2:], 2) if token in (7, 8, 9, 10)), len(ids) - 1)
        assert length == first + 1


@pytest.mark.slow
def test_writing_goes_on_where_it_stopped(tmp_path):
    """Hours of writing would be lost with a stopped run, or written twice."""
    model = tiny.fresh("trained")
    output = TargetWeights.of(model).output
    writer = Writer(model, output, torch.arange(len(output)), LAYERS, Writing(40, 4))

    def write(folder: Path) -> list[bytes]:
        write_features(writer, openings(stock().tokenizer, 3), 10, folder, 3, silent)
        return [path.read_bytes() for path in sorted(folder.glob("features-*"))]

    whole = write(tmp_path / "a")
    assert len(whole) == 3 and all(32 <= n <= 140 for _, _, n in Features(tmp_path / "a").index)
    (tmp_path / "a" / "features-written-00001.safetensors").unlink()
    assert write(tmp_path / "a") == whole == write(tmp_path / "b")


@pytest.mark.slow
def test_openings_are_many_and_repeatable():
    """A head would see the same few beginnings again and again, or two runs learn from different ones."""
    tokenizer = stock().tokenizer
    some = list(itertools.islice(openings(tokenizer, 4), 400))
    assert (
        some
        == list(itertools.islice(openings(tokenizer, 4), 400))
        != list(itertools.islice(openings(tokenizer, 5), 400))
    )
    assert len({tuple(ids) for ids in some}) > 250 and max(map(len, some)) <= 128 and min(map(len, some)) >= 1


def test_windows_are_whole_pieces_of_the_text():
    """A window would be longer than asked for, or skip text."""
    pieces = windows(40)
    assert all(32 <= len(p) <= 40 for p in pieces) and len(pieces) > 20
    joined = list(itertools.chain.from_iterable(pieces))
    assert joined == stock().tokenizer(TEXT, add_special_tokens=False)["input_ids"][: len(joined)]


def test_prompts_are_many_and_repeatable():
    """Two runs would train on different prompts, or one prompt fill a kind."""
    some = list(itertools.islice(prompts(4), 400))
    assert some == list(itertools.islice(prompts(4), 400)) != list(itertools.islice(prompts(5), 400))
    for kind in MAKERS:
        assert len({text for k, text in some if k == kind}) >= 0.8 * 50


def test_held_out_prompts_are_held_out():
    """A head would be judged on what it was trained on."""
    held_out = json.loads((ROOT / "assets" / "prompts" / "held_out.json").read_text())
    assert {p["kind"] for p in held_out} == {"code", "json", "sql", "prose"} and len(
        {p["id"] for p in held_out}
    ) == len(held_out) >= 24
    trained_on = "".join(text for _, text in itertools.islice(prompts(0), 4000))
    for prompt in held_out:
        lines = [line for line in prompt["prompt"].splitlines() if len(line) > 20]
        assert lines and not any(line in trained_on for line in lines)


def test_the_standard_library_is_at_hand():
    """The default --data would be empty on this machine."""
    texts = list(itertools.islice(texts_of("builtin", 0), 40))
    assert len(texts) == 40 and texts == list(itertools.islice(texts_of("builtin", 0), 40))
    with pytest.raises(UsageError, match="builtin"):
        next(texts_of("/nowhere/at/all", 0))
