"""A race of servers: the same question to each of them, events as they come, a recording at the end."""

import platform
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import httpx

from ..core.errors import UsageError
from ..core.events import LaneEvent, Step
from ..core.spec import AUTO, BASELINE, PLAIN, SERVER, LaneSpec, RaceSpec, SamplingParams
from ..recordings.event_json import to_json
from .client import Patience
from .endpoint import Endpoint
from .lane import RemoteLane
from .reply import UNCOUNTED
from .request import Question, costs
from .same_text import answer_of, judge
from .steps import Written

CLOSE_S = 2.0
# What a recording says of a lane on this machine.
UNKNOWN_MODEL = {"dtype": "a precision that is not known", **dict.fromkeys(("revision", "digest", "licence"))}
UNKNOWN_WIDTHS: dict[str, Any] = {"exact": False, "widths_class": [], **dict.fromkeys(("width", "plain_width"))}


class RemoteRace:
    """Lanes on servers that decode the same question: one after the other with same_device, else all at once, on the
    wall clock. `header()`, `events()` and `result()` as for TorchRace.

    Every server has answered a short question on the same connection before its lane's clock starts. Live, a server's
    lane reports its chunks, as steps without drafts; `result()` has the final events, with steps from the servers' own
    lists if they send them. No key or URL is in any of it. Raises UsageError for lanes that cannot race; a server's
    failure fails only its lane."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        question: Question,
        params: SamplingParams,
        patience: Patience,
        same_device: bool = False,
    ) -> None:
        lanes = tuple(LaneSpec(endpoint.lane, SERVER, AUTO) for endpoint in endpoints)
        self.spec = RaceSpec(lanes, params, solo=same_device)
        self.question = question
        self.created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._said: SimpleQueue[LaneEvent | None] = SimpleQueue()
        secrets = frozenset[str]().union(*(endpoint.secrets for endpoint in endpoints))
        for endpoint in endpoints:
            if any(secret in endpoint.lane or secret in endpoint.model for secret in secrets):
                raise UsageError("the name of a lane or model contains a server's key or URL")
        self.lanes = {
            endpoint.lane: RemoteLane(endpoint, question, params, patience, secrets, self._said.put)
            for endpoint in endpoints
        }

    def header(self) -> dict[str, Any]:
        """Everything known before the first token."""
        models = list(dict.fromkeys(lane.endpoint.model for lane in self.lanes.values()))
        where = {1: "one server,", 2: "both servers,"}.get(len(self.lanes), f"{len(self.lanes)} servers,")
        where = f"{where} {' and '.join(self.lanes)}" + ", in turns" * self.spec.solo
        text = self.question.text or "\n".join(content for _, content in self.question.messages)
        return {
            "model": {**UNKNOWN_MODEL, "name": ", ".join(models)},
            "device": {"type": SERVER, "name": where, "threads": None},
            "versions": {"python": platform.python_version(), "httpx": httpx.__version__},
            "commit": None,
            "created": self.created,
            "widths": {**UNKNOWN_WIDTHS, "cache_length": 0, "note": "not known of servers"},
            "spec": self.spec.to_json(),
            "prompt": {"text": text, "token_ids": [], "chat": bool(self.question.messages)},
        }

    def events(self) -> Iterator[LaneEvent]:
        """The race, to be iterated once; closing it ends all lanes at once."""
        lanes, began = list(self.lanes.values()), 0.0
        try:
            for together in [[lane] for lane in lanes] if self.spec.solo else [lanes]:
                for lane in together:
                    lane.start()
                for lane in together:
                    lane.ready.wait()
                began = began or time.perf_counter()
                for lane in together:
                    lane.began = began
                    lane.go.set()
                running = len(together)
                while running:
                    said = self._said.get()
                    if said is None:
                        running -= 1
                    else:
                        yield said
        finally:
            for lane in lanes:
                lane.close(0)
            for lane in lanes:
                lane.close(CLOSE_S)

    def result(self) -> dict[str, Any]:
        """The events with their final steps, each server's own claims, and the verdicts on the lanes against the
        baseline, or against the plain lane if there is none."""
        steps, promises = {}, {}
        for name, lane in self.lanes.items():
            steps[name], promises[name] = _final_steps(lane)
        events = [event for name, lane in self.lanes.items() for event in lane.events(steps[name])]
        verdicts, t = {}, self.spec.params.temperature
        why = f"; at temperature {t:g} each server draws its own random numbers" if t else ""
        answers = {name: answer_of(lane) for name, lane in self.lanes.items()}
        for baseline in [*self.spec.named(BASELINE), *self.spec.named(PLAIN)][:1]:
            for name, lane in self.lanes.items():
                if lane.endpoint.model != self.lanes[baseline].endpoint.model:
                    promises[name] += "; another model than that of the baseline: the texts are not compared"
                elif name != baseline:
                    verdicts[name] = judge(answers[baseline], answers[name], why)
        events.sort(key=lambda event: event.wall_s or 0.0)
        return {"events": [to_json(event) for event in events], "verdicts": verdicts, "promises": promises}


def _final_steps(lane: RemoteLane) -> tuple[list[Step], str]:
    """The final steps of a lane, and a sentence on what its server reported."""
    drafted, written = lane.reply.drafted, lane.written
    notes = [f"a server, model {lane.endpoint.model}; times are taken here, the way to it included"]
    if written.uncounted:
        is_guess = written.is_estimated(len(written.token_ids))
        size = "those of a piece are estimated by its text" if is_guess else "each of as many pieces counts as one"
        notes.append(f"{UNCOUNTED}: {size}")
    elif not written.has_ids:
        notes.append("it counts its tokens and does not name them: each has the id 0")
    hidden = f"it does not show its thinking: {written.num_hidden} tokens, which count with its first text"
    refused, reply = costs(lane.endpoint, lane.question.path), lane.reply
    notes += filter(None, (reply.textless, refused, thought(written), hidden * bool(written.num_hidden), reply.clumped))
    if drafted is None:
        says = "it says nothing of drafts"
    elif drafted.num_drafted is None:
        says = f"it says that {drafted.num_accepted} of its tokens were accepted drafts"
    elif not drafted.num_drafted and not drafted.accepted:
        says = "it drafted nothing"
    elif not drafted.accepted or written.uncounted:
        kept = f"{drafted.num_accepted} of {drafted.num_drafted} drafted tokens"
        says = f"it says that it accepted {kept}, and not at which step"
    elif (listed := written.steps(drafted)) is not None:
        by_lists = "steps by its own lists of accepted and drafted tokens; those of one chunk share its time"
        return listed, "; ".join([*notes, by_lists])
    else:
        says = (
            f"its lists of {drafted.num_accepted} accepted tokens in {drafted.num_steps} steps contradict its "
            f"{len(written.token_ids)} tokens, or have steps of too many drafts"
        )
    return written.steps() or [], "; ".join([*notes, says, "a step is a chunk"])


def thought(written: Written) -> str:
    """The speed of a text's thinking and of its answer, a clause; "" if it is all of one kind."""
    num = written.num_thinking
    if not num:
        return ""
    parts = written.at_s[:num], written.at_s[num:]
    rates = [f", {(len(at_s) - 1) / (at_s[-1] - at_s[0]):.1f} a second" if at_s[-1] > at_s[0] else "" for at_s in parts]
    return (
        f"it thinks first: {num} tokens{rates[0]}; its answer begins after {written.at_s[num]:.3f} s and has "
        f"{len(parts[1])} tokens{rates[1]}"
    )
