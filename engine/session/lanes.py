"""The lanes of a race: built, warmed up and decoded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..analysis.same import State
from ..core.decode import decode
from ..core.errors import CaptureError, UsageError, words
from ..core.events import Event, Failed, Finished, Prompt, Step
from ..core.interfaces import AcceptRule, Drafter
from ..core.sampling.accept import Coupled, distribution_rule, drafters_sampler
from ..core.sampling.sampler import Sampler
from ..core.spec import AUTO, MAX_AUTO_K, SPECULATIVE, LaneSpec, RaceSpec, tree_size
from ..drafters import DrafterContext, make
from ..drafters.auto import AutoDrafter, parts_of
from ..drafters.none import NoDrafter
from ..exactness.widths import WidthClasses, WidthPlan
from ..progress import Progress
from ..runner.prepared import Prepared
from ..runner.target import StaticTarget
from ..text import Pieces, StopAt, end_token_ids
from .faults import check_device, fault_of
from .likely_tokens import Candidates

if TYPE_CHECKING:
    from ..loading.loading import LoadedModel

log = logging.getLogger(__name__)
FIXED_K = 4  # in the place of `auto`, where tokens have no chances by which to choose


@dataclass(frozen=True)
class Order:
    """What a race is set up from. sampler: the target's choice of tokens. pool: memory that the lanes' graphs share.
    room: the least number of tokens that the caches hold. notes: where the race is not as usual or as asked, for the
    header; limits: how drafters' limits changed its lanes. Set-up adds to both."""

    loaded: LoadedModel
    spec: RaceSpec
    prompt: Prompt
    sampler: Sampler
    pool: Any
    progress: Progress
    room: int = 0
    notes: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)

    @property
    def prepared(self) -> Prepared:
        return self.loaded.prepared

    @property
    def end_ids(self) -> frozenset[int]:
        model = self.loaded.model
        return end_token_ids(model.config, model.generation_config, self.loaded.tokenizer)

    def pieces(self) -> Pieces:
        return Pieces(self.loaded.tokenizer, self.prompt.token_ids, self.end_ids)

    def ending(self) -> StopAt:
        return StopAt(self.spec.params, self.end_ids, self.pieces() if self.spec.params.stop else None)


@dataclass(frozen=True)
class Widths:
    """The widths of a race. asked: the width that the exact lanes share, or "auto". length: tokens that a cache holds.
    seconds: of a step, by width."""

    asked: int | str
    plan: WidthPlan
    classes: WidthClasses
    length: int
    seconds: dict[int, float]

    def of(self, spec: LaneSpec) -> tuple[int, ...]:
        """The widths of a lane's steps."""
        return (self.plan.plain_width,) if spec.width == "fastest" else self.plan.step_widths

    def max_drafts(self, spec: LaneSpec) -> int:
        """The most tokens that a step of the lane drafts: k, or for "auto" what its widest step holds."""
        return min(spec.max_drafts, max(self.of(spec)) - 1) if spec.k == AUTO else spec.max_drafts


@dataclass
class Lane:
    """One lane's parts, and what it has committed so far. k: the most tokens that a step drafts. failure: why the
    drafter could not be made, in a sentence; such a lane is never run. candidates: where the race is audited."""

    spec: LaneSpec
    target: StaticTarget
    drafter: Drafter
    accept: AcceptRule
    k: int
    failure: str = ""
    candidates: Candidates | None = None
    steps: list[Step] = field(default_factory=list)
    state: State = "stopped"  # until it has finished or failed

    def end(self, event: Event) -> None:
        """Take note of how the lane ended, if this event says so."""
        if isinstance(event, (Finished, Failed)):
            self.state = "finished" if isinstance(event, Finished) else "failed"


def drafts_alone(spec: RaceSpec) -> bool:
    """Whether nothing is left to compare if a drafting lane cannot run."""
    return len(spec.named(SPECULATIVE)) < 2


def rule_of(order: Order, spec: LaneSpec) -> AcceptRule:
    """The lane's acceptance rule, with the race's sampler."""
    return distribution_rule(order.spec.params, order.sampler) if spec.rule == "rejection" else Coupled(order.sampler)


def build_drafter(order: Order, widths: Widths, spec: LaneSpec) -> Drafter:
    """A lane's drafter, without the choice of how much to draft that `build_lane` adds."""
    accept = rule_of(order, spec)
    context = DrafterContext(
        loaded=order.loaded,
        params=order.spec.params,
        k=max(MAX_AUTO_K, tree_size(spec.k)) if isinstance(spec.k, str) else spec.k,
        length=widths.length,
        sample=drafters_sampler(accept, order.sampler),
        prompt=order.prompt,
        reference=partial(reference, order, widths),
        progress=order.progress,
        keep_logits=accept.guarantee == "same distribution",
        auto_k=isinstance(spec.k, str),
        pool=order.pool,
    )
    return make(spec.drafter, context)


def build_lane(order: Order, widths: Widths, spec: LaneSpec) -> Lane:
    """A lane, not warmed up yet; its spec may have another k than asked for, which its drafter can draft. Raises what
    was raised where memory ran out or a capture failed, and UsageError for a drafter that cannot be used, if no other
    lane drafts; anything else that a drafter fails at becomes the lane's `failure`."""
    accept, failure = rule_of(order, spec), ""
    try:
        drafter = build_drafter(order, widths, spec)
        is_coupled, rates_tokens = accept.guarantee == "same tokens", parts_of(drafter) is not None
        if isinstance(spec.k, str) and not (is_coupled and rates_tokens):
            most = min(tree_size(spec.k) or FIXED_K, drafter.max_k, widths.max_drafts(spec))
            why = "its drafter rates no tokens" if is_coupled else f"under rule {spec.rule} it is fixed"
            order.limits.append(f"lane {spec.name}: k = {most} instead of {spec.k}: {why}")
            spec = replace(spec, k=most)
            drafter = build_drafter(order, widths, spec)
    except UsageError as error:
        if drafts_alone(order.spec):
            raise
        drafter, failure = NoDrafter(), str(error)
    except Exception as error:
        if isinstance(error, CaptureError) or fault_of(error, order.prepared.kernels) == "memory":
            raise
        check_device(order.prepared.kernels)
        log.warning("the drafter of lane %s could not be made", spec.name, exc_info=True)
        drafter, failure = NoDrafter(), f"the drafter could not be made: {words(error)}"
    order.notes.extend(f"lane {spec.name}: {part.runs}" for part in (drafter, *drafter.parts) if part.runs)
    k = widths.max_drafts(spec)
    on_prefill = partial(order.progress, f"reading the prompt: lane {spec.name}")
    needed = widths.length, widths.of(spec), drafter.hidden_layers
    target = StaticTarget(order.prepared, *needed, pool=order.pool, on_prefill=on_prefill)
    if isinstance(spec.k, str) and not failure:
        if not target.takes_trees:
            kernels = order.prepared.kernels.name
            order.notes.append(f"lane {spec.name} drafts chains: this model's steps on {kernels} kernels take no trees")
        step_s = [widths.seconds[target.width_for(num + 1)] for num in range(k + 1)]
        temperature, size = order.spec.params.temperature, tree_size(spec.k)
        drafter = AutoDrafter(drafter, step_s, target.takes_trees, temperature, size)
    return Lane(spec, target, drafter, accept, k, failure)


def reference(order: Order, widths: Widths) -> list[int]:
    """The target's own completion, from an untimed run of the exact lanes' loop without a drafter."""
    order.progress("decoding once, untimed, for the synthetic drafter", None)
    lane = build_lane(order, widths, LaneSpec("reference", width=widths.asked))
    return [t for event in decode_lane(order, lane) if isinstance(event, Step) for t in event.token_ids]


def decode_lane(
    order: Order, lane: Lane, ending: StopAt | None = None, on_error: Callable[[Exception], None] | None = None
) -> Iterator[Event]:
    """A lane's events as the loop yields them: without text, and not kept in `lane.steps`. on_error: see
    `decode.decode`."""
    return decode(
        lane.target,
        lane.drafter,
        lane.accept,
        order.prompt.token_ids,
        ending or order.ending(),
        order.spec.params.max_new_tokens,
        lane.k,
        audit=order.spec.audit,
        look=lane.candidates.look if lane.candidates else None,
        on_error=on_error,
    )


def warm_up(order: Order, lane: Lane) -> None:
    """Run once, untimed, whatever the lane will run, and let an `auto` drafter time its drafts. Steps that are not
    graphs of the lane's own ran when the widths were timed."""
    if lane.failure:
        return
    lane.target.warm(order.prompt.token_ids[:-1], lane.accept, steps=order.pool is not None)
    if isinstance(lane.drafter, AutoDrafter):
        order.progress("timing the guesses", None)
        _calibrate(order, lane.drafter)


def _calibrate(order: Order, drafter: AutoDrafter) -> None:
    """Over random hidden states: a draft costs the same over any. One that fails here says so in its lane."""
    prompt_ids, prepared = order.prompt.token_ids, order.prepared
    size = len(prompt_ids) - 1, len(drafter.hidden_layers) * prepared.shape.hidden_size
    rows = torch.randn(size, generator=torch.Generator().manual_seed(0)).to(prepared.device, prepared.dtype)
    try:
        drafter.calibrate(prompt_ids, rows if drafter.hidden_layers else None)
    except Exception as error:
        if fault_of(error, prepared.kernels) == "memory":
            raise
        check_device(prepared.kernels)
        log.warning("a drafter failed before its race", exc_info=True)
