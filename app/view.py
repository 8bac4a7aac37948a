"""The state of a race as the page sees it, folded from what happens, and the frames that tell a browser what is new.
Pure: no Gradio, no clock."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any, Literal, Union

from engine.events import Failed, LaneEvent, to_json
from engine.metrics import lane_metrics, race_speedup
from engine.recordings.recording import is_elsewhere, spec_of
from engine.spec import BASELINE, PLAIN, SERVER, SPECULATIVE

State = Literal["idle", "waiting", "preparing", "running", "finished", "stopped", "failed"]
ENDED = ("finished", "stopped", "failed")
RECORDED, SYNTHETIC = "RECORDED", "SYNTHETIC"
RUNNING_TEXT = "Racing: the lanes take turns on one device; the clock is each lane's own time."
MIXED_TEXT = "Racing: the lanes here take turns on one device; then the lanes on servers."
SERVERS_TEXT = "Racing: each lane on its server, all at once. Times are taken here, the way to the server included."
SERVERS_IN_TURN = "Racing: one server after the other. Times are taken here, the way to the server included."


@dataclass(frozen=True)
class Waiting:
    """Other races have the device first: `place` of them, the running one included. `expected_s` is None where nobody
    can know, infinite where the running one takes longer than usual."""

    place: int
    expected_s: float | None


@dataclass(frozen=True)
class Preparing:
    """What happens before the first step, in a sentence, how much of it is done, and for how many seconds it should go
    on; None: nobody knows."""

    text: str
    share: float | None
    left_s: float | None = None


@dataclass(frozen=True)
class Prepared:
    """The race is about to run; `header` is that of its recording."""

    header: Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    """The race is over. `recording` is the whole of it, None where it never ran. `again`: of a recorded race that was
    run again, what became of its tokens. `events`: those of the recording, where they are not the ones that were told
    while it ran; see `engine.remote.race`."""

    state: Literal["finished", "stopped", "failed"]
    text: str
    recording: Mapping[str, Any] | None = None
    again: str = ""
    events: tuple[LaneEvent, ...] = ()


@dataclass(frozen=True)
class Beside:
    """What a finished race's recording gets beside it: see `engine.what_if.ask.members`; empty where there is
    nothing."""

    members: Mapping[str, Any]


News = Union[Waiting, Preparing, Prepared, LaneEvent, Ended, Beside]


@dataclass(frozen=True)
class RaceView:
    """All that is known of one race. `name`: what its prompt is called; `share`: how much of its preparation is done;
    `events`: its lanes' events in order; `recording` is there once it is over; `left_s`: about how many seconds it
    still waits, or is prepared, where that can be known; `beside`: members for the recording that are made when the
    race is over, None while they are not known; `again`: as of `Ended`."""

    race: str
    name: str = ""
    state: State = "idle"
    text: str = ""
    share: float | None = None
    ribbon: str = ""
    header: Mapping[str, Any] | None = None
    events: tuple[LaneEvent, ...] = ()
    recording: Mapping[str, Any] | None = None
    left_s: int | None = None
    beside: Mapping[str, Any] | None = None
    again: str = ""

    @property
    def ended(self) -> bool:
        """Whether the race is over."""
        return self.state in ENDED

    @property
    def complete(self) -> bool:
        """Whether nothing comes any more: only a race that ran to its end gets anything beside it."""
        return self.ended and (self.state != "finished" or self.beside is not None)


def fold(view: RaceView, news: News) -> RaceView:
    """The view after one more thing has happened. An ended race stays as it is, but for what comes beside it."""
    if isinstance(news, Beside) and view.ended and not view.complete:
        return replace(view, beside=news.members)
    if view.ended or isinstance(news, Beside):
        return view
    if isinstance(news, LaneEvent):
        return replace(view, events=(*view.events, news))
    if isinstance(news, Waiting):
        return replace(view, state="waiting", text=waiting_text(news), left_s=_whole(news.expected_s))
    if isinstance(news, Preparing):
        text, left_s = sentence(news.text), _whole(news.left_s)
        return replace(view, state="preparing", text=text, share=news.share, left_s=left_s)
    if isinstance(news, Prepared):
        ribbon = SYNTHETIC if news.header.get("synthetic") else view.ribbon
        text = _running_text(news.header)
        now_running = replace(view, state="running", text=text, share=None, left_s=None)
        return replace(now_running, ribbon=ribbon, header=news.header)
    over = replace(view, state=news.state, text=news.text, share=None, left_s=None)
    return replace(over, recording=news.recording, again=news.again, events=news.events or view.events)


def fold_all(view: RaceView, news: Iterable[News]) -> RaceView:
    """`fold` over several, in order; lane events in a row are taken in one move."""
    batch = list(news)
    events = [item for item in batch if isinstance(item, LaneEvent)]
    if view.complete or not batch:
        return view
    if len(events) == len(batch) and not view.ended:
        return replace(view, events=(*view.events, *events))
    return reduce(fold, batch, view)


def frame(before: RaceView | None, now: RaceView, seq: int, with_metrics: bool = False) -> dict[str, Any]:
    """What a browser that has seen `before` (None: nothing yet) needs to see `now`: one object of the frame protocol,
    ready for JSON.

    Metrics are worked out where asked for while the race runs, and in the first frame after it, which also carries the
    whole recording; a later one may bring members for it."""
    known = len(before.events) if before else 0
    new_header = now.header is not None and (before is None or before.header is None)
    ends = now.ended and not (before and before.ended)
    numbers = bool(now.events) and (ends or (with_metrics and not now.ended))
    return {
        "race": now.race,
        "name": now.name,
        "seq": seq,
        "state": now.state,
        "status": {"text": now.text, "share": now.share, "left_s": now.left_s},
        "ribbon": now.ribbon,
        "header": now.header if new_header else None,
        "events": [to_json(event) for event in now.events[known:]],
        "metrics": metrics(now.events) if numbers else None,
        "speedup": _speedup(now) if numbers else None,
        "recording": now.recording if ends else None,
        "again": now.again,
        "beside": now.beside if before is None or before.beside is None else None,
    }


def _running_text(header: Mapping[str, Any]) -> str:
    if header["device"]["type"] != SERVER:
        return MIXED_TEXT if "places" in header else RUNNING_TEXT
    return SERVERS_IN_TURN if header["spec"]["solo"] else SERVERS_TEXT


def first_named(header: Mapping[str, Any] | None, role: str) -> str:
    """The name of the first lane of a role, which is the one that the page shows; "" where there is none, and the
    role's own name before the lanes are known."""
    return next(iter(spec_of(header).named(role)), "") if header else role


def is_shown_elsewhere(header: Mapping[str, Any] | None) -> bool:
    """Whether the lane that the page shows was decoded on a server, and its plain lanes here."""
    if not header:
        return False
    name = first_named(header, SPECULATIVE)
    return any(lane.name == name and is_elsewhere(header, lane) for lane in spec_of(header).lanes)


def _speedup(view: RaceView) -> float | None:
    return race_speedup(view.events, *(first_named(view.header, role) for role in (SPECULATIVE, PLAIN, BASELINE)))


def frame_json(frame: Mapping[str, Any]) -> str:
    """A frame as the component takes it: one JSON string, finite numbers only, with `<` escaped (gr.HTML warns of
    script tags in its values)."""
    return json.dumps(frame, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def metrics(events: Iterable[LaneEvent]) -> dict[str, dict[str, Any]]:
    """The numbers of every lane that has said anything, as JSON."""
    events = list(events)
    return {lane: asdict(lane_metrics(events, lane)) for lane in dict.fromkeys(event.lane for event in events)}


def waiting_text(waiting: Waiting) -> str:
    """The queue as a visitor should read it, beside the seconds where they are known."""
    ahead, first = ("1 race", "It") if waiting.place == 1 else (f"{waiting.place} races", "The first")
    if waiting.expected_s is None:
        return f"{ahead} before yours. Nobody can say yet for how long."
    return f"{ahead} before yours." + (f" {first} takes longer than usual." if waiting.expected_s == math.inf else "")


def finished_text(events: Iterable[LaneEvent]) -> str:
    """How a race that ran to its end ended: which lanes failed, if any."""
    failed = [f"Lane {event.lane} failed: {event.event.message}" for event in events if isinstance(event.event, Failed)]
    return sentence("; ".join(failed)) if failed else "Finished."


def sentence(text: str) -> str:
    """Begins with a capital letter and ends with a full stop."""
    text = text.strip()
    return text if not text else text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None or seconds == math.inf else max(1, round(seconds))
