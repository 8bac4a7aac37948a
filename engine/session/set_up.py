"""A race is set up in named steps, each of which takes values and returns some:

    check_fits        the prompt, the model's positions
    choose_widths     exact classes (probed, or remembered), what each width costs, the widths of every lane
    read_roofline     the bytes of a plain step, and how fast this device reads
    build_lane        a lane's rule, drafter and target
    warm_up           everything that a lane will run, once, untimed

Which forward a lane runs was decided before, when the model was made ready (`target/prepare.py`): `Prepared.kernels` is
asked for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..choice.accept import coupled, drafters_sampler, rejection
from ..choice.sampler import Sampler
from ..drafters import DrafterContext, make
from ..drafters.auto import AutoDrafter
from ..errors import UsageError
from ..events import Prompt, Step
from ..exactness.probe import probe_cached
from ..exactness.widths import WidthClasses, WidthPlan, candidates, plan
from ..interfaces import AcceptRule, Drafter
from ..measure.bandwidth import roofline_figures
from ..progress import Progress
from ..spec import AUTO, LaneSpec, RaceSpec
from ..target.prepared import Prepared
from ..target.target import StaticTarget, cache_length

if TYPE_CHECKING:
    from ..models.loading import LoadedModel

log = logging.getLogger(__name__)
ROUNDS = 2
"""In which widths are timed before the first race of a length; before each later one, once. The least counts."""


@dataclass
class Lane:
    """One lane's parts, and what it has said so far."""

    spec: LaneSpec
    target: StaticTarget
    drafter: Drafter
    accept: AcceptRule
    steps: list[Step]
    finished: bool = False


@dataclass(frozen=True)
class Order:
    """What a race is set up from. pool: memory that the lanes' graphs share. room: tokens that the static cache holds
    at least."""

    loaded: LoadedModel
    spec: RaceSpec
    prompt: Prompt
    sampler: Sampler
    pool: Any
    progress: Progress
    room: int = 0

    @property
    def prepared(self) -> Prepared:
        return self.loaded.prepared


@dataclass(frozen=True)
class Widths:
    """What was found and decided. asked: the width that the exact lanes share, or "auto". length: of the static cache.
    seconds: of a step, by width."""

    asked: int | str
    plan: WidthPlan
    classes: WidthClasses
    length: int
    seconds: dict[int, float]


def check_fits(prepared: Prepared, spec: RaceSpec, prompt: Prompt) -> None:
    """Raises UsageError for a prompt that this model cannot go on with."""
    num_prompt, num_new, limit = len(prompt.token_ids), spec.params.max_new_tokens, prepared.shape.max_length
    if num_prompt == 0:
        raise UsageError("the prompt is empty: it gives no token to start from")
    if num_prompt + num_new > limit:
        raise UsageError(
            f"the prompt's {num_prompt} tokens and {num_new} new ones exceed the model's {limit} positions; "
            "shorten the prompt or lower max_new_tokens"
        )
    if bad := [t for t in prompt.token_ids if not 0 <= t < prepared.vocab_size]:
        raise UsageError(f"prompt token {bad[0]} is outside the model's vocabulary of {prepared.vocab_size}")


def choose_widths(order: Order) -> Widths:
    """Raises UsageError where the exact lanes ask for different widths."""
    lanes, num_prompt = order.spec.lanes, len(order.prompt.token_ids)
    asked = {lane.width for lane in lanes if lane.width != "fastest"}
    if len(asked) > 1:
        raise UsageError(
            f"the exact lanes of a race share one width, not {', '.join(map(str, sorted(asked, key=str)))}"
        )
    width = asked.pop() if asked else "auto"
    fine = order.prepared.kernels.rows_cost
    widths = tuple(sorted({w for lane in lanes for w in candidates(lane.max_drafts, width, fine)}))
    length = cache_length(max(order.room, num_prompt + order.spec.params.max_new_tokens), 0, max(widths))
    target = StaticTarget(order.prepared, length, widths, pool=order.pool)
    classes = probe_cached(target, order.loaded.info.digest, order.progress)
    order.progress("timing a step of each width", None)
    seconds = time_widths(order, target)
    k = max(lane.k if isinstance(lane.k, int) else 0 for lane in lanes)
    chosen = plan(classes, seconds, k, width, auto_k=any(lane.k == AUTO for lane in lanes))
    return Widths(width, chosen, classes, length, seconds)


def time_widths(order: Order, target: StaticTarget) -> dict[int, float]:
    """Seconds of a step at each width: the least of all races of this length, since a busy machine, a first call or the
    capture of a graph can only add."""
    key = ("seconds", target.cache_length, target.widths, torch.get_num_threads())
    known: dict[int, float] = order.loaded.attached(key, dict)
    rounds = 1 if known else ROUNDS
    for width, value in target.time_widths(rounds, len(order.prompt.token_ids), untimed=0).items():
        known[width] = min(value, known.get(width, value))
    return dict(known)


def read_roofline(order: Order) -> dict[str, Any] | None:
    """The figures of a plain step halfway through the race."""
    order.progress("measuring once how fast this machine reads memory, which bounds every step", None)
    return roofline_figures(order.prepared, len(order.prompt.token_ids) + order.spec.params.max_new_tokens // 2)


def build_drafter(
    order: Order, widths: Widths, lane: LaneSpec, accept: AcceptRule, reference: Callable[[], Sequence[int]]
) -> Drafter:
    """A lane's drafter, which `auto` k may ask. reference: gives the target's own completion, from an untimed run, for
    drafters that ask for it."""
    most = max(_widths_of(lane, widths)) - 1
    context = DrafterContext(
        loaded=order.loaded,
        params=order.spec.params,
        k=min(lane.max_drafts, most) if lane.k == AUTO else lane.max_drafts,
        length=widths.length,
        sample=drafters_sampler(accept, order.sampler),
        prompt=order.prompt,
        reference=reference,
        progress=order.progress,
        keep_logits=accept.guarantee == "same distribution",
        auto_k=lane.k == AUTO,
        pool=order.pool,
    )
    return make(lane.drafter, context)


def build_lane(order: Order, widths: Widths, lane: LaneSpec, reference: Callable[[], Sequence[int]]) -> Lane:
    """A lane, not warmed up yet. reference: see `build_drafter`."""
    accept, its = rule_of(order, lane), _widths_of(lane, widths)
    drafter = build_drafter(order, widths, lane, accept, reference)
    on_prefill = partial(order.progress, f"reading the prompt: lane {lane.name}")
    target = StaticTarget(
        order.prepared, widths.length, its, drafter.hidden_layers, pool=order.pool, on_prefill=on_prefill
    )
    if lane.k == AUTO:
        step_s = [widths.seconds[target.width_for(num + 1)] for num in range(min(lane.max_drafts + 1, max(its)))]
        drafter = AutoDrafter(drafter, step_s, by_margin=accept.guarantee == "same tokens")
    return Lane(lane, target, drafter, accept, [])


def _widths_of(lane: LaneSpec, widths: Widths) -> tuple[int, ...]:
    return (widths.plan.plain_width,) if lane.width == "fastest" else widths.plan.step_widths


def rule_of(order: Order, lane: LaneSpec) -> AcceptRule:
    """The lane's acceptance rule, with the race's sampler."""
    return {"coupled": coupled, "rejection": rejection}[lane.rule](order.spec.params, order.sampler)


def warm_up(order: Order, lanes: Sequence[Lane]) -> None:
    """Run once, untimed, whatever the lanes will run, and let `auto` drafters time their drafts. Steps that are no
    graphs of a lane's own ran when the widths were timed."""
    order.progress("warming up every lane", None)
    for lane in lanes:
        lane.target.warm(order.prompt.token_ids[:-1], lane.accept, steps=order.pool is not None)
        if isinstance(lane.drafter, AutoDrafter):
            order.progress("timing the guesses", None)
            _calibrate(order, lane.drafter)


def _calibrate(order: Order, drafter: AutoDrafter) -> None:
    """Over random hidden states: what a draft costs does not depend on them, and the prompt is read once less. A
    drafter that fails at it will fail in its lane, where it is told."""
    prompt_ids, prepared = order.prompt.token_ids, order.prepared
    size = len(prompt_ids) - 1, len(drafter.hidden_layers) * prepared.shape.hidden_size
    rows = torch.randn(size, generator=torch.Generator().manual_seed(0)).to(prepared.device, prepared.dtype)
    try:
        drafter.calibrate(prompt_ids, rows if drafter.hidden_layers else None)
    except Exception:
        log.warning("a drafter failed before its race", exc_info=True)
