"""Races the prompts of a study, one after the other. Imports nothing heavy before the first race."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...analysis.loops import loop_sentence, with_counters
from ...analysis.metrics import fastest_plain, lane_metrics, ratio_noise, speedup
from ...core.errors import RaceError, TemplateError, UsageError
from ...core.events import LaneEvent, Prompt, Step, steps
from ...core.spec import AUTO, BASELINE, MAX_AUTO_K, PLAIN, SPECULATIVE, RaceSpec, SamplingParams, lanes_of
from ...drafters import parse, serves_every_k
from ...hardware import environment
from ...progress import Progress, silent
from ...recordings.words import said
from ...what_if.ask import what_if
from .prompts import FilePrompt
from .rows import Row

if TYPE_CHECKING:
    from ...loading.loading import LoadedModel
    from ...session import TorchRace
    from ...session.run_prompts import Entry, Raced
    from .generate import Generate

log = logging.getLogger(__name__)
# A prompt's rows; and its race's events and token ids, unless it failed.
Finished = tuple[tuple[Row, ...], tuple[Sequence[LaneEvent], Sequence[int]] | None]
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
    each drafter at k auto. Raises UsageError, before any race, for a prompt that does not fit the model, or if the chat
    template takes none of them; one that it does not take has only its fault in its rows.

    generate: writes every prompt too, after its race, on a model that it made ready."""

    def __init__(
        self,
        loaded: LoadedModel,
        prompts: Sequence[FilePrompt],
        drafters: Sequence[str],
        params: SamplingParams,
        generate: Generate | None = None,
    ) -> None:
        from ...session.set_up import check_fits

        self._generate = generate
        self._loaded, self._refused = loaded, dict[int, tuple[Row, ...]]()
        self._spec = RaceSpec(lanes_of((drafter, drafter, AUTO) for drafter in drafters), params)
        self._encoded: list[tuple[FilePrompt, Prompt]] = []
        for prompt in prompts:
            try:
                encoded = prompt.encode(loaded.tokenizer)
            except TemplateError as error:
                self._refused[prompt.line] = failed_rows(prompt, drafters, str(error))
                continue
            try:
                check_fits(loaded.prepared, self._spec, encoded)
            except UsageError as error:
                raise UsageError(f"line {prompt.line}: {error}") from error
            self._encoded.append((prompt, encoded))
        if not self._encoded:
            raise UsageError(next(iter(self._refused.values()))[0].fault)
        self._rooms = shared_rooms([len(entry.token_ids) + params.max_new_tokens for _, entry in self._encoded])

    def about(self) -> dict[str, Any]:
        """What the races run on, and their settings. `said`: the same in words."""
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
        from ...session.run_prompts import Entry, run_prompts

        yield from (rows for line, rows in self._refused.items() if line not in done)
        prompts = {f"line {prompt.line}": prompt for prompt, _ in self._encoded}
        entries = [
            Entry(f"line {prompt.line}", prompt.kind, encoded, self._spec, room)
            for (prompt, encoded), room in zip(self._encoded, self._rooms, strict=True)
            if prompt.line not in done
        ]

        def failed(entry: Entry, error: RaceError) -> Finished:
            log.warning("a prompt of a study could not be raced", exc_info=True)
            return failed_rows(prompts[entry.name], self._spec.named(SPECULATIVE), f"{entry.name}: {error}"), None

        def read(raced: Raced) -> Finished:
            return rows_of(raced, prompts[raced.entry.name]), (raced.events, raced.entry.prompt.token_ids)

        num_done = len(prompts) - len(entries)
        for rows, raced in run_prompts(self._loaded, entries, read, failed, num_done, progress):
            if self._generate and raced:  # races and peers take turns, so a machine that slows down treats them alike
                peers = self._generate.peers(*raced)
                rows = tuple(replace(row, peers=peers) for row in rows)
            yield rows


def rows_of(raced: Raced, prompt: FilePrompt) -> tuple[Row, ...]:
    """The rows of a finished race, one per drafter. Raises RaceError if plain decoding failed."""
    race, events, failed = raced.race, raced.events, raced.failed
    if broken := [f"lane {lane} failed: {failed[lane]}" for lane in (PLAIN, BASELINE) if lane in failed]:
        raise RaceError("; ".join(broken))
    computed = {} if failed else _computed(race, list(raced.gains))
    loops = loop_sentence(with_counters(steps(events, BASELINE))) is not None
    rows = []
    for name, gain in raced.gains.items():
        numbers, fault = lane_metrics(events, name), raced.fault(name)
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
                identical=raced.is_identical(name),
                loops=loops,
                disturbed=raced.is_disturbed,
                fault=fault,
                computed=computed.get(name, {}),
            )
        )
    return tuple(rows)


def failed_rows(prompt: FilePrompt, drafters: Sequence[str], fault: str) -> tuple[Row, ...]:
    """The rows of a prompt that could not be raced, one per drafter."""
    about = prompt.line, prompt.label, prompt.kind
    return tuple(Row(*about, drafter, AUTO, None, None, None, None, 0, None, fault=fault) for drafter in drafters)


def _computed(race: TorchRace, drafters: Sequence[str]) -> dict[str, dict[str, float]]:
    """Each drafter's speed-up at every k of its chains."""
    computed = what_if(race, [(drafter, MAX_AUTO_K) for drafter in drafters if serves_every_k(drafter)])
    undrafted = [race.lanes[name].steps for name in (PLAIN, BASELINE)]

    def gain(done: Sequence[Step]) -> float:
        return min((ratio for plain in undrafted if (ratio := speedup(plain, done)) is not None), default=0.0)

    return {
        drafter: {str(k): gain(computed.steps(drafter, k)) for k in ks} for drafter, ks in computed.offered().items()
    }
