"""A transformers causal LM as a Target: a static cache, fixed widths, rollback by moving a pointer.

All state of a sequence is device tensors: the key and value buffers and one pointer n. A step of width W puts its rows
at positions n .. n + W - 1, real tokens first, then padding. Rows past the real tokens are ignored and their cache
entries overwritten by the next step. Nothing in Python changes inside a step, so it can be captured as a CUDA graph
(`kernels/cuda/graphs.py`)."""

import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from ..core.errors import RaceError, UsageError
from ..core.interfaces import Acceptance, AcceptRule, Choice, Draft, Verify
from ..core.sampling.accept import Coupled
from ..core.sampling.sampler import Sampler
from ..layers.attention import caches
from ..layers.delta_places import Places
from .forward import Buffers
from .prepared import Prepared
from .whole_step import DeviceStep, Forward, StepInput

PREFILL_CHUNK = 256
LENGTH_BUCKET = 256


def cache_length(num_prompt_tokens: int, max_new_tokens: int, width: int) -> int:
    """S, chosen once per race so that every forward attends over the same columns; a multiple of LENGTH_BUCKET."""
    return -(-(num_prompt_tokens + max_new_tokens + width) // LENGTH_BUCKET) * LENGTH_BUCKET


class StaticTarget:
    """One sequence's state over shared weights. Implements `interfaces.Target`.

    length: S, columns of the static cache.
    widths: the widths that steps may have, from one exactness class if tokens are to be equal.
    hidden_layers: indices into transformers' `hidden_states` (0: embeddings) whose rows `extend` returns side by side.
    reach: how many tokens beyond the widest step a rollback can go with linear layers, at the price of a state each.
    pool: graph memory that the race shares.
    on_prefill: called before every chunk of a prefill but the first with the share done; may raise to give up.
    """

    def __init__(
        self,
        prepared: Prepared,
        length: int,
        widths: Sequence[int],
        hidden_layers: Sequence[int] = (),
        reach: int = 0,
        pool: Any = None,
        on_prefill: Callable[[float], None] = lambda share: None,
    ) -> None:
        if not widths or min(widths) < 1 or max(widths) > length:
            raise UsageError(f"widths must be between 1 and the cache length {length}, not {list(widths)}")
        if length > prepared.shape.max_length + max(widths) + LENGTH_BUCKET:
            raise UsageError(f"a cache of {length} tokens exceeds the model's {prepared.shape.max_length} positions")
        device, num_states = prepared.device, max(widths) + 1 + reach
        self.prepared, self.vocab_size, self.cache_length = prepared, prepared.vocab_size, length
        self.widths, self.hidden_layers = tuple(sorted(set(widths))), tuple(hidden_layers)
        self.length = 0  # sent to the device with the next call
        self._on_prefill = on_prefill
        self.kv = caches(prepared.shape, length, num_states, prepared.dtype, device)
        self._oldest = self._newest = 0  # the tokens after which linear layers' states are kept
        kernels = prepared.kernels
        self._input = StepInput(max(self.widths), kernels)
        columns = torch.arange(length, device=device)
        num_features = len(self.hidden_layers) * prepared.shape.hidden_size
        self._hidden = torch.empty(max(self.widths), num_features, dtype=prepared.dtype, device=device)
        self._buffers = Buffers(
            prepared, self.kv, self._input.pointer, columns, self.hidden_layers, num_states, self._hidden
        )
        self._forward = partial(self._buffers.forward, want_logits=True)
        self._pool = pool or kernels.graph_pool()
        self._steps = {
            width: kernels.fixed(
                partial(self._forward, self._input.ids(width)), self._pool, f"the step of width {width}"
            )
            for width in self.widths
        }
        self._judges_on_device = kernels.judges_on_device
        self._whole: dict[Choice, DeviceStep] = {}
        self._num_rows = 0

    @property
    def takes_trees(self) -> bool:
        """Whether `extend` takes rows with parents, with the bits that chains have."""
        return self._buffers.takes_trees

    @torch.inference_mode()
    def extend(
        self, token_ids: Sequence[int], num_logits: int, width: int | None = None, *, parents: tuple[int, ...] = ()
    ) -> tuple[Tensor, Tensor | None]:
        """See `interfaces.Target`. With `num_logits` 0 it is a prefill: whole chunks of exact size, no LM head.
        Otherwise one fixed step at the narrowest width that holds the tokens, or at `width`."""
        num_tokens = len(token_ids)
        if num_logits == 0:
            return self._prefill(token_ids)
        if parents and not self.takes_trees:
            raise RaceError("this model's steps verify chains here, not trees of drafts")
        width = width or self.width_for(num_tokens)
        assert num_logits <= num_tokens <= width and self.length + width <= self.cache_length
        self._input.put(width, token_ids)
        self._buffers.follow(parents, width)
        logits, hidden = self._step(width)
        assert logits is not None
        self.stepped(token_ids, width)
        return logits if num_logits == width else logits[:num_logits], None if hidden is None else hidden[:num_tokens]

    def _step(self, width: int) -> tuple[Tensor | None, Tensor | None]:
        self._input.point(self.length)
        return self._steps[width]()

    def parts(self) -> tuple[Forward, StepInput, Any]:
        """The forward with logits, its input and the graphs' memory, for a drafter's own fixed steps over this
        sequence. After every such step the caller calls `stepped`, before anything else here."""
        return self._forward, self._input, self._pool

    def stepped(self, token_ids: Sequence[int], width: int) -> None:
        """Record a step of that width at the end, with these tokens and padding."""
        self._num_rows = len(token_ids)
        self._newest = self.length + width
        self._oldest = max(self._oldest, self._newest - self._buffers.num_states + 1)
        self.length += len(token_ids)

    def verifier(self, accept: AcceptRule) -> Verify | None:
        """See `interfaces.WholeStepTarget`."""
        step = self._whole_step(accept)
        return None if step is None else partial(self._verify, step)

    def _whole_step(self, accept: AcceptRule | None) -> DeviceStep | None:
        """Steps that judge as `accept` does, if it accepts by a sampler's choice alone; else None."""
        if not (self._judges_on_device and isinstance(accept, Coupled) and isinstance(accept.sample, Sampler)):
            return None
        sampler, kernels = accept.sample, self.prepared.kernels
        if sampler not in self._whole:
            self._whole[sampler] = DeviceStep(
                self._forward, self._input, self.widths, sampler, self.cache_length, kernels, self._pool
            )
        return self._whole[sampler]

    def _verify(
        self, step: DeviceStep, token: int, draft: Draft, position: int
    ) -> tuple[Acceptance, Tensor, Tensor | None]:
        token_ids = (token, *draft.token_ids)
        width = self.width_for(len(token_ids))
        assert self.length + width <= self.cache_length
        acceptance, logits, hidden = step.call(width, self.length, position, token_ids)
        self.stepped(token_ids, width)
        return acceptance, logits[: len(token_ids)], None if hidden is None else hidden[: len(token_ids)]

    def _prefill(self, token_ids: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        assert self.length + len(token_ids) <= self.cache_length
        hidden = [self._hidden[:0]]
        for start in range(0, len(token_ids), PREFILL_CHUNK):
            if start:
                self._on_prefill(start / len(token_ids))
            chunk = token_ids[start : start + PREFILL_CHUNK]
            self._input.point(self.length)
            _, rows = self._buffers.forward(
                torch.tensor([list(chunk)], dtype=torch.long, device=self.prepared.device), False
            )
            self.length += len(chunk)
            self._oldest = self._newest = self.length
            if rows is not None:
                hidden.append(rows)
        no_logits = torch.empty(0, self.vocab_size, dtype=self.prepared.dtype, device=self.prepared.device)
        return no_logits, torch.cat(hidden) if self.hidden_layers else None

    def keep(self, rows: Sequence[int]) -> None:
        """See `interfaces.Target`."""
        self._buffers.keep(self.length - self._num_rows, rows)

    def rollback(self, length: int) -> None:
        """Move the pointer back to `length` tokens; what lies behind it stays in the buffers, masked, until
        overwritten.

        Linear layers keep the states of the last step's tokens, and of `reach` before it: raises UsageError further
        back."""
        assert 0 <= length <= self.length, f"cannot roll back from {self.length} to {length}"
        if length and length < self._oldest and self.prepared.shape.linear is not None:
            raise UsageError(
                f"this sequence cannot go back to {length} tokens: its model has linear layers, whose states are kept "
                f"from token {self._oldest} on"
            )
        self.jump(length)

    def jump(self, length: int) -> None:
        """Put the pointer anywhere, over whatever the buffers hold: for probes and timings, which bring their own
        context. Within the last step it is a rollback, and 0 is the empty sequence."""
        assert 0 <= length <= self.cache_length
        if not (length and self._oldest <= length <= self._newest):  # what lies there counts as the state
            self._oldest = self._newest = length
        self.length = length

    def states(self) -> list[Tensor]:
        """Per linear layer the state [heads, key_dim, value_dim] and the last inputs [kernel - 1, conv_dim] at the
        pointer: with keys and values, all that a model remembers."""
        linear = self.prepared.shape.linear
        if linear is None:
            return []
        self._input.point(self.length)
        places = Places.of(self._input.pointer, linear, self._buffers.num_states, chunked=True)
        return [part for layer in linear.layers for part in places.read(*self.kv[layer])]

    def width_for(self, num_tokens: int) -> int:
        """The narrowest width that holds so many tokens."""
        for width in self.widths:
            if width >= num_tokens:
                return width
        raise UsageError(f"a step of {num_tokens} tokens does not fit the widths {list(self.widths)}")

    @torch.inference_mode()
    def checksums(self, logits: Tensor) -> tuple[int, ...]:
        """See `interfaces.Target`. The sum over tokens of the row's bits times an odd 64-bit weight, modulo 2**64: any
        single changed bit changes it. One wait for the device for all rows."""
        bits = logits.contiguous().view(torch.int16 if logits.element_size() == 2 else torch.int32)
        sums = [(row.long() * self._odd_weights).sum() for row in bits]
        return tuple(value & (2**64 - 1) for value in torch.stack(sums).tolist()) if sums else ()

    @cached_property
    def _odd_weights(self) -> Tensor:
        x = torch.arange(self.vocab_size, device=self.prepared.device) * -7046029254386353131 + 1442695040888963407
        return (x ^ (x >> 29)) * -4658895280553007687 | 1

    def synchronize(self) -> None:
        self.prepared.kernels.synchronize()

    @torch.inference_mode()
    def forward(self, ids: Tensor, seen: dict[int, int | None]) -> tuple[Tensor, Tensor | None]:
        """One direct forward of ids [1, n] that moves nothing, recording the window that each layer uses: to check a
        model."""
        self._input.point(self.length)
        logits, hidden = self._buffers.forward(ids, True, seen)
        assert logits is not None
        return logits, hidden

    @torch.inference_mode()
    def warm(self, prompt_ids: Sequence[int] = (), accept: AcceptRule | None = None, steps: bool = True) -> None:
        """Run every width once, untimed, and prefills of the sizes that this prompt takes; on CUDA this captures the
        graphs, of whole steps too if lanes under rule `accept` take them. steps: False if another sequence of this
        thread has run the widths, and nothing is captured. Leaves the sequence empty."""
        warmed = self.prepared.kernels.warmed
        for size in {min(len(prompt_ids), PREFILL_CHUNK), len(prompt_ids) % PREFILL_CHUNK} - warmed:
            self._prefill(prompt_ids[:size])
            warmed.add(size)
            self.jump(0)
        whole = self._whole_step(accept)
        self._input.point(self.length)
        for call in (self._steps if whole is None else whole.calls).values() if steps else ():
            call()
        self.synchronize()
        self.jump(0)

    @torch.inference_mode()
    def time_widths(self, rounds: int = 7, position: int = 16, untimed: int = 1) -> dict[int, float]:
        """Run every width, interleaved; the median seconds of each (the lower middle one of an even number), after
        untimed rounds. Leaves the sequence empty."""
        seconds: dict[int, list[float]] = {width: [] for width in self.widths}
        self.jump(position)
        for round_ in range(-untimed, rounds):
            for width in self.widths:
                started = time.perf_counter()
                self._step(width)
                self.synchronize()
                if round_ >= 0:
                    seconds[width].append(time.perf_counter() - started)
        self.jump(0)
        return {width: sorted(values)[(len(values) - 1) // 2] for width, values in seconds.items()}
