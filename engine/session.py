"""A race on this machine: a loaded model, a prompt and a RaceSpec become one stream of lane events, a header and a verdict."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .choice.accept import drafters_sampler
from .choice.sampler import Sampler
from .decode import decode
from .drafters import DrafterContext, make
from .drafters.auto import AutoDrafter
from .errors import RaceError, UsageError
from .events import Event, Finished, LaneEvent, Prompt, Step
from .exactness.probe import explain, probe_cached
from .exactness.verdict import Difference, Verdict, compare, width_at
from .exactness.widths import WidthPlan, candidates, plan
from .interfaces import AcceptRule, Drafter
from .measure import environment
from .measure.bandwidth import measured_bandwidth, step_bytes
from .progress import Progress, silent
from .race import race
from .spec import AUTO, RULES, LaneSpec, RaceSpec
from .target.target import StaticTarget, cache_length
from .text import Pieces, StopAt, end_token_ids

if TYPE_CHECKING:
    from .models.loading import LoadedModel

log = logging.getLogger(__name__)
REFERENCE = "baseline"
PLAIN = "plain"
ROUNDS, ROUNDS_AGAIN = 7, 1


@dataclass
class Lane:
    """One lane's parts, and what it has said so far."""

    spec: LaneSpec
    target: StaticTarget
    drafter: Drafter
    accept: AcceptRule
    steps: list[Step]
    finished: bool = False


class TorchRace:
    """Probes and chooses the widths, builds and warms every lane (all before the first timed step), then runs.

    `header()` is known at once; `events()` is the race, to be iterated once (closing it stops every lane within a step); `result()` is the
    verdict on what was committed. Raises UsageError for what cannot be raced and RaceError for what fails on the way.
    """

    def __init__(self, loaded: LoadedModel, spec: RaceSpec, prompt: Prompt, progress: Progress = silent) -> None:
        self.loaded, self.spec, self.prompt, self.progress = loaded, spec, prompt, progress
        self.prepared = loaded.prepared
        self._check_fits()
        self.end_ids = end_token_ids(loaded.model.config, loaded.model.generation_config, loaded.tokenizer)
        self.sampler = Sampler(spec.params, self.prepared.vocab_size, self.prepared.kernels)
        self.created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.pool = self.prepared.kernels.graph_pool()
        self.plan, self.classes, self.length = self._plan_widths()
        self.roofline = self._roofline()
        self.lanes = {lane.name: self._build(lane) for lane in spec.lanes}
        self.progress("warming up every lane", None)
        for lane in self.lanes.values():
            lane.target.warm(prompt.token_ids[:-1], lane.accept)
            self._calibrate(lane)

    def _check_fits(self) -> None:
        num_prompt, num_new, limit = len(self.prompt.token_ids), self.spec.params.max_new_tokens, self.prepared.shape.max_length
        if num_prompt == 0:
            raise UsageError("the prompt is empty: it gives no token to start from")
        if num_prompt + num_new > limit:
            raise UsageError(f"the prompt's {num_prompt} tokens and {num_new} new ones exceed the model's {limit} positions; shorten the prompt or lower max_new_tokens")
        if bad := [t for t in self.prompt.token_ids if not 0 <= t < self.prepared.vocab_size]:
            raise UsageError(f"prompt token {bad[0]} is outside the model's vocabulary of {self.prepared.vocab_size}")

    def _plan_widths(self) -> tuple[WidthPlan, Any, int]:
        lanes = self.spec.lanes
        k, most = max(lane.k if isinstance(lane.k, int) else 0 for lane in lanes), max(lane.max_drafts for lane in lanes)
        asked = {lane.width for lane in lanes if lane.width != "fastest"}
        if len(asked) > 1:
            raise UsageError(f"the exact lanes of a race share one width, not {', '.join(map(str, sorted(asked, key=str)))}")
        width = asked.pop() if asked else "auto"
        widths = candidates(most, width, fine=self.prepared.kernels.rows_cost)
        length = cache_length(len(self.prompt.token_ids), self.spec.params.max_new_tokens, max(widths))
        found = probe_cached(self.prepared, self.loaded.info.digest, length, widths, self.progress)
        self.progress("measuring what each width costs", None)
        seconds = self._time_widths(length, widths)
        self.seconds = seconds
        return plan(found, seconds, k, width, auto_k=any(lane.k == AUTO for lane in lanes)), found, length

    def _time_widths(self, length: int, widths: Sequence[int]) -> dict[int, float]:
        """Seconds of a step at each width: measured whole for the first race of this length, then once more a race, the least counting, since a busy
        machine can only add."""
        import torch

        known: dict[int, float] = self.loaded.attached(("seconds", length, tuple(widths), torch.get_num_threads()), dict)
        target = StaticTarget(self.prepared, length, widths, pool=self.pool)
        for width, value in target.time_widths(ROUNDS_AGAIN if known else ROUNDS, len(self.prompt.token_ids)).items():
            known[width] = min(value, known.get(width, value))
        return dict(known)

    def _roofline(self) -> dict[str, Any] | None:
        """What a plain step halfway through the race must read, and how fast this device reads; None where there is no room to measure it."""
        import torch

        self.progress("measuring the memory bandwidth", None)
        try:
            bandwidth = measured_bandwidth(self.prepared.device, torch.get_num_threads())
        except RaceError:
            log.warning("the memory bandwidth was not measured", exc_info=True)
            return None
        num_bytes = step_bytes(self.prepared, len(self.prompt.token_ids) + self.spec.params.max_new_tokens // 2)
        return {"bytes_per_step": num_bytes, "bandwidth_bytes_per_s": bandwidth.bytes_per_s, "how": bandwidth.how}

    def _build(self, lane: LaneSpec) -> Lane:
        widths = (self.plan.plain_width,) if lane.width == "fastest" else self.plan.step_widths
        accept = self._rule(lane)
        k = min(lane.max_drafts, max(widths) - 1) if lane.k == AUTO else lane.max_drafts
        context = DrafterContext(
            loaded=self.loaded,
            params=self.spec.params,
            k=k,
            length=self.length,
            sample=drafters_sampler(accept, self.sampler),
            prompt=self.prompt,
            reference=self._reference,
            progress=self.progress,
            keep_logits=accept.guarantee == "same distribution",
            auto_k=lane.k == AUTO,
            pool=self.pool,
        )
        drafter = make(lane.drafter, context)
        target = StaticTarget(self.prepared, self.length, widths, drafter.hidden_layers, pool=self.pool)
        if lane.k == AUTO:
            step_s = [self.seconds[target.width_for(num + 1)] for num in range(k + 1)]
            drafter = AutoDrafter(drafter, step_s, by_margin=accept.guarantee == "same tokens")
        return Lane(lane, target, drafter, accept, [])

    def _calibrate(self, lane: Lane) -> None:
        """Let an `auto` drafter time its drafts. One that fails at it will fail in its lane, where it is told."""
        if isinstance(lane.drafter, AutoDrafter):
            self.progress("measuring what drafts cost", None)
            _, hidden = lane.target.extend(self.prompt.token_ids[:-1], 0)
            try:
                lane.drafter.calibrate(self.prompt.token_ids, hidden)
            except Exception:
                log.warning("a drafter failed before its race", exc_info=True)
            lane.target.rollback(0)

    def _rule(self, lane: LaneSpec) -> AcceptRule:
        module, _, attribute = RULES[lane.rule].partition(":")
        return getattr(import_module(module), attribute)(self.spec.params, self.sampler)

    def _reference(self) -> Sequence[int]:
        """The target's own completion, from an untimed run of the exact lanes' loop without a drafter: what `synthetic` drafts from."""
        self.progress("decoding once, untimed, for the synthetic drafter", None)
        none = LaneSpec("reference", width=self.spec.lanes[-1].width)
        lane = self._build(none)
        return [t for event in self._decode(lane) if isinstance(event, Step) for t in event.token_ids]

    def _decode(self, lane: Lane, ending: StopAt | None = None) -> Iterator[Event]:
        ending = ending or self._ending()
        params = self.spec.params
        return decode(lane.target, lane.drafter, lane.accept, self.prompt.token_ids, ending, params.max_new_tokens, lane.spec.max_drafts, audit=self.spec.audit)

    def _pieces(self) -> Pieces:
        return Pieces(self.loaded.tokenizer, self.prompt.token_ids, self.end_ids)

    def _ending(self) -> StopAt:
        return StopAt(self.spec.params, self.end_ids, self._pieces() if self.spec.params.stop else None)

    def _with_pieces(self, lane: Lane) -> Iterator[Event]:
        """A lane's events, with text filled in between steps, outside the clock."""
        ending, pieces = self._ending(), self._pieces()
        source = self._decode(lane, ending)
        try:
            for event in source:
                if isinstance(event, Step):
                    drafted = pieces.peek(event.drafted)
                    committed = pieces.push(event.token_ids)
                    if ending.reason is not None:
                        committed = (*committed[:-1], committed[-1] + pieces.flush())
                    event = replace(event, pieces=committed, drafted_pieces=drafted)
                    lane.steps.append(event)
                lane.finished = lane.finished or isinstance(event, Finished)
                yield event
        finally:
            source.close()  # type: ignore[attr-defined]

    def events(self) -> Iterator[LaneEvent]:
        """The race itself, on the fair clock (or lane after lane, with `solo`)."""
        yield from race({name: self._with_pieces(lane) for name, lane in self.lanes.items()}, self.spec.solo)

    def header(self) -> dict[str, Any]:
        """Everything known before the first step that is needed to judge or repeat the race."""
        info, plan_ = self.loaded.info, self.plan
        return {
            "model": {"name": info.name, "revision": info.revision, "digest": info.digest, "dtype": info.dtype, "licence": info.licence},
            "device": self.prepared.kernels.about_device(),
            "versions": environment.versions(self.prepared.kernels.describe(self.prepared.model)),
            "runs": self.prepared.kernels.runs(self.prepared.model),
            "commit": environment.commit(),
            "created": self.created,
            "widths": {
                "width": plan_.width,
                "widths_class": list(plan_.widths_class),
                "step_widths": list(plan_.step_widths),
                "plain_width": plan_.plain_width,
                "exact": plan_.exact,
                "cache_length": self.length,
                "step_s": {str(width): seconds for width, seconds in self.seconds.items()},
                "note": plan_.note,
            },
            "roofline": self.roofline,
            "synthetic": [name for name, lane in self.lanes.items() if lane.drafter.synthetic],
            "spec": json.loads(json.dumps(asdict(self.spec))),
            "prompt": {"text": self.prompt.text, "token_ids": list(self.prompt.token_ids)},
        }

    def result(self) -> dict[str, Any]:
        """The verdict on the last exact lane against the baseline, and on the plain lane against the baseline; None where a lane is missing."""
        others = [name for name in self.lanes if name not in (REFERENCE, PLAIN)]
        return {
            "verdict": self._compare(REFERENCE, others[-1]) if others else None,
            "plain_verdict": self._compare(REFERENCE, PLAIN),
        }

    def _compare(self, first: str, second: str) -> dict[str, Any] | None:
        if first not in self.lanes or second not in self.lanes:
            return None
        a, b = self.lanes[first], self.lanes[second]
        if "same distribution" in (a.accept.guarantee, b.accept.guarantee):
            return _same_distribution(a, b).to_json()
        widths = {step.width for lane in (a, b) for step in lane.steps}
        classes = {self.classes.of(width) for width in widths}
        same_class = len(classes) <= 1 and not widths & set(self.classes.unstable)

        def measure(position: int, token_a: int, token_b: int) -> Difference:
            return self._explain(a, b, position, (token_a, token_b))

        return compare(a.steps, b.steps, names=(first, second), same_class=same_class, dtype=self.loaded.info.dtype, explain=measure, finished=a.finished and b.finished).to_json()

    def _explain(self, a: Lane, b: Lane, position: int, tokens: tuple[int, int]) -> Difference:
        """Compute the row at `position` again in both lanes, from their own caches at their own widths, and measure how close the choice was."""
        rows = []
        for lane in (a, b):
            last = self.prompt.token_ids[-1] if position == 0 else [t for s in lane.steps for t in s.token_ids][position - 1]
            lane.target.rollback(len(self.prompt.token_ids) - 1 + position)
            logits, _ = lane.target.extend([last], 1, width=width_at(lane.steps, position))
            rows.append(logits[0].clone())
        margin, rounding, share = explain(self.sampler, rows[0], rows[1], position, tokens)
        pieces = tuple(self.loaded.tokenizer.decode([t]) for t in tokens)
        return Difference(position, tokens, (pieces[0], pieces[1]), (width_at(a.steps, position), width_at(b.steps, position)), margin, rounding, share)


def _same_distribution(a: Lane, b: Lane) -> Verdict:
    """The verdict on two lanes that do not promise the same tokens: nothing is compared."""
    rule = (a if a.accept.guarantee == "same distribution" else b).spec.rule
    names = f"{a.spec.name} and {b.spec.name}"
    return Verdict("same_distribution", 0, None, None, f"same distribution only: {names} promise the same odds for every token, not the same tokens (rule {rule!r})")
