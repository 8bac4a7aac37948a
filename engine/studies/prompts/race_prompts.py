"""Races the prompts of a study, one after the other. Imports nothing heavy before the first race."""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from ...analysis.loops import loop_sentence, with_counters
from ...analysis.metrics import disturbance, fastest_plain, lane_metrics, race_speedups, ratio_noise, speedup
from ...analysis.same import are_same
from ...core.errors import RaceError, UsageError
from ...core.events import Failed, LaneEvent, Step, steps
from ...core.spec import AUTO, BASELINE, MAX_AUTO_K, PLAIN, SPECULATIVE, RaceSpec, SamplingParams, lanes_of
from ...drafters import parse, serves_every_k
from ...hardware import environment
from ...progress import Progress, silent
from ...recordings.words import said
from ...what_if.ask import what_if
from ...what_if.simulate_auto import auto_steps
from .prompts import FilePrompt
from .rows import Row

if TYPE_CHECKING:
    from ...loading.loading import LoadedModel
    from ...session import TorchRace

log = logging.getLogger(__name__)
SYNTHETIC = "synthetic"
SPREAD = 4  # a cache may be this many times as long as its prompt needs, so that prompts share a length


def shared_rooms(needs: Sequence[int]) -> list[int]:
    """The least cache length of each prompt, given what each needs: as for the longest prompt or, if that is more than
    SPREAD times its need, as for the longest of the rest, and so on. Each new length is probed once, for seconds;
    longer caches cost a little in every step."""
    rooms, room = dict[int, int](), 0
    for need in sorted(set(needs), reverse=True):
        room = need if need * SPREAD < room or not room else room
        rooms[need] = room
    return [rooms[need] for need in needs]


class Study:
    """Races of many prompts with one model. Each prompt has one race on the fair clock: plain, baseline, and a lane for
    each drafter at k auto. Raises UsageError, before any race, for a prompt that does not fit the model."""

    def __init__(
        self, loaded: LoadedModel, prompts: Sequence[FilePrompt], drafters: Sequence[str], params: SamplingParams
    ) -> None:
        from ...session.set_up import check_fits

        self._loaded, self._prompts = loaded, prompts
        self._spec = RaceSpec(lanes_of((drafter, drafter, AUTO) for drafter in drafters), params)
        self._encoded = [prompt.encode(loaded.tokenizer) for prompt in prompts]
        for prompt, encoded in zip(prompts, self._encoded, strict=True):
            try:
                check_fits(loaded.prepared, self._spec, encoded)
            except UsageError as error:
                raise UsageError(f"line {prompt.line}: {error}") from error
        self._rooms = shared_rooms([len(each.token_ids) + params.max_new_tokens for each in self._encoded])

    def about(self) -> dict[str, Any]:
        """What the races run on, and their settings; `said`: the same in words."""
        info, lanes = self._loaded.info, self._spec.named(SPECULATIVE)
        about: dict[str, Any] = {
            "model": info.about(),
            **environment.circumstances(self._loaded.prepared),
            "spec": self._spec.to_json(),
            "synthetic": [name for name in lanes if parse(name)[0] == SYNTHETIC],
        }
        return about | {"said": said(about)}

    def races(self, done: Container[int] = (), progress: Progress = silent) -> Iterator[tuple[Row, ...]]:
        """Race every prompt whose line is not in `done`, and yield its rows, one per drafter. May be closed at any
        time. What fails, a drafter's lane or all of a prompt's race, is in the rows, and the next prompt is raced."""
        began, total = time.monotonic(), len(self._prompts)
        left = [i for i, prompt in enumerate(self._prompts) if prompt.line not in done]
        for num_raced, i in enumerate(left):
            where = f"prompt {i + 1} of {total}"
            if num_raced:
                where += f", {_left((time.monotonic() - began) / num_raced * (len(left) - num_raced))}"
            try:
                yield self._race(i, partial(_tell, progress, where, i / total))
            except RaceError as error:
                log.warning("a prompt of a study could not be raced", exc_info=True)
                yield failed_rows(self._prompts[i], self._spec.named(SPECULATIVE), str(error))

    def _race(self, i: int, progress: Progress) -> tuple[Row, ...]:
        from ...session import TorchRace

        race = TorchRace(self._loaded, self._spec, self._encoded[i], progress, self._rooms[i])
        events: list[LaneEvent] = []
        with closing(race.events()) as stream:  # type: ignore[type-var]
            for event in stream:
                events.append(event)
                progress("racing", None)
        return rows_of(race, events, self._prompts[i])


def rows_of(race: TorchRace, events: Sequence[LaneEvent], prompt: FilePrompt) -> tuple[Row, ...]:
    """The rows of a finished race, one per drafter. Raises RaceError if plain decoding failed."""
    failed = {e.lane: e.event.message for e in events if isinstance(e.event, Failed)}
    if broken := [f"lane {lane} failed: {failed[lane]}" for lane in (PLAIN, BASELINE) if lane in failed]:
        raise RaceError("; ".join(broken))
    gains, verdicts = race_speedups(events, race.spec.lanes), race.result()["verdicts"]
    computed = {} if failed else _computed(race, list(gains))
    loops = loop_sentence(with_counters(steps(events, BASELINE))) is not None
    disturbed = disturbance(events, race.waited_share) is not None
    rows = []
    for name, gain in gains.items():
        numbers, fault = lane_metrics(events, name), ""
        identical = are_same(verdicts[name]["kind"])
        if name in failed:
            fault = f"line {prompt.line}: lane {name} failed: {failed[name]}"
        elif identical is False and race.widths.plan.exact:
            fault = f"line {prompt.line}: {verdicts[name]['sentence']}"
        rows.append(
            Row(
                line=prompt.line,
                prompt=prompt.label,
                kind=prompt.kind,
                drafter=name,
                k=AUTO,
                speedup=None if fault else gain,
                noise=ratio_noise(steps(events, fastest_plain(events, name)), steps(events, name)),
                acceptance_rate=numbers.acceptance_rate,
                mean_acceptance_length=numbers.mean_acceptance_length,
                num_tokens=numbers.num_tokens,
                identical=identical,
                loops=loops,
                disturbed=disturbed,
                fault=fault,
                computed=computed.get(name, {}),
            )
        )
    return tuple(rows)


def failed_rows(prompt: FilePrompt, drafters: Sequence[str], why: str) -> tuple[Row, ...]:
    """The rows of a prompt that could not be raced, one per drafter."""
    about = prompt.line, prompt.label, prompt.kind
    fault = f"line {prompt.line}: {why}"
    return tuple(Row(*about, drafter, AUTO, None, None, None, None, 0, False, fault=fault) for drafter in drafters)


def _computed(race: TorchRace, drafters: Sequence[str]) -> dict[str, dict[str, float]]:
    """For each drafter the speed-up by k: of chains, and of `auto`."""
    chains = [(drafter, MAX_AUTO_K) for drafter in drafters if serves_every_k(drafter)]
    found = what_if(race, [*chains, *((drafter, AUTO) for drafter in drafters)])
    undrafted = [race.lanes[name].steps for name in (PLAIN, BASELINE) if name in race.lanes]

    def gain(done: Sequence[Step]) -> float:
        return min((each for plain in undrafted if (each := speedup(plain, done)) is not None), default=0.0)

    return {
        drafter: {AUTO: gain(auto_steps(found, drafter))}
        | {str(k): gain(found.steps(drafter, k)) for k in found.offered()[drafter]}
        for drafter in drafters
    }


def _tell(progress: Progress, where: str, share: float, stage: str, _: float | None) -> None:
    progress(f"{where}: {stage}", share)


def _left(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
