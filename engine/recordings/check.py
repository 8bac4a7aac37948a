"""Whether a recording is what it says: its shape checked field by field, its events against each other, the spec, the
verdicts and what may stand beside them.

Standard library only. Everything raises UsageError with one sentence; nothing that JSON can hold raises anything else.
"""
# Twin: app/race_view/check.js; compared by test_a_broken_file_gives_one_sentence_and_changes_nothing.

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import UsageError
from ..events import Finished, LaneEvent, Started, Step, from_json
from ..spec import (
    AUTO,
    BASELINE,
    MAX_WIDTH,
    PLAIN,
    ROLES,
    SERVER,
    SPECULATIVE,
    LaneSpec,
    RaceSpec,
    SamplingParams,
    role_named,
)
from ..strict_json import COUNT, FLAG, NAME, NAMES, NUMBER, OBJECT, TEXT, IfThere, Maybe, Shape, fits, kind, short
from .beside import BESIDE, CLOCK_TOLERANCE, MAX_TOKEN_ID, TOKENS, are_tokens, check_beside

SCHEMA = 2
"""What is written; schema 1 is read as well."""
FORMAT = "photofinish-race"
IDENTICAL = ("identical_bits", "identical_tokens")
VERDICTS = (*IDENTICAL, "near_tie", "different", "same_distribution", "same_text", "other_text")
"""The last two are of servers."""


def check(recording: Any) -> dict[str, Any]:
    """The same recording, if all of it holds; one of schema 1 in the form of schema 2. Unknown fields beside the known
    ones are left alone."""
    if not isinstance(recording, dict):
        raise UsageError(f"it must be a JSON object, not {kind(recording)}")
    if recording.get("format") != FORMAT:
        raise UsageError(
            f"it is no Photofinish recording: its format is {short(recording.get('format'))}, not {FORMAT!r}"
        )
    schema = recording.get("schema")
    if type(schema) is not int or schema not in SHAPES:
        newer = type(schema) is int and schema > SCHEMA
        raise UsageError(
            f"its schema is {short(schema)}; this version reads schema {' and '.join(map(str, SHAPES))}"
            + ("; a newer version of Photofinish wrote it" if newer else "")
        )
    fits(recording, SHAPES[schema])
    if schema == 1:
        recording = _from_schema_1(recording)
    _check_events(recording, read_spec(recording["spec"]))
    return recording


def _from_schema_1(old: Mapping[str, Any]) -> dict[str, Any]:
    """Roles follow from the names; `verdict` was on the last speculative lane, `plain_verdict` on the plain one. What
    schema 1 does not know means nothing in its files, whatever it is called, and does not come along."""
    lanes = [{**lane, "role": role_named(lane["name"])} for lane in old["spec"]["lanes"]]
    last = {lane["role"]: lane["name"] for lane in lanes}
    found = {last.get(SPECULATIVE): old["verdict"], last.get(PLAIN): old["plain_verdict"]} if BASELINE in last else {}
    return {
        **{key: value for key, value in old.items() if key not in ("verdict", "plain_verdict", *BESIDE)},
        "schema": SCHEMA,
        "spec": {**old["spec"], "lanes": lanes},
        "verdicts": {lane: verdict for lane, verdict in found.items() if lane is not None and verdict is not None},
    }


def read_spec(value: Mapping[str, Any]) -> RaceSpec:
    """A RaceSpec from the JSON form of its fields."""
    fits(value, SPEC, "spec")
    lanes = tuple(LaneSpec(**_exactly(LaneSpec, lane, "a lane of the spec")) for lane in value["lanes"])
    params = _exactly(SamplingParams, value["params"], "params")
    return RaceSpec(lanes, SamplingParams(**{**params, "stop": tuple(params["stop"])}), value["audit"], value["solo"])


def _two(what: str, holds: Callable[[Any], bool]) -> Shape:
    return Shape(f"two {what}", lambda value: isinstance(value, list) and len(value) == 2 and all(map(holds, value)))


def _exactly(cls: type, value: Mapping[str, Any], what: str) -> dict[str, Any]:
    known = {field.name for field in fields(cls)}
    if odd := sorted(known ^ set(value)):
        raise UsageError(f"{what} {'lacks' if odd[0] in known else 'has the unknown field'} {short(odd[0])}")
    return dict(value)


WIDTH = Shape(f"an integer from 1 to {MAX_WIDTH}", lambda value: type(value) is int and 1 <= value <= MAX_WIDTH)
WIDTH_OR_WORD = Shape(
    f"auto, fastest or an integer from 1 to {MAX_WIDTH}",
    lambda value: value in ("auto", "fastest") or WIDTH.holds(value),
)
K_OR_WORD = Shape("auto or a non-negative integer", lambda value: value == AUTO or COUNT.holds(value))
ROLE = Shape(f"one of: {', '.join(ROLES)}", lambda value: value in ROLES)
KIND = Shape(f"one of: {', '.join(VERDICTS)}", lambda value: value in VERDICTS)
TWO_TOKENS = _two(f"token ids from 0 to {MAX_TOKEN_ID}", lambda value: are_tokens([value]))
TWO_TEXTS = _two("strings", TEXT.holds)
TWO_WIDTHS = _two("widths, null where unknown", lambda value: value is None or WIDTH.holds(value))
_DIFFERENCE = {
    "position": COUNT,
    "tokens": TWO_TOKENS,
    "pieces": TWO_TEXTS,
    "margin": Maybe(NUMBER),
    "widths": TWO_WIDTHS,
}
_VERDICT = {
    "kind": KIND,
    "rows_compared": COUNT,
    "rows_different": Maybe(COUNT),
    "first_difference": Maybe(_DIFFERENCE),
    "sentence": TEXT,
}
_LANE = {"name": NAME, "drafter": NAME, "k": K_OR_WORD, "width": WIDTH_OR_WORD, "rule": NAME}
SPEC = {"lanes": [_LANE | {"role": ROLE}], "params": {"stop": [TEXT]}, "audit": FLAG, "solo": FLAG}
_RECORDING = {
    "model": {"name": NAME, "revision": Maybe(NAME), "digest": Maybe(NAME), "dtype": NAME, "licence": Maybe(NAME)},
    "device": {"type": NAME, "name": NAME, "threads": Maybe(COUNT)},
    "versions": NAMES,
    "commit": Maybe(NAME),
    "created": NAME,
    "widths": {
        "width": Maybe(WIDTH),
        "widths_class": [WIDTH],
        "plain_width": Maybe(WIDTH),
        "exact": FLAG,
        "cache_length": COUNT,
        "note": NAME,
    },
    "prompt": {"text": TEXT, "token_ids": TOKENS, "chat": IfThere(FLAG)},
    "events": [OBJECT],
    "synthetic": IfThere([NAME]),
    "stopped": IfThere(FLAG),
    "runs": IfThere({"sentence": NAME}),
    "places": IfThere({"lanes": NAMES, "sentence": NAME}),
}
SHAPES: dict[int, dict[str, Any]] = {
    1: {
        **_RECORDING,
        "spec": {**SPEC, "lanes": [_LANE]},
        "verdict": Maybe(_VERDICT),
        "plain_verdict": Maybe(_VERDICT),
    },
    SCHEMA: {**_RECORDING, "spec": SPEC, "verdicts": OBJECT, **BESIDE},
}
"""What each schema has to hold."""


@dataclass
class _Lane:
    """What one lane's events have said so far."""

    spec: LaneSpec
    prompt_ids: list[int]
    started: bool = False
    ended: bool = False
    clock_s: float = 0.0
    wall_s: float = 0.0
    text: str = ""

    def __post_init__(self) -> None:
        self.steps: list[Step] = []
        self.token_ids: list[int] = []
        self.checksums: list[int] = []

    def _is_copy(self, step: Step) -> bool:
        place, start = step.copied
        text = [*self.prompt_ids, *self.token_ids, *step.drafted[:place]]
        if start >= len(text):
            return False
        text += step.drafted[place:]
        return all(token == text[start + i] for i, token in enumerate(step.drafted[place:]))

    def take(self, e: LaneEvent, spec: RaceSpec) -> None:
        num_prompt_tokens = len(self.prompt_ids)
        event, who = e.event, f"lane {short(self.spec.name)}"
        if self.ended:
            raise UsageError(f"{who} goes on after its end")
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
            self.ended = True
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
        if not are_tokens([*step.token_ids, *step.drafted]):
            raise UsageError(f"{which} has a token id beyond {MAX_TOKEN_ID}")
        if num_drafted > self.spec.max_drafts:
            raise UsageError(
                f"{which} drafted {num_drafted} tokens, but the lane's k is {self.spec.k}"
                + (f" (at most {self.spec.max_drafts})" if self.spec.k == AUTO else "")
            )
        if step.copied and not self._is_copy(step):
            raise UsageError(f"{which} says it copied from place {step.copied[1]} of the text, which has other tokens")
        if step.width is not None and not num_drafted < step.width <= MAX_WIDTH:
            raise UsageError(f"{which} ran at width {step.width}, which must be from {num_drafted + 1} to {MAX_WIDTH}")
        if bool(step.checksums) != (spec.audit and self.spec.drafter != SERVER):
            raise UsageError(f"{which} has {len(step.checksums)} checksums, but audit is {str(spec.audit).lower()}")
        self.steps.append(step)
        self.clock_s += step.seconds
        self.token_ids += step.token_ids
        self.text += "".join(step.pieces)
        self.checksums += step.checksums

    def _same_time(self, seconds: float, who: str, what: str) -> None:
        if not math.isclose(seconds, self.clock_s, rel_tol=CLOCK_TOLERANCE, abs_tol=CLOCK_TOLERANCE):
            raise UsageError(f"{who} says {what} {seconds!r} where its steps took {self.clock_s!r} seconds")


def _check_events(recording: Mapping[str, Any], spec: RaceSpec) -> None:
    prompt_ids = recording["prompt"]["token_ids"]
    lanes = {lane.name: _Lane(lane, [] if lane.drafter == SERVER else prompt_ids) for lane in spec.lanes}
    for event in map(from_json, recording["events"]):
        if event.lane not in lanes:
            raise UsageError(
                f"an event belongs to lane {short(event.lane)}, which the spec does not have; it has: "
                f"{', '.join(lanes)}"
            )
        lanes[event.lane].take(event, spec)
    unfinished = [name for name, lane in lanes.items() if not lane.ended]
    if unfinished and not recording.get("stopped", False):
        raise UsageError(f"lane {short(unfinished[0])} never ends: the recording is incomplete")
    baselines = spec.named(BASELINE)
    for name, verdict in recording["verdicts"].items():
        if name not in lanes or name in baselines or not baselines:
            raise UsageError(f"it has a verdict on {short(name)}, which is no lane that is compared with a baseline")
        _check_verdict(f"the verdict on lane {short(name)}", verdict, lanes[baselines[0]], lanes[name])
    check_beside(recording, {name: lane.steps for name, lane in lanes.items()})


def _check_verdict(which: str, verdict: Mapping[str, Any], a: _Lane, b: _Lane) -> None:
    """A verdict may not claim more than the events that stand beside it."""
    fits(verdict, _VERDICT, which)
    common = min(len(a.token_ids), len(b.token_ids))
    same_tokens = a.token_ids[:common] == b.token_ids[:common]
    same_text = a.text.startswith(b.text) or b.text.startswith(a.text)
    same_bits = bool(a.checksums or not common) and a.checksums[:common] == b.checksums[:common]
    if (
        (verdict["kind"] in IDENTICAL and not same_tokens)
        or (verdict["kind"] == "identical_bits" and not same_bits)
        or (verdict["kind"] == "same_text" and not same_text)
    ):
        raise UsageError(f"{which} says {verdict['kind']}, but its events differ")
