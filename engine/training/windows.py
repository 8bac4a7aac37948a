"""Windows: token sequences of at most `length` tokens to train on, cut from texts, some of them continued by the target itself."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..progress import Progress

MIN_TOKENS = 32


@dataclass(frozen=True)
class Sampling:
    """How the target continues: `num_tokens` at most, at `temperature`, `batch_size` texts at a time."""

    num_tokens: int = 192
    temperature: float = 0.8
    batch_size: int = 32


def cut(tokenizer: Any, texts: Iterable[str], length: int, rng: random.Random) -> Iterator[list[int]]:
    """Every text in pieces of `length` tokens, the first shortened at random so that pieces start anywhere; what is shorter than MIN_TOKENS is dropped.

    Every piece begins as the tokenizer begins a text."""
    start = tokenizer("a")["input_ids"][: -len(tokenizer("a", add_special_tokens=False)["input_ids"])]
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        size, first = length - len(start), 0
        end = size if len(ids) <= size else rng.randint(max(MIN_TOKENS, size // 2), size)
        while first < len(ids):
            piece = ids[first:end]
            if len(piece) >= MIN_TOKENS:
                yield [*start, *piece]
            first, end = end, end + size


class InverseCdf:
    """A logits processor that samples, by one uniform number a row: over a large vocabulary on a CPU several times as fast as `torch.multinomial`.

    All scores but the chosen token's become -inf, so that the greedy choice that follows is the sample."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature, self._generator = temperature, torch.Generator().manual_seed(seed)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """scores [B, vocab] -> the same shape."""
        mass = (scores - scores.amax(-1, keepdim=True)).div_(self._temperature).exp_().cumsum(-1)
        level = torch.rand(len(scores), 1, generator=self._generator).to(mass) * mass[:, -1:]
        chosen = torch.searchsorted(mass, level, right=True).clamp_(max=scores.shape[-1] - 1)
        return torch.full_like(scores, -torch.inf).scatter_(-1, chosen, 0.0)


@torch.inference_mode()
def continued(model: Any, prompts: Sequence[Sequence[int]], sampling: Sampling, length: int, seed: int, progress: Progress) -> Iterator[list[int]]:
    """Each prompt with what the target says next, by transformers' own `generate`; at most `length` tokens in all. Prompts of like length go together."""
    device = next(model.parameters()).device
    pad = model.generation_config.pad_token_id
    pad = 0 if pad is None else pad
    ends = model.generation_config.eos_token_id
    ends = set(ends) if isinstance(ends, (list, tuple)) else {ends}
    ordered = sorted(prompts, key=len)
    for first in range(0, len(ordered), sampling.batch_size):
        batch = [list(p) for p in ordered[first : first + sampling.batch_size]]
        progress("the target continues the prompts", first / len(ordered))
        longest = max(map(len, batch))
        ids = torch.tensor([[pad] * (longest - len(p)) + p for p in batch], device=device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in batch], device=device)
        num_new = min(sampling.num_tokens, length - longest)
        if num_new <= 0:
            yield from batch
            continue
        out = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=num_new, pad_token_id=pad, logits_processor=[InverseCdf(sampling.temperature, seed + first)])
        for prompt, row in zip(batch, out[:, longest:].tolist(), strict=True):
            stop = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
            yield [*prompt, *row[:stop]]
