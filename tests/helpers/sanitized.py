"""The compiled kernels under sanitizers, in a process of its own: at odd shapes, and in races with each drafter.

    python -m tests.helpers.sanitized

The sanitizers' libraries are preloaded and CC names a compiler that instruments: see
tests/kernels/cpu/test_sanitized.py."""

import itertools

import pytest
import torch
from torch import nn

from engine.core.spec import RaceSpec, SamplingParams, lanes_of
from engine.exactness import operators
from engine.kernels.cpu import build
from engine.kernels.cpu.attention import attend_natively
from engine.kernels.cpu.bytes import ByteLinear
from engine.kernels.cpu.choose_token import Chooser
from engine.kernels.cpu.linear import NativeLinear
from engine.kernels.cpu.picks import NativePicks
from engine.loading.loading import load
from engine.session import TorchRace
from engine.text import encode_prompt
from tests.helpers.fakes import Empty, tokens_of
from tests.helpers.native_kernels import linear_of, prepared, random
from tests.helpers.tiny import TRAINED, WINDOW, lane, random_ids, threads
from tests.helpers.trained import PROMPTS, text_of
from tests.helpers.tree_drafts import TreeDrafter

LENGTHS = (2, 3, 5, "tree:31", 1, "tree:7")  # of the drafters, in their order
ROWS = (0, 1, 2, 3, 5, 13, 31)  # in a step: none, fewer than a vector or a tile, more than one


def odd_linears() -> None:
    """Inputs and outputs that fill no vector and no block; rows of infinities, whose sums are no integers."""
    for k, num in itertools.product((2, 6, 30, 62), (1, 3, 31, 33)):
        for rows in ROWS:
            NativeLinear(linear_of(num, k, bias=num % 2 == 1))(random(rows, k))
    for k, act in itertools.product((16, 48, 80, 144), (None, 0, 1)):
        plain: nn.Linear = linear_of(33 if act is None else 64, k, bias=True)
        plain.weight[0], plain.weight[1, -1] = torch.inf, torch.nan
        for rows in ROWS:
            x = random(rows, k)
            for row, number in zip(x, (torch.inf, -torch.inf, torch.nan, 3e38), strict=False):
                row[: k // 2] = number
            ByteLinear(plain, act)(x)


def odd_attention() -> None:
    """Windows smaller than the step, and a cache that ends with it; groups of heads of which some go alone."""
    heads = ((1, 1), (3, 1), (3, 3), (10, 2))
    for (num_heads, kv), dim, rows, window in itertools.product(heads, (32, 96), ROWS, (None, 1, 3, 17)):
        for at in (0, 19):
            sides = [random(1, kv, at + rows, dim, seed=i) for i in (1, 2)]
            for sinks in (None, random(num_heads)):
                attend_natively(random(rows, num_heads, dim), *sides, at, window, 0.1, sinks)


def odd_rows_of_logits() -> None:
    """Vocabularies that fill no vector, and rows with nothing but infinities or NaN."""
    for num, temperature in itertools.product((1, 2, 5, 31, 33, 511, 1025), (0.0, 0.8)):
        tokens = torch.arange(num, dtype=torch.int32)
        for ids, number in itertools.product((tokens, tokens.flip(0).contiguous()), (0.0, torch.inf, torch.nan)):
            rows = random(3, num, spread=3.0)
            rows[2, num // 2 :] = number
            Chooser(ids, temperature, 5, 40.0, 3.0)(rows, [0, 0], 7)
            NativePicks(ids.numpy(), temperature, 5)(rows[:2].clone(), [1, 2], min(3, num))


def chains_and_trees() -> None:
    """Steps of whole models: widths that fill no tile, windows that end within a draft, trees."""
    for name in ("gemma3", "qwen2", "mistral"):
        model, params = prepared(name), SamplingParams(0.8, seed=1, max_new_tokens=WINDOW + 8)
        prompt = random_ids(WINDOW // 2, model.vocab_size)
        for num_threads, widths in ((1, (1, 2, 3, 5, 31)), (2, (3, 31))):
            with threads(num_threads):
                text = tokens_of(lane(model, Empty(), prompt, widths[:1], params))
                tree = TreeDrafter(text, 1, model.vocab_size)
                assert tokens_of(lane(model, tree, prompt, widths, params, k=30)) == text, name


def races() -> None:
    """All drafters in one race, as the page runs it."""
    loaded = load(str(TRAINED), "bfloat16", "cpu")
    names = ("ngram", "synthetic", "draft_model", "eagle3", "dflash", "hybrid")
    lanes = lanes_of((name, text_of(name), k) for name, k in zip(names, LENGTHS, strict=True))
    params = SamplingParams(0.8, seed=3, max_new_tokens=24)
    race = TorchRace(loaded, RaceSpec(lanes, params, audit=True), encode_prompt(loaded.tokenizer, PROMPTS[0]))
    list(race.events())
    for name, verdict in race.result()["verdicts"].items():
        assert verdict["kind"] == "identical_bits", (name, verdict["sentence"])


def main() -> None:
    build.library()  # raises what is wrong with it
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(operators, "LINEAR_ROWS", (16, 16))
        patch.setattr(operators, "ATTENTION_ROUNDS", (1, 1))
        for part in (odd_linears, odd_attention, odd_rows_of_logits, chains_and_trees, races):
            part()
            print(part.__name__, "ran", flush=True)


if __name__ == "__main__":
    main()
