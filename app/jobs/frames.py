"""The state of a race as the page sees it, folded from what happens, and the frames that bring a browser up to date.
Pure: no Gradio, no clock."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, Union

from engine.core.errors import sentence
from engine.core.events import Failed, LaneEvent
from engine.core.spec import SERVER, RaceSpec
from engine.recordings.check import read_spec
from engine.recordings.event_json import to_json
from engine.recordings.recording import Recording

State = Literal["idle", "waiting", "preparing", "running", "finished", "stopped", "failed"]
ENDED = ("finished", "stopped", "failed")
RECORDED, SYNTHETIC = "RECORDED", "SYNTHETIC"
RUNNING_TEXT = "Racing: lanes take turns, each on its own clock."
SERVERS_TEXT = "Racing. Each lane runs on its server, all at once. Times are measured here and include the network."
SERVERS_IN_TURN = "Racing. One server after the other. Times are measured here and include the network."


@dataclass(frozen=True)
class Waiting:
    """Other races have the device first. place: how many, including the running one.
    expected_s: until this one starts; None if unknown, infinite if the running one takes longer than usual."""

    place: int
    expected_s: float | None


@dataclass(frozen=True)
class Preparing:
    """What happens before the first step.

    text: a sentence.
    share: how much of it is done; None if unknown."""

    text: str
    share: float | None


@dataclass(frozen=True)
class Prepared:
    """The race is about to run; `header` is its recording's."""

    header: Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    """The race is over.

    recording: the whole race; None if it never ran. Its events replace those shown while it ran, which may differ (see
        `engine.remote.server_race`).
    again: for a recorded race that was run again, whether the tokens were the same; a sentence."""

    state: Literal["finished", "stopped", "failed"]
    text: str
    recording: Recording | None = None
    again: str = ""


@dataclass(frozen=True)
class Extras:
    """The recording of a finished race with all that is added to it (see `engine.what_if.ask.members`); None if nothing
    is."""

    recording: Recording | None


News = Union[Waiting, Preparing, Prepared, LaneEvent, Ended, Extras]


@dataclass(frozen=True)
class RaceView:
    """All that is known about one race.

    name: the title of its prompt.
    share: as in `Preparing`.
    left_s: while the race waits, the expected wait.
    events: of all lanes, in order.
    recording: once the race is over.
    has_extras: whether the extras have been added to it.
    again: as in `Ended`."""

    race: str
    name: str = ""
    state: State = "idle"
    text: str = ""
    share: float | None = None
    ribbon: str = ""
    header: Mapping[str, Any] | None = None
    spec: RaceSpec | None = None
    events: tuple[LaneEvent, ...] = ()
    recording: Recording | None = None
    left_s: int | None = None
    has_extras: bool = False
    again: str = ""

    @property
    def ended(self) -> bool:
        """Whether the race is over."""
        return self.state in ENDED

    @property
    def complete(self) -> bool:
        """Whether no more frames will follow: extras are only added to a race that ran to its end."""
        return self.ended and (self.state != "finished" or self.has_extras)


def fold(view: RaceView, news: News) -> RaceView:
    """The view after one more thing has happened. An ended race only changes by its extras."""
    if isinstance(news, Extras) and view.ended and not view.complete:
        return replace(view, recording=news.recording or view.recording, has_extras=True)
    if view.ended or isinstance(news, Extras):
        return view
    if isinstance(news, LaneEvent):
        return replace(view, events=(*view.events, news))
    if isinstance(news, Waiting):
        return replace(view, state="waiting", text=waiting_text(news), left_s=_whole(news.expected_s))
    if isinstance(news, Preparing):
        return replace(view, state="preparing", text=sentence(news.text), share=news.share, left_s=None)
    if isinstance(news, Prepared):
        ribbon = SYNTHETIC if news.header.get("synthetic") else view.ribbon
        on_servers = SERVERS_IN_TURN if news.header["spec"]["solo"] else SERVERS_TEXT
        text = on_servers if news.header["device"]["type"] == SERVER else RUNNING_TEXT
        now_running = replace(view, state="running", text=text, share=None, left_s=None)
        return replace(now_running, ribbon=ribbon, header=news.header, spec=read_spec(news.header["spec"]))
    over = replace(view, state=news.state, text=news.text, share=None, left_s=None)
    events = news.recording.events if news.recording else view.events
    return replace(over, recording=news.recording, again=news.again, events=events)


def fold_all(view: RaceView, news: Iterable[News]) -> RaceView:
    """`fold` over several, in order; a row of lane events is added at once."""
    batch = list(news)
    events = [item for item in batch if isinstance(item, LaneEvent)]
    if view.complete or not batch:
        return view
    if len(events) == len(batch) and not view.ended:
        return replace(view, events=(*view.events, *events))
    return reduce(fold, batch, view)


def frame(before: RaceView | None, now: RaceView, seq: int) -> dict[str, Any]:
    """What a browser that has seen `before` (None: nothing yet) needs to see `now`: one object of the frame protocol,
    ready for JSON. The recording is sent, as its JSON text, in the first frame after the race, and again when its
    extras are added."""
    known = len(before.events) if before else 0
    new_header = now.header is not None and (before is None or before.header is None)
    is_new = before is None or before.recording is not now.recording
    return {
        "race": now.race,
        "name": now.name,
        "seq": seq,
        "state": now.state,
        "status": {"text": now.text, "share": now.share, "left_s": now.left_s},
        "ribbon": now.ribbon,
        "header": now.header if new_header else None,
        "events": [to_json(event) for event in now.events[known:]],
        "recording": now.recording.text if is_new and now.recording else None,
        "again": now.again,
        "complete": now.complete,
    }


def frame_json(frame: Mapping[str, Any]) -> str:
    """A frame as one JSON string, with finite numbers only and `<` escaped (gr.HTML warns about script tags in its
    values)."""
    return json.dumps(frame, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def waiting_text(waiting: Waiting) -> str:
    """The visitor's place in the queue, in words. The page adds the seconds if they are known."""
    ahead = "1 race" if waiting.place == 1 else f"{waiting.place} races"
    if waiting.expected_s is None:
        return f"{ahead} ahead of you. No estimate yet."
    late = waiting.expected_s == math.inf
    return f"{ahead} ahead of you." + (" The current race is taking longer than usual." if late else "")


def finished_text(events: Iterable[LaneEvent]) -> str:
    """How a race that ran to its end ended: which lanes failed, if any."""
    failed = [f"Lane {event.lane} failed: {event.event.message}" for event in events if isinstance(event.event, Failed)]
    return sentence("; ".join(failed)) if failed else "Finished."


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None or seconds == math.inf else max(1, round(seconds))
