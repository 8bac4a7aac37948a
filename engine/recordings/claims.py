"""What may be said of a race: its verdicts, limited to what was compared, and what belongs next to its ratios. Computed
whenever a recording is made or read, whatever its file says. Standard library only."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..analysis.loops import copies_sentence, loop_sentence, with_counters
from ..analysis.metrics import disturbance, num_tokens_of
from ..analysis.same import SAME, Side, goes_on, short_words, state_of, worth
from ..analysis.verdict_words import NOT_COMPARED
from ..core.events import LaneEvent, Step, steps, text_of
from ..core.spec import BASELINE, PLAIN, SERVER, SPECULATIVE, RaceSpec
from .times import doubt

TIMES = "The times of this file contradict each other: do not quote this ratio."
DISTURBED = "The machine was disturbed: do not quote this ratio."


def judged(fields: Mapping[str, Any], spec: RaceSpec, events: Sequence[LaneEvent]) -> dict[str, Any]:
    """The members `verdicts` and `cautions` of a recording.

    fields: the recording's other members, and the verdicts as they were made.
    verdicts: with `complete`, whether both lanes had ended by themselves, else only the shorter length was compared;
        and `short`, what was compared, in a few words.
    cautions: a list of {"kind", "lane", "sentence", "short"}, the race's own (lane null) first. Kinds: "times", which
        contradict each other; "disturbed"; "loop", of a text that repeats itself, whose ratio is no result; "copies",
        of one that mostly copies the prompt."""
    baseline = spec.first(BASELINE) or spec.first(PLAIN)
    verdicts = {lane: _limited(made, baseline, lane, spec, events) for lane, made in fields["verdicts"].items()}
    return {"verdicts": verdicts, "cautions": cautions_of(fields, spec, events)}


def _limited(
    verdict: Mapping[str, Any], baseline: str, name: str, spec: RaceSpec, events: Sequence[LaneEvent]
) -> dict[str, Any]:
    """The verdict, as far as the events support it."""
    what, length = ("character", _num_characters) if spec.lanes[0].drafter == SERVER else ("token", num_tokens_of)
    sides = [Side(lane, length(steps(events, lane)), state_of(events, lane)) for lane in (baseline, name)]
    kind, sentence, difference = verdict["kind"], verdict["sentence"], verdict["first_difference"]
    is_nothing = not (min(side.num for side in sides) or goes_on(sides))
    if (is_nothing or kind in (*SAME, "same_distribution")) and (why := worth(sides, what)):
        kind, sentence, difference = "not_compared", f"{NOT_COMPARED}: {why}", None
    first = difference["position"] if difference and what == "token" else None
    short = verdict.get("short", "")
    if kind != "other_text":
        short = short_words(kind, sides, verdict["rows_different"], first, what)
    complete = all(side.state == "finished" for side in sides)
    limited = {"kind": kind, "sentence": sentence, "first_difference": difference}
    return {**verdict, **limited, "complete": complete, "short": short}


def _num_characters(done: Sequence[Step]) -> int:
    return sum(len(piece) for step in done for piece in step.pieces)


def cautions_of(fields: Mapping[str, Any], spec: RaceSpec, events: Sequence[LaneEvent]) -> list[dict[str, Any]]:
    """The member `cautions`."""
    cautions: list[tuple[str, str | None, str, str]] = []
    if doubts := doubt(fields, spec, events):
        cautions.append(("times", None, doubts, TIMES))
    if disturbed := disturbance(events, fields.get("waited_share")):
        cautions.append(("disturbed", None, disturbed, DISTURBED))
    prompt = fields["prompt"]["text"]
    for lane in spec.named(SPECULATIVE):
        if loop := loop_sentence(with_counters(steps(events, lane))):
            cautions.append(("loop", lane, loop, loop))
        if copies := copies_sentence(prompt, text_of(events, lane, spec.params.stop)):
            cautions.append(("copies", lane, copies, copies))
    return [dict(zip(("kind", "lane", "sentence", "short"), caution, strict=True)) for caution in cautions]
