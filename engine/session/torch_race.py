"""A race on this machine: a loaded model, a prompt and a RaceSpec become one stream of lane events, a header and a
verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..choice.sampler import Sampler
from ..decode import decode
from ..events import Event, Finished, LaneEvent, Prompt, Step
from ..exactness.probe import explain
from ..exactness.verdict import Difference, Verdict, compare, part, width_at
from ..interfaces import Drafter
from ..measure import environment
from ..progress import Progress, silent
from ..race import race
from ..spec import BASELINE, PLAIN, SPECULATIVE, LaneSpec, RaceSpec
from ..target.target import StaticTarget
from ..text import Pieces, StopAt, end_token_ids
from .candidates import Candidates, dice_of
from .set_up import Lane, Order, build_drafter, build_lane, check_fits, choose_widths, read_roofline, rule_of, warm_up

if TYPE_CHECKING:
    from torch import Tensor

    from ..models.loading import LoadedModel


class TorchRace:
    """Probes and chooses the widths, builds and warms every lane (all before the first timed step), then runs.

    `header()` is known at once; `events()` is the race, to be iterated once (closing it stops every lane within a
    step); `result()` is the verdict on what was committed. room: tokens that the lanes' caches hold at least, so that
    races of several prompts have one length. Raises UsageError for what cannot be raced and RaceError for what fails on
    the way.
    """

    def __init__(
        self, loaded: LoadedModel, spec: RaceSpec, prompt: Prompt, progress: Progress = silent, room: int = 0
    ) -> None:
        self.loaded, self.spec, self.prompt = loaded, spec, prompt
        self.prepared = prepared = loaded.prepared
        self.created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.end_ids = end_token_ids(loaded.model.config, loaded.model.generation_config, loaded.tokenizer)
        self.sampler = Sampler(spec.params, prepared.vocab_size, prepared.kernels)

        self._order = order = Order(loaded, spec, prompt, self.sampler, prepared.kernels.graph_pool(), progress, room)
        check_fits(prepared, spec, prompt)
        self.widths = choose_widths(order)
        self.roofline = read_roofline(order)
        self.lanes = {lane.name: self.build(lane) for lane in spec.lanes}
        self._dice = dice_of(self.sampler, prepared)
        self._candidates = {
            name: Candidates(self.sampler, self._dice if lane.accept.guarantee == "same tokens" else [])
            for name, lane in self.lanes.items()
            if spec.audit and lane.spec.role != PLAIN
        }
        warm_up(order, list(self.lanes.values()))

    def build(self, lane: LaneSpec) -> Lane:
        """A lane of this race, not warmed up yet."""
        return build_lane(self._order, self.widths, lane, self._reference)

    def build_drafter(self, lane: LaneSpec) -> Drafter:
        """The drafter that such a lane of this race has; with k "auto" the one that is asked."""
        return build_drafter(self._order, self.widths, lane, rule_of(self._order, lane), self._reference)

    def reader(self, hidden_layers: Sequence[int], on_prefill: Callable[[float], None]) -> StaticTarget:
        """A sequence of its own, whose steps have the exact lanes' widest width; arguments as of StaticTarget."""
        widths = (max(self.widths.plan.step_widths),)
        pool = self._order.pool
        return StaticTarget(self.prepared, self.widths.length, widths, hidden_layers, pool=pool, on_prefill=on_prefill)

    def _reference(self) -> Sequence[int]:
        """The target's own completion, from an untimed run of the exact lanes' loop without a drafter: what `synthetic`
        drafts from."""
        self._order.progress("decoding once, untimed, for the synthetic drafter", None)
        lane = self.build(LaneSpec("reference", width=self.widths.asked))
        return [t for event in self.decode(lane) if isinstance(event, Step) for t in event.token_ids]

    def decode(
        self, lane: Lane, ending: StopAt | None = None, look: Callable[[Step, Tensor], None] | None = None
    ) -> Iterator[Event]:
        """A lane's events, as the loop gives them: without text, and not remembered. look: as of `decode.decode`."""
        ending = ending or self._ending()
        params = self.spec.params
        return decode(
            lane.target,
            lane.drafter,
            lane.accept,
            self.prompt.token_ids,
            ending,
            params.max_new_tokens,
            lane.spec.max_drafts,
            audit=self.spec.audit,
            look=look,
        )

    def _pieces(self) -> Pieces:
        return Pieces(self.loaded.tokenizer, self.prompt.token_ids, self.end_ids)

    def _ending(self) -> StopAt:
        return StopAt(self.spec.params, self.end_ids, self._pieces() if self.spec.params.stop else None)

    def _with_pieces(self, lane: Lane) -> Iterator[Event]:
        """A lane's events, with text filled in between steps, outside the clock."""
        ending, pieces = self._ending(), self._pieces()
        found = self._candidates.get(lane.spec.name)
        source = self.decode(lane, ending, found.look if found else None)
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
        plan_ = self.widths.plan
        return {
            "model": self.loaded.info.about(),
            **environment.circumstances(self.prepared),
            "created": self.created,
            "widths": {
                "width": plan_.width,
                "widths_class": list(plan_.widths_class),
                "step_widths": list(plan_.step_widths),
                "plain_width": plan_.plain_width,
                "exact": plan_.exact,
                "cache_length": self.widths.length,
                "step_s": {str(width): seconds for width, seconds in self.widths.seconds.items()},
                "note": plan_.note,
            },
            "roofline": self.roofline,
            "drafter_bytes": {
                name: {"weights": lane.drafter.memory.weight_bytes, "cache_per_token": lane.drafter.memory.token_bytes}
                for name, lane in self.lanes.items()
                if lane.spec.role == SPECULATIVE
            },
            "synthetic": [name for name, lane in self.lanes.items() if lane.drafter.synthetic],
            "spec": json.loads(json.dumps(asdict(self.spec))),
            "prompt": {**asdict(self.prompt), "token_ids": list(self.prompt.token_ids)},
        }

    def result(self) -> dict[str, Any]:
        """The verdict on every other lane against the baseline, by name; none without a baseline. In an audited race
        also what the target might have said at every row: see `recordings/candidates.py`."""
        verdicts: dict[str, Any] = {}
        for baseline in self.spec.named(BASELINE):
            own = self.lanes[baseline].steps
            places = {name: part(own, lane.steps).first or 0 for name, lane in self.lanes.items() if name != baseline}
            verdicts = dict.fromkeys(places)
            # to explain where a lane parts takes the baseline's cache back to there: the last to part comes first
            for name in sorted(places, key=places.__getitem__, reverse=True):
                verdicts[name] = self.compare(baseline, name).to_json()
        return {"verdicts": verdicts, **self._looked_at()}

    def _looked_at(self) -> dict[str, Any]:
        if not self._candidates:
            return {}
        lanes = {name: found.steps for name, found in self._candidates.items()}
        tokens = {token for steps in lanes.values() for rows in steps for row in rows for token in row["ids"]}
        pieces = Pieces(self.loaded.tokenizer, (), self.end_ids)
        return {
            "candidates": {
                "seeds": [die.params.seed for die in self._dice],
                "pieces": {str(token): pieces.peek((token,))[0] for token in sorted(tokens)},
                "lanes": lanes,
            }
        }

    def compare(self, first: str, second: str) -> Verdict:
        """The verdict on what two lanes have committed so far."""
        a, b = self.lanes[first], self.lanes[second]
        if "same distribution" in (a.accept.guarantee, b.accept.guarantee):
            return _same_distribution(a, b)
        widths = {step.width for lane in (a, b) for step in lane.steps if step.width}
        found = self.widths.classes
        same_class = len({found.of(width) for width in widths}) <= 1 and not widths & set(found.unstable)
        return compare(
            a.steps,
            b.steps,
            names=(first, second),
            same_class=same_class,
            dtype=self.loaded.info.dtype,
            explain=partial(self._explain, a, b),
            finished=a.finished and b.finished,
        )

    def _explain(self, a: Lane, b: Lane, position: int, tokens: tuple[int, int]) -> Difference:
        """Compute the row at `position` again in both lanes, from their own caches at their own widths, and measure how
        close the choice was."""
        rows = []
        for lane in (a, b):
            last = (
                self.prompt.token_ids[-1]
                if position == 0
                else [t for s in lane.steps for t in s.token_ids][position - 1]
            )
            lane.target.rollback(len(self.prompt.token_ids) - 1 + position)
            logits, _ = lane.target.extend([last], 1, width=width_at(lane.steps, position))
            rows.append(logits[0].clone())
        margin, rounding, share = explain(self.sampler, rows[0], rows[1], position, tokens)
        pieces = tuple(self.loaded.tokenizer.decode([t]) for t in tokens)
        return Difference(
            position,
            tokens,
            (pieces[0], pieces[1]),
            (width_at(a.steps, position), width_at(b.steps, position)),
            margin,
            rounding,
            share,
        )


def _same_distribution(a: Lane, b: Lane) -> Verdict:
    """The verdict on two lanes that do not promise the same tokens: nothing is compared."""
    rule = (a if a.accept.guarantee == "same distribution" else b).spec.rule
    names = f"{a.spec.name} and {b.spec.name}"
    return Verdict(
        "same_distribution",
        0,
        None,
        None,
        f"same distribution only: {names} promise the same odds for every token, not the same tokens (rule {rule!r})",
    )
