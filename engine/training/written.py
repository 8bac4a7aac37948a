"""Text that the target writes itself, a hundred windows at a time, with the hidden states of writing it: the input of a
head when it drafts.

Eight times as fast on a CPU as `generate` and a second pass (one core, Gemma 3 270M, 32,768 words): beginnings of one
length need no padding, heads that share keys are rows of one product, rare words are left out, and
the states are kept as they come."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AttentionInterface, StaticCache
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from ..kernels.choose import choose
from ..layers.attention import attend_rows
from ..progress import Progress

NAME = "photofinish_grouped"
POOL = 8
MIN_TOKENS = 32  # of a window to learn from


@dataclass(frozen=True)
class Writing:
    """`num_tokens` after each beginning, `batch_size` windows together; every window at one of `temperatures`, its
    first `num_free` tokens at no less than `free`, so that equal beginnings diverge."""

    num_tokens: int = 176
    batch_size: int = 128
    temperatures: tuple[float, ...] = (0.5, 0.8, 0.8, 0.8, 0.8, 0.8, 1.0, 1.0)
    num_free: int = 10
    free: float = 0.9


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: heads of query [B, heads, n, dim] that share keys [B, kv_heads, S, dim] become
    rows."""
    groups = query.shape[1] // key.shape[1]
    if s_aux is not None:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, -torch.inf)
    return attend_rows(query, key, value, mask.repeat(1, 1, groups, 1), scaling, s_aux).contiguous(), None


def whole_mask(*args: Any, **kwargs: Any) -> Tensor:
    """transformers' bool mask, always created: attention over a static cache needs one."""
    return sdpa_mask(*args, **{**kwargs, "allow_is_causal_skip": False})


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, whole_mask)


class Writer:
    """A stock model, switched to `grouped_attention`, that writes with the given words [words] (ids) and their output
    rows `output` [vocab, size].

    layers: which hidden states are kept."""

    def __init__(
        self, model: Any, output: Tensor, words: Tensor, layers: Sequence[int], writing: Writing = Writing()
    ) -> None:
        self.writing, self.layers, self.device = writing, tuple(layers), output.device
        model.set_attn_implementation(NAME)
        self._decoder, self._config = model.get_decoder(), model.config.get_text_config()
        self._words = words.to(output.device)
        head = nn.Linear(output.shape[1], len(words), bias=False, device="meta")
        head.weight = nn.Parameter(output[self._words], requires_grad=False)
        self._head = choose(output.device, output.dtype).linear_for_many_rows(head)
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
        self._ends = torch.tensor(ends, dtype=torch.long, device=output.device)

    @torch.inference_mode()
    def write(self, beginnings: Sequence[Sequence[int]], seed: int) -> dict[str, Tensor]:
        """Beginnings of one length, continued: ids [B, T], lengths [B] (up to and including the end of text), hidden
        [B, T, layers * size] and last [B, T, size] in bfloat16, as `Features` reads them. The last token written has no
        states and is left out."""
        writing, rng = self.writing, random.Random(seed)
        generator = torch.Generator(self.device).manual_seed(seed)
        new = torch.tensor(beginnings, device=self.device)
        num_given = new.shape[1]
        total = num_given + writing.num_tokens - 1
        temperatures = torch.tensor([rng.choice(writing.temperatures) for _ in beginnings], device=self.device)[:, None]
        cache = StaticCache(config=self._config, max_cache_len=total)
        ids, hidden, last = [], [], []
        for index in range(writing.num_tokens):
            at = 0 if index == 0 else num_given + index - 1
            places = torch.arange(at, at + new.shape[1], device=self.device)[None]
            kept: dict[str, Any] = {"past_key_values": cache, "use_cache": True, "output_hidden_states": True}
            out = self._decoder(input_ids=new, position_ids=places, **kept)
            ids.append(new)
            hidden.append(torch.cat([out.hidden_states[i] for i in self.layers], -1).bfloat16().cpu())
            last.append(out.last_hidden_state.bfloat16().cpu())
            level = temperatures.clamp(min=writing.free) if index < writing.num_free else temperatures
            new = self._words[self._sample(self._head(out.last_hidden_state[:, -1]).float() / level, generator)]
        written = torch.cat(ids, 1)
        ended = torch.isin(written[:, num_given:], self._ends)
        lengths = torch.where(ended.any(1), num_given + ended.int().argmax(1) + 1, total)
        states = {"hidden": torch.cat(hidden, 1), "last": torch.cat(last, 1)}
        return {"ids": written.cpu(), "lengths": lengths.cpu(), **states}

    def _sample(self, scores: Tensor, generator: torch.Generator) -> Tensor:
        """A column of each row of scores [B, words], by one uniform number [B, 1]."""
        mass = (scores - scores.amax(-1, keepdim=True)).exp_().cumsum(-1)
        level = torch.rand(len(scores), 1, generator=generator, device=scores.device) * mass[:, -1:]
        return torch.searchsorted(mass, level, right=True).clamp_(max=scores.shape[-1] - 1)


def write_features(
    writer: Writer, beginnings: Iterator[list[int]], num_windows: int, folder: Path, seed: int, progress: Progress
) -> None:
    """Files of `batch_size` windows each until there are `num_windows`, in `folder`; existing ones are kept, so that an
    interrupted run can be resumed. Every beginning of a batch is cut to the shortest; windows that end early, below
    MIN_TOKENS tokens, are left out."""
    size = writer.writing.batch_size
    num_files = -(-num_windows // size)
    folder.mkdir(parents=True, exist_ok=True)
    pool: list[list[int]] = []
    for number in range(num_files):
        if number % POOL == 0:
            pool = sorted(itertools.islice(beginnings, POOL * size), key=len)
        path = folder / f"features-written-{number:05d}.safetensors"
        if path.exists():
            continue
        progress("the target writes", number / num_files)
        chosen = pool[number % POOL * size : (number % POOL + 1) * size]
        batch = writer.write([ids[: len(chosen[0])] for ids in chosen], seed + number)
        kept = batch["lengths"] >= MIN_TOKENS
        partial = path.with_suffix(".partial")
        save_file({name: value[kept].contiguous() for name, value in batch.items()}, partial)
        partial.rename(path)
