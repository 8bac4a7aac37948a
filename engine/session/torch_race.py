"""A race on this machine: its events, its header and its verdict."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..analysis.metrics import num_tokens_of
from ..analysis.same import Difference, Side, Verdict, compare, part, promised, width_at
from ..core.errors import CaptureError, words
from ..core.events import Event, Failed, LaneEvent, Prompt, Step
from ..core.interfaces import Drafter
from ..core.race import race
from ..core.spec import BASELINE, LaneSpec, RaceSpec
from ..exactness.probe import explain
from ..hardware import environment
from ..hardware.core_time import core_time, waited_share
from ..progress import Progress, silent
from ..runner.target import StaticTarget
from ..text import Pieces
from .faults import check_device, ending, fault_of
from .lanes import Lane, build_drafter, decode_lane
from .set_up import set_up

if TYPE_CHECKING:
    from ..core.sampling.sampler import Sampler
    from ..loading.loading import LoadedModel

log = logging.getLogger(__name__)


class TorchRace:
    """A race of a loaded model on this machine. It is set up here, before any step is timed (see `set_up.set_up`).

    loaded: the target.
    spec: the lanes and how tokens are chosen.
    prompt: from `encode_prompt`.
    progress: called with what takes long, and how much of it is done.
    room: tokens that the lanes' caches should hold, so that races of several prompts have one length.

    `header()` is known at once; `events()` is the race, to be iterated once (closing it stops every lane within a
    step); `result()` is the verdict on what was committed. `spec` may have lost its plain lane for want of memory. A
    drafter that cannot be made ends its own lane; a kernel that fails in the race ends the race, and later ones run one
    rung down.

    Raises UsageError for what cannot be raced and RaceError for what fails on the way.
    """

    def __init__(
        self, loaded: LoadedModel, spec: RaceSpec, prompt: Prompt, progress: Progress = silent, room: int = 0
    ) -> None:
        self.created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.ready = set_up(loaded, spec, prompt, progress, room)
        self.order, self.widths, self.lanes = self.ready.order, self.ready.widths, self.ready.lanes
        self.loaded, self.spec, self.prompt = loaded, self.order.spec, prompt
        self.prepared, self.sampler, self.end_ids = self.order.prepared, self.order.sampler, self.order.end_ids
        self.waited_share: float | None = None

    def end_if_device_fails(self, error: Exception) -> None:
        """Raises RaceError if the error means that this race cannot go on: memory ran out, kernels fail, or the device
        is lost. If kernels failed, the model goes down a rung for later races."""
        kernels = self.prepared.kernels
        if not (fault := fault_of(error, kernels)):
            check_device(kernels)
            return
        why = words(error)
        if fault == "kernels" and self.loaded.step_down(why):
            why += "; the next race runs without what failed"
        raise ending(fault, why, kernels, self.ready.needed) from error

    @contextmanager
    def guard(self) -> Iterator[None]:
        """`end_if_device_fails` for a device's errors within."""
        try:
            yield
        except (CaptureError, RuntimeError, MemoryError) as error:
            log.warning("a race failed when it was over", exc_info=True)
            self.end_if_device_fails(error)
            raise

    def build_drafter(self, lane: LaneSpec, sampler: Sampler) -> Drafter:
        """The drafter that such a lane of this race has, if it picks with this sampler; with k "auto" without its
        choice of k."""
        return build_drafter(replace(self.order, sampler=sampler), self.widths, lane)

    def reader(self, hidden_layers: Sequence[int], on_prefill: Callable[[float], None]) -> StaticTarget:
        """A separate sequence whose steps have the exact lanes' widest width; arguments as for StaticTarget."""
        widths, pool = (max(self.widths.plan.step_widths),), self.order.pool
        return StaticTarget(self.prepared, self.widths.length, widths, hidden_layers, pool=pool, on_prefill=on_prefill)

    def _with_pieces(self, lane: Lane) -> Iterator[Event]:
        """A lane's events, with text filled in between steps, outside the clock."""
        if lane.failure:
            lane.end(Failed(lane.failure))
            yield Failed(lane.failure)
            return
        ends, pieces = self.order.ending(), self.order.pieces()
        with closing(decode_lane(self.order, lane, ends, self.end_if_device_fails)) as source:  # type: ignore[type-var]
            for event in source:
                if isinstance(event, Step):
                    drafted = pieces.peek(event.drafted, event.follows)
                    committed = pieces.push(event.token_ids)
                    if ends.reason is not None:
                        committed = (*committed[:-1], committed[-1] + pieces.flush())
                    event = replace(event, pieces=committed, drafted_pieces=drafted)
                    lane.steps.append(event)
                lane.end(event)
                yield event

    def events(self) -> Iterator[LaneEvent]:
        """The race, on the fair clock (or lane after lane, with `solo`). Raises RaceError if the device fails."""
        before = core_time()
        yield from race({name: self._with_pieces(lane) for name, lane in self.lanes.items()}, self.spec.solo)
        self.waited_share = waited_share(before, core_time())

    def header(self) -> dict[str, Any]:
        """Everything known before the first step that is needed to judge or repeat the race."""
        plan_ = self.widths.plan
        about = environment.circumstances(self.prepared)
        about["runs"]["sentence"] = "; ".join([about["runs"]["sentence"], *self.order.notes])
        return {
            "model": self.loaded.info.about(),
            **about,
            "created": self.created,
            "widths": {
                "width": plan_.width,
                "widths_class": list(self.widths.classes.of(plan_.width)),
                "step_widths": list(plan_.step_widths),
                "plain_width": plan_.plain_width,
                "exact": plan_.exact,
                "cache_length": self.widths.length,
                "step_s": {str(width): seconds for width, seconds in self.widths.seconds.items()},
                "note": "; ".join([plan_.note, *self.order.limits]),
            },
            "roofline": self.ready.roofline,
            "synthetic": [name for name, lane in self.lanes.items() if lane.drafter.synthetic],
            "spec": self.spec.to_json(),
            "prompt": {**asdict(self.prompt), "token_ids": list(self.prompt.token_ids)},
        }

    def result(self) -> dict[str, Any]:
        """`verdicts` on every other lane against the baseline, by name; {} without a baseline. `waited_share`: the
        share of the race's time that its threads waited for a core, if the system reports it. In an audited race also
        `candidates`: see `recordings/extras.py`. Raises RaceError if the device fails."""
        waited = {} if self.waited_share is None else {"waited_share": round(self.waited_share, 4)}
        with self.guard():
            return {"verdicts": self._verdicts(), **waited, **self._looked_at()}

    def _verdicts(self) -> dict[str, Any]:
        verdicts: dict[str, Any] = {}
        for baseline in self.spec.named(BASELINE):
            own = self.lanes[baseline].steps
            places = {name: part(own, lane.steps).first or 0 for name, lane in self.lanes.items() if name != baseline}
            verdicts = dict.fromkeys(places)
            # explaining rolls the baseline's cache back to where a lane parts: the last to part comes first
            for name in sorted(places, key=places.__getitem__, reverse=True):
                verdicts[name] = self.compare(baseline, name).to_json()
        return verdicts

    def _looked_at(self) -> dict[str, Any]:
        lanes = {name: lane.candidates.steps for name, lane in self.lanes.items() if lane.candidates}
        if not lanes:
            return {}
        tokens = {token for steps in lanes.values() for rows in steps for row in rows for token in row["ids"]}
        pieces = Pieces(self.loaded.tokenizer, (), self.end_ids)
        return {
            "candidates": {
                "seeds": [self.spec.params.seed] * (self.spec.params.temperature > 0),
                "pieces": {str(token): pieces.peek((token,))[0] for token in sorted(tokens)},
                "lanes": lanes,
            }
        }

    def compare(self, first: str, second: str) -> Verdict:
        """The verdict on what two lanes have committed so far."""
        a, b = self.lanes[first], self.lanes[second]
        if "same distribution" in (a.accept.guarantee, b.accept.guarantee):
            sides = [Side(lane.spec.name, num_tokens_of(lane.steps), lane.state) for lane in (a, b)]
            return promised(sides, (a if a.accept.guarantee == "same distribution" else b).spec.rule)
        widths = {step.width for lane in (a, b) for step in lane.steps if step.width}
        classes = self.widths.classes
        same_class = len({classes.of(width) for width in widths}) <= 1 and not widths & set(classes.unstable)
        return compare(
            a.steps,
            b.steps,
            names=(first, second),
            same_class=same_class,
            dtype=self.loaded.info.dtype,
            explain=partial(self._explain, a, b),
            states=(a.state, b.state),
        )

    def _explain(self, a: Lane, b: Lane, position: int, tokens: tuple[int, int]) -> Difference:
        """Compute the row at `position` again in both lanes, as they did, and measure how close the choice was."""
        rows, widths = [], (width_at(a.steps, position), width_at(b.steps, position))
        for lane, width in zip((a, b), widths, strict=True):
            tokens_in = [self.prompt.token_ids[-1], *(t for step in lane.steps for t in step.token_ids)]
            self._go_back(lane, position, tokens_in)
            logits, _ = lane.target.extend([tokens_in[position]], 1, width=width)
            rows.append(logits[0].clone())
        first, second = (self.loaded.tokenizer.decode([t]) for t in tokens)
        closeness = explain(self.sampler, rows[0], rows[1], position, tokens)
        return Difference(position, tokens, (first, second), widths, *closeness)

    def _go_back(self, lane: Lane, position: int, tokens_in: Sequence[int]) -> None:
        """Take a lane's target back to the row at `position`. tokens_in: of all rows that were kept. Linear layers keep
        the last step's states alone, so they read all of it again, in steps of the same widths."""
        target, prompt_ids = lane.target, self.prompt.token_ids
        if self.prepared.shape.linear is None:
            target.rollback(len(prompt_ids) - 1 + position)
            return
        target.jump(0)
        target.extend(prompt_ids[:-1], 0)
        for step in lane.steps:
            if step.position < position:
                stop = min(position, step.position + len(step.token_ids))
                target.extend(tokens_in[step.position : stop], 1, step.width)
