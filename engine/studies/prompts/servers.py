"""Races the prompts of a study on servers, and what their rows may say: times as measured here, the servers' own counts
of drafts, the texts compared, and nothing of bits, widths or other draft lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from ...analysis.loops import loop_sentence, with_counters
from ...analysis.metrics import fastest_plain, lane_metrics, race_speedups, ratio, ratio_noise
from ...errors import RaceError
from ...events import LaneEvent, steps
from ...progress import Progress
from ...recordings.recording import build, failures
from ...remote.endpoint import Question
from ...remote.race import RemoteRace
from ...remote.verdict import answer_of, differs_at
from ...spec import AUTO, BASELINE, PLAIN
from .prompts import FilePrompt
from .rows import Row


def question_of(prompt: FilePrompt, chat: bool) -> Question:
    """What a server is asked. chat: a text is sent as a message."""
    messages = prompt.messages or ((("user", prompt.text),) if chat else ())
    return Question(messages=messages) if messages else Question(prompt.text)


def rows_on_servers(
    race: RemoteRace, names: Mapping[str, str], prompt: FilePrompt, progress: Progress
) -> tuple[Row, ...]:
    """Run the race; a row for each lane that drafts. names: what a lane's row calls its drafter. `progress` may raise
    to give up. Raises RaceError if a lane without drafts fails."""
    live: list[LaneEvent] = []
    with closing(race.events()) as source:  # type: ignore[type-var]
        for event in source:
            live.append(event)
            progress("racing", None)
    recording = build(race.header(), live, race.result())
    events, failed = recording.events, failures(recording)
    undrafted = [*race.spec.named(PLAIN), *race.spec.named(BASELINE)]
    if broken := [f"lane {lane} failed: {failed[lane]}" for lane in undrafted if lane in failed]:
        raise RaceError(f"line {prompt.line}: {'; '.join(broken)}")
    loops = any(
        race.lanes[lane].written.has_ids and loop_sentence(with_counters(steps(events, lane))) for lane in undrafted[:1]
    )
    kinds = {lane: each["kind"] for lane, each in recording["verdicts"].items()}
    own = [*race.spec.named(PLAIN), ""][0], [*race.spec.named(BASELINE), ""][0]
    return tuple(
        Row(
            line=prompt.line,
            prompt=prompt.label,
            kind=prompt.kind,
            drafter=names[name],
            k=AUTO,
            speedup=None if name in failed else gain,
            noise=ratio_noise(steps(events, fastest_plain(events, name, *own)), steps(events, name)),
            **_drafts(race, events, name),
            num_tokens=lane_metrics(events, name).num_tokens,
            identical=kinds.get(name) == "same_text",
            loops=loops,
            fault=f"line {prompt.line}: lane {name} failed: {failed[name]}" if name in failed else "",
            differs_at=differs_at(*(answer_of(race.lanes[each]) for each in (undrafted[-1], name)))
            if kinds.get(name) == "other_text"
            else None,
        )
        for name, gain in race_speedups(events, race.spec.lanes).items()
    )


def _drafts(race: RemoteRace, events: Sequence[LaneEvent], name: str) -> dict[str, Any]:
    """From the steps, where the server lists them; else from its sums, as far as it has them."""
    if any(step.num_drafted for step in steps(events, name)):
        numbers = lane_metrics(events, name)
        return {
            "acceptance_rate": numbers.acceptance_rate,
            "mean_acceptance_length": numbers.mean_acceptance_length,
        }
    said = race.lanes[name].reply.drafted
    return {
        "acceptance_rate": ratio(said.num_accepted, said.num_drafted) if said else None,
        "mean_acceptance_length": ratio(race.lanes[name].reply.num_tokens, said.num_steps) if said else None,
    }
