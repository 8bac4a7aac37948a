"""Whether a recording is what it claims to be: its shape, field by field; its events against each other and the spec;
its verdicts and extras against the events.

Standard library only. Any JSON value is accepted, or refused by a UsageError with one sentence.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..analysis.same import IDENTICAL, KINDS, State, differs_at, part
from ..core.errors import UsageError, kind, short
from ..core.events import Finished, LaneEvent, Started, Step
from ..core.spec import (
    AUTO,
    BASELINE,
    MAX_LANES,
    MAX_STOP_STRINGS,
    MAX_WIDTH,
    PLAIN,
    ROLES,
    SERVER,
    LaneSpec,
    RaceSpec,
    SamplingParams,
)
from ..core.values import FLAG, Shape, integer, items, one_of
from ..strict_json import COUNT, NAME, NAMES, NUMBER, OBJECT, SHARE, TEXT, AtMost, IfThere, Maybe, fits
from .event_json import from_json
from .extras import CLOCK_TOLERANCE, EXTRAS, MAX_TOKEN_ID, TOKEN, check_extras
from .times import check_times

SCHEMA = 2
FORMAT = "photofinish-race"
MAX_PROMPT_TOKENS = 1_000_000  # more than any prompt that can be raced has; see `engine.text.MAX_PROMPT_CHARS`
OTHERS = {
    "photofinish-study": "a saved study of prompts",
    "photofinish-load": "a saved result of servers under load",
    "photofinish-checkup": "a saved check-up",
    "photofinish-results": "a file of saved results",
}  # formats of other files that the page saves, and what they are


def check(recording: Any) -> tuple[RaceSpec, tuple[LaneEvent, ...]]:
    """The spec and the events, in order. Unknown fields are ignored, except in events, lanes and params.

    Raises UsageError if anything is wrong."""
    if not isinstance(recording, dict):
        raise UsageError(f"it must be a JSON object, not {kind(recording)}")
    if (what := OTHERS.get(str(recording.get("format")))) is not None:
        raise UsageError(f"it is {what}; open it with Open a result in \u201cTry it on yours\u201d")
    if recording.get("format") != FORMAT:
        raise UsageError(
            f"it is not a Photofinish recording: its format is {short(recording.get('format'))}, not {FORMAT!r}"
        )
    schema = recording.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        newer = "; a newer version of Photofinish wrote it" * (type(schema) is int and schema > SCHEMA)
        raise UsageError(f"its schema is {short(schema)}; this version reads schema {SCHEMA}{newer}")
    fits(recording, RECORDING)
    spec = read_spec(recording["spec"])
    if {lane.drafter == SERVER for lane in spec.lanes} != {recording["device"]["type"] == SERVER}:
        raise UsageError("it mixes lanes on servers with another device: a race is of servers, or of one machine")
    events = tuple(map(from_json, recording["events"]))
    _check_events(recording, spec, events)
    check_times(spec, events)
    return spec, events


def read_spec(value: Mapping[str, Any]) -> RaceSpec:
    """A RaceSpec from the JSON form of its fields. Raises UsageError if they are wrong."""
    fits(value, SPEC, "spec")
    lanes = tuple(LaneSpec(**_exactly(LaneSpec, lane, "a lane of the spec")) for lane in value["lanes"])
    params = _exactly(SamplingParams, value["params"], "params")
    return RaceSpec(lanes, SamplingParams(**{**params, "stop": tuple(params["stop"])}), value["audit"], value["solo"])


def _exactly(cls: type, value: Mapping[str, Any], what: str) -> dict[str, Any]:
    known = {field.name for field in fields(cls)}
    if odd := sorted(known ^ set(value)):
        raise UsageError(f"{what} {'lacks' if odd[0] in known else 'has the unknown field'} {short(odd[0])}")
    return dict(value)


WIDTH = integer(1, MAX_WIDTH)
_DIFFERENCE = {
    "position": COUNT,
    "tokens": items(f"two token ids from 0 to {MAX_TOKEN_ID}", TOKEN, [2]),
    "pieces": items("two strings", TEXT, [2]),
    "margin": Maybe(NUMBER),
    "widths": items("two widths, null where unknown", Shape("", lambda v: v is None or WIDTH.holds(v)), [2]),
}
_VERDICT = {
    "kind": one_of(KINDS),
    "rows_compared": COUNT,
    "rows_different": Maybe(COUNT),
    "first_difference": Maybe(_DIFFERENCE),
    "sentence": TEXT,
}
SPEC = {
    "lanes": AtMost(MAX_LANES, {"role": one_of(ROLES)}),
    "params": {"stop": AtMost(MAX_STOP_STRINGS, TEXT)},
    "audit": FLAG,
    "solo": FLAG,
}
RECORDING: dict[str, Any] = {
    "model": {"name": NAME, "revision": Maybe(NAME), "digest": Maybe(NAME), "dtype": NAME, "licence": Maybe(NAME)},
    "device": {"type": NAME, "name": NAME, "threads": Maybe(COUNT)},
    "versions": NAMES,
    "commit": Maybe(NAME),
    "created": NAME,
    "widths": {
        "width": Maybe(WIDTH),
        "widths_class": AtMost(MAX_WIDTH, WIDTH),
        "plain_width": Maybe(WIDTH),
        "exact": FLAG,
        "cache_length": COUNT,
        "note": NAME,
    },
    "prompt": {"text": TEXT, "token_ids": AtMost(MAX_PROMPT_TOKENS, TOKEN), "chat": IfThere(FLAG)},
    "events": [OBJECT],
    "synthetic": IfThere(AtMost(MAX_LANES, NAME)),
    "stopped": IfThere(FLAG),
    "waited_share": IfThere(SHARE),
    "runs": IfThere({"sentence": NAME}),
    "spec": SPEC,
    "verdicts": OBJECT,
    **EXTRAS,
}


@dataclass
class _Lane:
    """One lane after the events read so far."""

    spec: LaneSpec
    prompt_ids: list[int]
    started: bool = False
    ended: bool = False
    state: State = "stopped"
    clock_s: float = 0.0
    wall_s: float = 0.0
    steps: list[Step] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    def _wrong_place(self, step: Step) -> int | None:
        """The first place that a token was not copied from, in the text that goes on with the token's own path."""
        num_prompt, num_before = len(self.prompt_ids), len(self.prompt_ids) + len(self.token_ids)
        paths = step.paths

        def holds(token: int, path: Sequence[int], at: int) -> bool:
            if at >= num_before:
                return at - num_before < len(path) and step.drafted[path[at - num_before]] == token
            return token == (self.prompt_ids[at] if at < num_prompt else self.token_ids[at - num_prompt])

        rows = zip(step.drafted, step.follows, step.places, strict=True)
        return next((at for token, row, at in rows if at >= 0 and not holds(token, paths[row], at)), None)

    def take(self, e: LaneEvent, spec: RaceSpec) -> None:
        num_prompt_tokens = len(self.prompt_ids)
        event, who = e.event, f"lane {short(self.spec.name)}"
        if self.ended:
            raise UsageError(f"{who} continues after its end")
        if not self.started and isinstance(event, (Step, Finished)):
            raise UsageError(f"{who} does not begin with a started event")
        if isinstance(event, Started):
            if self.started:
                raise UsageError(f"{who} starts twice")
            if num_prompt_tokens and event.num_prompt_tokens != num_prompt_tokens:
                raise UsageError(
                    f"{who} started on {event.num_prompt_tokens} prompt tokens, but the prompt has {num_prompt_tokens}"
                )
            self.started = True
        elif isinstance(event, Step):
            self._step(event, who, spec)
        elif isinstance(event, Finished):
            if event.num_tokens != len(self.token_ids):
                raise UsageError(
                    f"{who} finished with {event.num_tokens} tokens, but its steps committed {len(self.token_ids)}"
                )
            self._same_time(event.decode_s, who, "decode_s")
            self.ended, self.state = True, "finished"
        else:
            self.ended = True
        self._same_time(e.clock_s, who, "clock_s")
        if e.wall_s is not None:
            if e.wall_s < self.wall_s:
                raise UsageError(f"{who} has wall_s {e.wall_s!r} after {self.wall_s!r}: it may not decrease")
            self.wall_s = e.wall_s

    def _step(self, step: Step, who: str, spec: RaceSpec) -> None:
        which = f"step {step.index} of {who}"
        num_before, num_drafted, limit = len(self.token_ids), step.num_drafted, spec.params.max_new_tokens
        place = f"step {len(self.steps)} at position {num_before}"
        if step.index != len(self.steps) or step.position != num_before:
            raise UsageError(f"{which} at position {step.position} comes where {place} should")
        if not step.token_ids or num_before + len(step.token_ids) > limit:
            raise UsageError(
                f"{which} commits {len(step.token_ids)} tokens to {num_before}; a step commits at least 1, a lane at "
                f"most {limit}"
            )
        if max((*step.token_ids, *step.drafted)) > MAX_TOKEN_ID:
            raise UsageError(f"{which} has a token id beyond {MAX_TOKEN_ID}")
        if num_drafted > self.spec.max_drafts:
            raise UsageError(
                f"{which} drafted {num_drafted} tokens, but the lane's k is {self.spec.k}"
                + (f" (at most {self.spec.max_drafts})" if self.spec.k == AUTO else "")
            )
        if step.parents and spec.params.temperature and self.spec.rule != "coupled":
            raise UsageError(f"{which} drafted a tree, but rule {self.spec.rule!r} weighs chains only")
        if (step.copied or step.sources) and (wrong := self._wrong_place(step)) is not None:
            raise UsageError(f"{which} says it copied from place {wrong} of the text, which has other tokens")
        if step.width is not None and not num_drafted < step.width <= MAX_WIDTH:
            raise UsageError(f"{which} ran at width {step.width}, which must be from {num_drafted + 1} to {MAX_WIDTH}")
        if bool(step.checksums) != (spec.audit and self.spec.drafter != SERVER):
            raise UsageError(f"{which} has {len(step.checksums)} checksums, but audit is {str(spec.audit).lower()}")
        self.steps.append(step)
        self.clock_s += step.seconds
        self.token_ids += step.token_ids

    def _same_time(self, seconds: float, who: str, what: str) -> None:
        if not math.isclose(seconds, self.clock_s, rel_tol=CLOCK_TOLERANCE, abs_tol=CLOCK_TOLERANCE):
            raise UsageError(f"{who} reports {what} {seconds!r}, but its steps took {self.clock_s!r} seconds")


def _check_events(recording: Mapping[str, Any], spec: RaceSpec, events: Sequence[LaneEvent]) -> None:
    prompt_ids = recording["prompt"]["token_ids"]
    lanes = {lane.name: _Lane(lane, [] if lane.drafter == SERVER else prompt_ids) for lane in spec.lanes}
    for event in events:
        if event.lane not in lanes:
            raise UsageError(
                f"an event belongs to lane {short(event.lane)}, which the spec does not have; it has: "
                f"{', '.join(lanes)[:200]}"
            )
        lanes[event.lane].take(event, spec)
    unfinished = [name for name, lane in lanes.items() if not lane.ended]
    if unfinished and not recording.get("stopped", False):
        raise UsageError(f"lane {short(unfinished[0])} never ends: the recording is incomplete")
    on_servers = [lane.name for lane in spec.lanes if lane.role == PLAIN and lane.drafter == SERVER]
    baselines = spec.named(BASELINE) or on_servers  # two servers may be called plain and anything
    for name, verdict in recording["verdicts"].items():
        if name not in lanes or name in baselines or not baselines:
            raise UsageError(f"it has a verdict on {short(name)}, which is no lane that is compared with a baseline")
        _check_verdict(f"the verdict on lane {short(name)}", verdict, lanes[baselines[0]], lanes[name])
    check_extras(recording, spec, {name: lane.steps for name, lane in lanes.items()})


def _check_verdict(which: str, verdict: Mapping[str, Any], a: _Lane, b: _Lane) -> None:
    """A verdict may not contradict the events. One that claims more than was compared is corrected: see `claims.py`."""
    fits(verdict, _VERDICT, which)
    says, is_same, states, parting = verdict["kind"], True, (a.state, b.state), part(a.steps, b.steps)
    if says == "same_text":
        one, other = ("".join(piece for step in lane.steps for piece in step.pieces) for lane in (a, b))
        is_same = differs_at(one, other, states) is None
    elif says in IDENTICAL:
        is_same = differs_at(a.token_ids, b.token_ids, states) is None
    if says == "identical_bits":
        is_same = is_same and (parting.rows_different == 0 or not parting.num_rows)
    if not is_same:
        raise UsageError(f"{which} says {says}, but its events differ")
