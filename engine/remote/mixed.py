"""A race of one prompt with lanes on this machine and lanes on servers: first the local ones, alone, then the
others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol

import httpx

from ..analysis.same import state_of
from ..core.events import LaneEvent, Prompt, steps, text_of
from ..core.spec import BASELINE, HERE, THERE, RaceSpec
from ..recordings.event_json import to_json
from .same_text import Answer, answer_of, judge
from .server_race import RemoteRace

USUAL = (
    "; if it is the same model, another precision or another checkpoint than this machine's is the usual reason, and "
    "two texts are no fault of either"
)
DICE = "each draws by its own dice, so two texts are what to expect, and no fault of either"


class LocalRace(Protocol):
    """A race on this machine: see `session.TorchRace`."""

    spec: RaceSpec
    prompt: Prompt

    def header(self) -> dict[str, Any]: ...
    def events(self) -> Iterator[LaneEvent]: ...
    def result(self) -> Mapping[str, Any]: ...


class MixedRace:
    """The lanes of `here`, raced as without servers, then those of `servers`. `header()`, `events()` and `result()`
    cover both. No byte is sent to a server before the last local lane has ended, so neither disturbs the other; their
    times come from two clocks, at different times.

    A server's lane is compared with the baseline of `here` like servers with each other: see `verdict.judge`. Raises
    UsageError if their lanes cannot share a race."""

    def __init__(self, here: LocalRace, servers: RemoteRace) -> None:
        self.here, self.servers = here, servers
        self.spec = replace(here.spec, lanes=(*here.spec.lanes, *servers.spec.lanes))
        self._local_events: list[LaneEvent] = []

    def header(self) -> dict[str, Any]:
        """The local race's header with all lanes, and in `places` where each of them ran."""
        here, servers = self.here.header(), list(self.servers.lanes)
        how = "one after the other" if self.servers.spec.solo else "all at once"
        then = f"then lane {servers[0]} on its server" if len(servers) == 1 else f"then the lanes on servers, {how}"
        return {
            **here,
            "versions": {**here["versions"], "httpx": httpx.__version__},
            "spec": self.spec.to_json(),
            "places": {
                "lanes": {lane.name: THERE if lane.name in servers else HERE for lane in self.spec.lanes},
                "sentence": f"First the lanes on this machine, {then}: two clocks at two times, and as a rule two "
                "devices; a server's seconds include the way to it",
            },
        }

    def events(self) -> Iterator[LaneEvent]:
        """The race, to be iterated once; closing it ends the lanes that run."""
        with closing(self.here.events()) as source:  # type: ignore[type-var]
            for event in source:
                self._local_events.append(event)
                yield event
        yield from self.servers.events()

    def result(self) -> dict[str, Any]:
        """The local race's result, with the servers' promises and final steps, and the verdicts on them."""
        here, servers = self.here.result(), self.servers.result()
        verdicts = dict(here["verdicts"])
        for name in self.here.spec.named(BASELINE):
            baseline = self._answer_of(name)
            verdicts |= {lane: self._judge(baseline, lane) for lane in self.servers.lanes}
        events = [*map(to_json, self._local_events), *servers["events"]]
        return {**here, "promises": servers["promises"], "events": events, "verdicts": verdicts}

    def _answer_of(self, lane: str) -> Answer:
        done = steps(self._local_events, lane)
        text = text_of(self._local_events, lane, self.spec.params.stop)
        state = state_of(self._local_events, lane)
        return Answer(lane, text, [token for step in done for token in step.token_ids], state=state)

    def _judge(self, baseline: Answer, name: str) -> dict[str, Any]:
        lane, temperature = self.servers.lanes[name], self.spec.params.temperature
        there = answer_of(lane)
        if there.is_over:  # incomplete characters: some servers send their bytes, some leave them out
            baseline, there = (replace(answer, text=answer.text.rstrip("\ufffd")) for answer in (baseline, there))
        why = f"; at temperature {temperature:g} {DICE}" if temperature else USUAL
        if lane.reply.prompt_ids and lane.reply.prompt_ids != self.here.prompt.token_ids:
            why += "; the server read the prompt as other tokens: its tokenizer or its chat template is another one"
        return judge(baseline, there, why)
