"""Races the prompts of a study on servers, and what their rows may say: times as measured here, the servers' own counts
of drafts, the texts compared, and nothing of bits, widths or other draft lengths."""

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...analysis.loops import loop_sentence, with_counters
from ...analysis.metrics import fastest_plain, lane_metrics, race_speedups, ratio, ratio_noise
from ...analysis.verdict_words import VERDICTS
from ...core.errors import RaceError, UsageError
from ...core.events import LaneEvent, steps
from ...core.spec import AUTO, BASELINE, PLAIN, SERVER, SamplingParams
from ...progress import Progress, collected
from ...recordings.recording import build, failures
from ...recordings.words import clean, said, sent_as
from ...remote.client import Patience
from ...remote.endpoint import Endpoint
from ...remote.look import servers_say
from ...remote.request import Question
from ...remote.same_text import answer_of, parts_at
from ...remote.server_race import RemoteRace
from .prompts import FilePrompt
from .rows import Row

NO_DRAFTS = "no lane of these servers drafts, so there is nothing to study; name one speculative"
PART = 60  # characters of a text before and after the place where it differs


def drafting_lanes(endpoints: Sequence[Endpoint]) -> dict[str, str]:
    """For each lane that drafts, what a study's rows call its drafter."""
    lanes = [endpoint.lane for endpoint in endpoints if endpoint.lane not in (PLAIN, BASELINE)]
    return {lane: SERVER if len(lanes) == 1 else lane for lane in lanes}


class ServersStudy:
    """Races of many prompts on servers, as `race_prompts.Study` has them on this machine.

    same_device: lanes take turns. chat: texts are sent as messages. kinds: see `look.kinds_of`. Raises UsageError if no
    lane drafts."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        prompts: Sequence[FilePrompt],
        params: SamplingParams,
        same_device: bool,
        chat: bool,
        kinds: Mapping[str, str],
    ) -> None:
        self._endpoints, self._prompts, self._how = endpoints, prompts, (params, Patience(), same_device)
        self._chat, self._kinds, self.names = chat, kinds, drafting_lanes(endpoints)
        if not self.names:
            raise UsageError(NO_DRAFTS)

    def about(self) -> dict[str, Any]:
        """See `Study.about`."""
        about = self._race(self._prompts[0]).header()
        words = said(about)
        asked = sent_as(bool(about["prompt"]["chat"]), self._how[0].max_new_tokens)
        words["circumstances"] = clean(f"{words['circumstances']}; {asked}; {servers_say(self._kinds)}")
        return {**about, "said": words | {"on_servers": True}}

    def races(self, done: Container[int], progress: Progress) -> Iterator[tuple[Row, ...]]:
        """See `Study.races`. Raises RaceError if a lane without drafts fails."""
        for i, prompt in enumerate(self._prompts, 1):
            if prompt.line not in done:
                where = f"prompt {i} of {len(self._prompts)}"
                yield rows_on_servers(self._race(prompt), self.names, prompt, partial(_tell, progress, where))

    def _race(self, prompt: FilePrompt) -> RemoteRace:
        return RemoteRace(self._endpoints, question_of(prompt, self._chat), *self._how)


def _tell(progress: Progress, where: str, stage: str, share: float | None) -> None:
    progress(f"{where}: {stage}", share)


def question_of(prompt: FilePrompt, chat: bool) -> Question:
    """What a server is asked. chat: a text is sent as a message."""
    messages = prompt.messages or ((("user", prompt.text),) if chat else ())
    return Question(messages=messages) if messages else Question(prompt.text)


def rows_on_servers(
    race: RemoteRace, names: Mapping[str, str], prompt: FilePrompt, progress: Progress
) -> tuple[Row, ...]:
    """Run the race; a row for each lane that drafts. names: what a lane's row calls its drafter. `progress` may raise
    to give up. Raises RaceError if a lane without drafts fails."""
    recording = build(race.header(), collected(race.events(), progress), race.result())
    events, failed = recording.events, failures(recording)
    undrafted = [*race.spec.named(PLAIN), *race.spec.named(BASELINE)]
    if broken := [f"lane {lane} failed: {failed[lane]}" for lane in undrafted if lane in failed]:
        raise RaceError(f"line {prompt.line}: {'; '.join(broken)}")
    loops = any(
        race.lanes[lane].written.has_ids and loop_sentence(with_counters(steps(events, lane))) for lane in undrafted[:1]
    )
    kinds = {lane: verdict["kind"] for lane, verdict in recording["verdicts"].items()}
    faults = {name: f"line {prompt.line}: lane {name} failed: {failed[name]}" for name in failed}
    for name in [name for name, kind in kinds.items() if kind == "not_compared" and name not in failed]:
        why = filter(None, (race.lanes[lane].reply.textless for lane in (undrafted[-1], name)))
        sentences = [recording["verdicts"][name]["sentence"], *dict.fromkeys(why)]
        faults[name] = f"line {prompt.line}: lane {name}: {'; '.join(sentences)}"
    own = race.spec.first(PLAIN), race.spec.first(BASELINE)
    partings = {name: _parting(race, undrafted[-1], name) for name, kind in kinds.items() if kind == "other_text"}
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
            identical=VERDICTS[kinds.get(name, "not_compared")].is_same,
            loops=loops,
            fault=faults.get(name, ""),
            **partings.get(name, {}),
        )
        for name, gain in race_speedups(events, race.spec.lanes).items()
    )


def _parting(race: RemoteRace, plain: str, name: str) -> dict[str, Any]:
    """Where two texts part, and a little of both around it."""
    a, b = (answer_of(race.lanes[lane]) for lane in (plain, name))
    at = parts_at(a, b)
    if at is None:
        return {}
    return {"differs_at": at, "ways": [a.text[max(0, at - PART) : at], a.text[at : at + PART], b.text[at : at + PART]]}


def _drafts(race: RemoteRace, events: Sequence[LaneEvent], name: str) -> dict[str, Any]:
    """From the steps, where the server lists them; else from its sums, as far as it has them."""
    if any(step.num_drafted for step in steps(events, name)):
        numbers = lane_metrics(events, name)
        return {"acceptance_rate": numbers.acceptance_rate, "mean_acceptance_length": numbers.mean_acceptance_length}
    said = race.lanes[name].reply.drafted
    return {
        "acceptance_rate": ratio(said.num_accepted, said.num_drafted) if said else None,
        "mean_acceptance_length": ratio(race.lanes[name].reply.num_tokens, said.num_steps) if said else None,
    }
