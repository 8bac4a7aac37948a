"""What a lane says while it decodes: frozen values with one JSON form, shared by the page, replay, export and tests.

Standard library only. `to_json` and `from_json` are inverse; `from_json` trusts nothing, because a recording may come
from a stranger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Union

from .errors import UsageError
from .strict_json import TEXT, IfThere, Maybe, Shape, fits

FINISH_REASONS = ("stop", "stop_string", "length")
MAX_SECONDS = 1e7


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as text and as the token ids that the target sees (special tokens included). `chat`: the text is one
    user message, and the ids are those of the model's chat template around it."""

    text: str
    token_ids: tuple[int, ...]
    chat: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """A lane's prefill is done. `prefill_s` includes the drafter's share."""

    num_prompt_tokens: int
    prefill_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """One verification step. `token_ids[:num_accepted] == drafted[:num_accepted]`; the rest is the target's own token,
    unless a stop cut it off. Of a server's step perhaps only the number of drafts is known: then `drafted` is empty.
    One of unknown width without drafts may be several that came together, and commit any number of tokens."""

    index: int
    position: int
    """Place of `token_ids[0]` in the completion."""
    drafted: tuple[int, ...]
    num_accepted: int
    token_ids: tuple[int, ...]
    draft_s: float
    verify_s: float
    width: int | None
    """Rows of the target's forward, padding included; None where nobody knows."""
    pieces: tuple[str, ...] = ()
    drafted_pieces: tuple[str, ...] = ()
    checksums: tuple[int, ...] = ()
    """One unsigned 64-bit integer per committed row of logits, in audit mode."""
    num_unknown: int = 0
    """Drafted tokens of which only the number is known: none, or all of them."""
    copied: tuple[int, ...] = ()
    """(place in the draft, place in the text): from there on, the draft was copied from there on. The text is prompt,
    completion so far and the draft itself, into which a copy may run. () where nothing was copied, or nobody knows."""

    @property
    def num_drafted(self) -> int:
        """How many tokens were drafted, known or not."""
        return len(self.drafted) + self.num_unknown

    @property
    def seconds(self) -> float:
        return self.draft_s + self.verify_s


@dataclass(frozen=True, slots=True)
class Finished:
    """The lane is done. `reason` is one of FINISH_REASONS; `decode_s` is the sum of its steps' seconds."""

    reason: str
    num_tokens: int
    decode_s: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The lane failed; what it committed before stands."""

    message: str


Event = Union[Started, Step, Finished, Failed]


@dataclass(frozen=True, slots=True)
class LaneEvent:
    """An event of a named lane. `clock_s` is that lane's own time: the seconds of its steps so far, prefill apart.
    `wall_s`: seconds since the race began, on the wall clock; None where it was not taken."""

    lane: str
    clock_s: float
    event: Event
    wall_s: float | None = None


_TYPES: dict[str, type] = {"started": Started, "step": Step, "finished": Finished, "failed": Failed}
_NAMES = {cls: name for name, cls in _TYPES.items()}
_KINDS: dict[str, Any] = {
    "int": Shape("a non-negative integer", lambda value: type(value) is int and 0 <= value < 2**64),
    "float": Shape(
        f"a time from 0 to {MAX_SECONDS:.0f} seconds",
        lambda value: type(value) in (int, float) and 0 <= value <= MAX_SECONDS,
    ),
    "str": TEXT,
}
_KINDS |= {f"tuple[{kind}, ...]": [shape] for kind, shape in _KINDS.items()} | {"int | None": Maybe(_KINDS["int"])}
_SHAPES: dict[type, dict[str, Any]] = {
    cls: {
        "lane": TEXT,
        "clock_s": _KINDS["float"],
        **{f.name: _KINDS[str(f.type)] for f in fields(cls) if f.name not in ("num_unknown", "copied")},
        "wall_s": IfThere(_KINDS["float"]),
    }
    for cls in _TYPES.values()
}
"""What JSON has to hold for the fields of each event."""
_SHAPES[Step]["num_drafted"] = IfThere(Shape("a positive integer", lambda value: type(value) is int and value > 0))
_SHAPES[Step]["copied"] = IfThere(
    Shape(
        "two non-negative integers",
        lambda value: isinstance(value, list) and len(value) == 2 and all(map(_KINDS["int"].holds, value)),
    )
)


def width_words(width: int | None) -> str:
    """The width of a step, as a sentence says it."""
    return "unknown width" if width is None else f"width {width}"


def to_json(lane_event: LaneEvent) -> dict[str, Any]:
    """A flat object: lane, clock_s, type, then the event's own fields. `num_drafted` is there where the drafts are not
    known, `copied` where a part of the draft was, `wall_s` where it was taken."""
    event = lane_event.event
    out: dict[str, Any] = {"lane": lane_event.lane, "clock_s": lane_event.clock_s, "type": _NAMES[type(event)]}
    for field in fields(event):
        value = getattr(event, field.name)
        out[field.name] = list(value) if isinstance(value, tuple) else value
    if num_unknown := out.pop("num_unknown", 0):
        out["num_drafted"] = num_unknown
    if not out.get("copied", True):
        del out["copied"]
    if lane_event.wall_s is not None:
        out["wall_s"] = lane_event.wall_s
    return out


def from_json(value: Any) -> LaneEvent:
    """The inverse of `to_json`. Raises UsageError for anything that it could not have written."""
    if not isinstance(value, dict):
        raise UsageError(f"an event must be an object, not {type(value).__name__}")
    cls = _TYPES.get(value["type"]) if isinstance(value.get("type"), str) else None
    if cls is None:
        raise UsageError(f"unknown event type {value.get('type')!r}; choose one of: {', '.join(_TYPES)}")
    fits(value, _SHAPES[cls], f"a {value['type']} event")
    if extra := sorted(set(value) - set(_SHAPES[cls]) - {"type"}, key=str):
        raise UsageError(f"a {value['type']} event has no field {extra[0]!r}")
    arguments = {
        f.name: tuple(item) if isinstance(item := value[f.name], list) else item for f in fields(cls) if f.name in value
    }
    if "num_drafted" in value:
        arguments["num_unknown"] = value["num_drafted"]
    event = cls(**arguments)
    _check(event)
    return LaneEvent(value["lane"], value["clock_s"], event, value.get("wall_s"))


def _check(event: Event) -> None:
    if isinstance(event, Finished) and event.reason not in FINISH_REASONS:
        raise UsageError(f"unknown finish reason {event.reason[:40]!r}; choose one of: {', '.join(FINISH_REASONS)}")
    if isinstance(event, Step):
        n = event.num_accepted
        known = () if event.num_unknown else event.token_ids[:n]
        if event.drafted and event.num_unknown:
            raise UsageError(
                f"step {event.index} names {len(event.drafted)} drafted tokens and has num_drafted "
                f"{event.num_unknown}, which is for those that are not known"
            )
        together = event.width is None and not event.num_drafted
        fits_n = together or n <= len(event.token_ids) <= n + 1
        if n > event.num_drafted or not fits_n or event.drafted[:n] != known:
            raise UsageError(
                f"step {event.index} contradicts itself: {n} accepted of {event.num_drafted} drafted, "
                f"{len(event.token_ids)} committed"
            )
        if event.copied and event.copied[0] >= len(event.drafted):
            raise UsageError(
                f"step {event.index} copied from place {event.copied[0]} of its draft on, which has "
                f"{len(event.drafted)} tokens"
            )
        for name, items, want in (
            ("pieces", event.pieces, event.token_ids),
            ("drafted_pieces", event.drafted_pieces, event.drafted),
            ("checksums", event.checksums, event.token_ids),
        ):
            if items and len(items) != len(want):
                raise UsageError(f"step {event.index} has {len(items)} {name} for {len(want)} tokens")


def steps(events: Iterable[LaneEvent], lane: str) -> list[Step]:
    """The steps of one lane, in order."""
    return [e.event for e in events if e.lane == lane and isinstance(e.event, Step)]
