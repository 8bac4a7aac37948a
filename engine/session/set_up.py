"""Everything of a race that comes before its first timed step. `set_up` runs these in turn:

    check_fits        the prompt and the model's positions
    within_limits     draft lengths that the drafters can draft
    needed_bytes      the memory that the race needs, compared with what is free
    choose_widths     exact classes (probed, or remembered), seconds of each width, and the widths of every lane
    roofline_figures  the bytes of a plain step halfway through, and how fast this device reads
    build_lane        a lane's rule, drafter and target (`lanes.py`)
    warm_up           everything that a lane will run, once, untimed (`lanes.py`)

Which forward a lane runs was decided when the model was prepared (`runner/prepare.py`).
"""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch

from ..core.errors import UsageError, words
from ..core.events import Prompt
from ..core.sampling.sampler import Sampler
from ..core.spec import AUTO, MAX_K, PLAIN, LaneSpec, RaceSpec
from ..drafters import cache_bytes, most_drafts
from ..exactness.probe import probe_cached
from ..exactness.widths import candidates, plan
from ..hardware.bandwidth import roofline_figures
from ..kernels.torch import Kernels
from ..layers.published import fixed_angles
from ..progress import Progress, silent
from ..runner.prepared import Prepared, sequence_bytes
from ..runner.target import StaticTarget, cache_length
from ..text import doubled_bos
from .faults import ending, fault_of
from .lanes import Lane, Order, Widths, build_lane, drafts_alone, warm_up
from .likely_tokens import Candidates

if TYPE_CHECKING:
    from ..loading.loading import LoadedModel

log = logging.getLogger(__name__)
# How often each width is timed before the first race of a length; before each later one, once. The least counts.
ROUNDS, CAPTURED_ROUNDS = 2, 7
_pools: WeakSet[Any] = WeakSet()  # the graphs' memory of all races that still exist


@dataclass(frozen=True)
class Ready:
    """A race that can start. needed: the bytes that it takes at least, weights not counted. roofline: the figures of a
    plain step halfway through, or None."""

    order: Order
    needed: int
    widths: Widths
    roofline: dict[str, Any] | None
    lanes: dict[str, Lane]


def set_up(loaded: LoadedModel, spec: RaceSpec, prompt: Prompt, progress: Progress = silent, room: int = 0) -> Ready:
    """Probe and choose the widths, then build and warm every lane. room: tokens that the caches should hold.

    Where a kernel or a capture fails, once more with the models one rung down, which later races keep. Where memory
    runs out, once more without `room`.

    Raises UsageError for what cannot be raced and RaceError where no attempt succeeds."""
    check_fits(loaded.prepared, spec, prompt)
    needed, tried, limits = 0, set[str](), list[str]()
    notes = list(filter(None, [doubled_bos(loaded.tokenizer, prompt.token_ids)]))
    while True:
        order = None
        if tried:
            gc.collect()  # the error's frames may hold what was made
            loaded.prepared.kernels.give_back_memory()
        try:
            kernels = loaded.prepared.kernels
            spec = within_limits(loaded, spec, progress, limits)
            sampler = Sampler(spec.params, loaded.prepared.vocab_size, kernels)
            order = Order(loaded, spec, prompt, sampler, _new_pool(kernels), progress, room, [*notes], [*limits])
            if (needed := needed_bytes(order)) > kernels.free_bytes():
                raise MemoryError(f"{needed} bytes are needed, {kernels.free_bytes()} are free")
            return _built(order, needed)
        except Exception as error:
            fault, why = fault_of(error, loaded.prepared.kernels), words(error)
            if not fault:
                raise
            log.warning("a race could not be set up", exc_info=True)
        if fault == "memory" and room:
            room = 0
        elif fault in tried or (fault == "kernels" and not loaded.step_down(why)):
            raise ending(fault, why, loaded.prepared.kernels, needed)
        tried.add(fault)


def _new_pool(kernels: Kernels) -> Any:
    """The graphs' memory of a new race. First collects what errors' frames hold of earlier ones, which takes 0.4 s: a
    graph that is freed during a capture breaks it."""
    if (pool := kernels.graph_pool()) is not None:
        if _pools:
            gc.collect()
        _pools.add(pool)
    return pool


def _built(order: Order, needed: int) -> Ready:
    widths = choose_widths(order)
    order.progress("measuring once how fast this machine reads memory, which bounds every step", None)
    halfway = len(order.prompt.token_ids) + order.spec.params.max_new_tokens // 2
    roofline = roofline_figures(order.prepared, halfway)
    lanes = {lane.name: build_lane(order, widths, lane) for lane in order.spec.lanes}
    order = replace(order, spec=replace(order.spec, lanes=tuple(lane.spec for lane in lanes.values())))
    for lane in lanes.values():
        if order.spec.audit and lane.spec.role != PLAIN:
            by_noise = order.spec.params.temperature > 0 and lane.accept.guarantee == "same tokens"
            lane.candidates = Candidates(order.sampler, by_noise)
    order.progress("warming up every lane", None)
    for lane in lanes.values():
        warm_up(order, lane)
    return Ready(order, needed, widths, roofline, lanes)


def within_limits(loaded: LoadedModel, spec: RaceSpec, progress: Progress, limits: list[str]) -> RaceSpec:
    """The race with the nearest k that each lane's drafter can draft. limits: gets a clause for each that changed."""
    lanes = []
    for lane in spec.lanes:
        try:
            most = MAX_K if isinstance(lane.k, str) else most_drafts(lane.drafter, loaded, progress)
        except UsageError:  # of the drafter itself: its lane says so when it is built
            most = MAX_K
        if isinstance(lane.k, int) and lane.k > most:
            limits.append(f"lane {lane.name}: k = {most} instead of {lane.k}: its head drafts at most {most}")
            lane = replace(lane, k=most)
        lanes.append(lane)
    return replace(spec, lanes=tuple(lanes))


def check_fits(prepared: Prepared, spec: RaceSpec, prompt: Prompt) -> None:
    """Raises UsageError for a prompt that this model cannot continue."""
    num_prompt, num_new, limit = len(prompt.token_ids), spec.params.max_new_tokens, prepared.shape.max_length
    if num_prompt == 0:
        raise UsageError("the prompt is empty: it gives no token to start from")
    if num_prompt + num_new > limit:
        angles = " with angles that do not depend on the length" * bool(fixed_angles(prepared.model.config.to_dict()))
        raise UsageError(
            f"the prompt's {num_prompt} tokens and {num_new} new ones exceed the model's {limit} positions{angles}; "
            "shorten the prompt or lower max_new_tokens"
        )
    if bad := [t for t in prompt.token_ids if not 0 <= t < prepared.vocab_size]:
        raise UsageError(f"prompt token {bad[0]} is outside the model's vocabulary of {prepared.vocab_size}")


def needed_bytes(order: Order) -> int:
    """A lower bound on the memory of the lanes' caches, drafters and logits. Weights are not counted, but those of
    drafters are loaded. Raises UsageError for a drafter that cannot be used."""
    prepared, lanes, (_, widths, length) = order.prepared, order.spec.lanes, _sizes(order)
    exact, narrow = (sequence_bytes(prepared, length, width) for width in (max(widths), min(widths)))
    logits = sum(widths) * prepared.vocab_size * prepared.dtype.itemsize
    sequences = sum(narrow if lane.width == "fastest" else exact for lane in lanes)
    return max(sequences, exact) + sum(_drafter_bytes(order, lane, length) for lane in lanes) + len(lanes) * logits


def _sizes(order: Order) -> tuple[int | str, tuple[int, ...], int]:
    """The width that the exact lanes share, or "auto"; the widths that are tried; the length of the static cache.
    Raises UsageError where exact lanes ask for different widths."""
    lanes = order.spec.lanes
    asked = {lane.width for lane in lanes if lane.width != "fastest"}
    if len(asked) > 1:
        given = ", ".join(map(str, sorted(asked, key=str)))
        raise UsageError(f"the exact lanes of a race share one width, not {given}")
    width, fine = asked.pop() if asked else "auto", order.prepared.kernels.on_host
    widths = tuple(sorted({w for lane in lanes for w in candidates(lane.max_drafts, width, fine)}))
    needed = len(order.prompt.token_ids) + order.spec.params.max_new_tokens
    return width, widths, cache_length(max(order.room, needed), 0, max(widths))


def _drafter_bytes(order: Order, lane: LaneSpec, length: int) -> int:
    try:
        k = MAX_K if isinstance(lane.k, str) else lane.k  # a tree may rate more tokens than it drafts
        return cache_bytes(lane.drafter, order.loaded, k, length, order.progress)
    except UsageError:
        if drafts_alone(order.spec):
            raise
        return 0  # its lane says so when it is built
    except Exception:  # it fails again when its lane is built, which then says so
        log.warning("what a drafter needs is not known", exc_info=True)
        return 0


def choose_widths(order: Order) -> Widths:
    """Raises UsageError where exact lanes ask for different widths."""
    lanes, (width, widths, length) = order.spec.lanes, _sizes(order)
    target = StaticTarget(order.prepared, length, widths, pool=order.pool)
    classes = probe_cached(target, order.loaded.info.digest, order.progress)
    order.progress("timing a step of each width", None)
    seconds = time_widths(order, target)
    k = max(0 if lane.k == AUTO else lane.max_drafts for lane in lanes)
    chosen = plan(classes, seconds, k, width, auto_k=any(lane.k == AUTO for lane in lanes))
    return Widths(width, chosen, classes, length, seconds)


def time_widths(order: Order, target: StaticTarget) -> dict[int, float]:
    """Seconds of a step at each width: the least over all races of this length, since a busy machine or a first call
    can only add. Where steps are captured, they are timed once: a new target's first step is its capture."""
    key = ("seconds", order.prepared.kernels, target.cache_length, target.widths, torch.get_num_threads())
    known: dict[int, float] = order.loaded.attached(key, dict)
    captures, position = order.pool is not None, len(order.prompt.token_ids)
    if not (captures and known):
        rounds, untimed = (CAPTURED_ROUNDS, 1) if captures else (1 if known else ROUNDS, 0)
        for width, value in target.time_widths(rounds, position, untimed).items():
            known[width] = min(value, known.get(width, value))
    return dict(known)
