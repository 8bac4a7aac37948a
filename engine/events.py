"""The events of a lane: frozen values with one JSON form, shared by the page, replay, export and tests.

Standard library only. `to_json` and `from_json` are inverse; `from_json` trusts nothing, because a recording may come
from a stranger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Union

from .errors import UsageError, choices, kind, short
from .spec import MAX_K, MAX_NEW_TOKENS, is_tree, paths, row_after
from .strict_json import TEXT, AtMost, IfThere, Maybe, Shape, fits

FINISH_REASONS = ("stop", "stop_string", "length")
MAX_SECONDS = 1e7


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt.

    text: as given.
    token_ids: what the target sees, special tokens included.
    chat: whether the text is one user message, and the ids are those of the model's chat template around it.
    """

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
    """One verification step. The first `num_accepted` of `token_ids` are the drafted tokens that were `kept`: the first
    ones of a chain, a path from the root of a tree. The rest is the target's own token, unless a stop cut it off.

    Rows are numbered as in `spec.py`; the properties below treat chains and trees alike.

    A server may report only the number of drafts: then `drafted` is empty. Its step of unknown width without drafts may
    be several steps at once, and commit any number of tokens."""

    index: int
    position: int
    """Position of `token_ids[0]` in the completion."""
    drafted: tuple[int, ...]
    num_accepted: int
    token_ids: tuple[int, ...]
    draft_s: float
    verify_s: float
    width: int | None
    """Rows of the target's forward, padding included; None if unknown."""
    pieces: tuple[str, ...] = ()
    drafted_pieces: tuple[str, ...] = ()
    checksums: tuple[int, ...] = ()
    """One unsigned 64-bit integer per committed row of logits, in audit mode."""
    num_unknown: int = 0
    """Drafted tokens of which only the number is known: none, or all of them."""
    copied: tuple[int, ...] = ()
    """(index in the draft, index in the text): from there on, the draft is a copy of the text from there on. The text
    is the prompt, the completion so far and the draft itself. () if nothing was copied, or unknown."""

    parents: tuple[int, ...] = ()
    """See `interfaces.Draft`. () for a chain."""
    sources: tuple[int, ...] = ()
    """For each token of a tree, the place in the text that it was copied from; -1: from none. The text is the prompt,
    the completion so far and the draft's path to the token. () for a chain, which has `copied`."""
    chances: tuple[float, ...] = ()
    """For each drafted token, the chance of being kept that its drafter gave it. () if unknown."""

    @property
    def kept(self) -> tuple[int, ...]:
        """Which drafted tokens were accepted, by number, in the order of the text."""
        if not self.parents:
            return tuple(range(self.num_accepted))
        rows = [0]
        for token in self.token_ids[: self.num_accepted]:
            if (row := row_after(self.parents, self.drafted, rows[-1], token)) is None:
                break
            rows.append(row)
        return tuple(row - 1 for row in rows[1:])

    @property
    def rows(self) -> tuple[int, ...]:
        """For each committed token, the row that decided it."""
        return (0, *(i + 1 for i in self.kept))[: len(self.token_ids)]

    @property
    def follows(self) -> tuple[int, ...]:
        """For each drafted token, the row that it follows."""
        return self.parents or tuple(range(len(self.drafted)))

    @property
    def paths(self) -> list[tuple[int, ...]]:
        """See `rows.paths`. The length of a row's path is its depth: it decides the token at `position` + depth."""
        return paths(self.follows)

    @property
    def depth(self) -> int:
        """The most tokens that the step could have kept."""
        return max(map(len, self.paths)) if self.parents else self.num_drafted

    @property
    def is_refuted(self) -> bool:
        """Whether something was drafted to follow the accepted tokens, and not accepted."""
        if not self.parents:
            return self.num_accepted < self.num_drafted
        return (self.kept[-1] + 1 if self.kept else 0) in self.parents

    @property
    def places(self) -> tuple[int, ...]:
        """For each drafted token, the place in the text that it was copied from; -1: from none, or unknown."""
        if not self.copied:
            return self.sources or (-1,) * len(self.drafted)
        first, start = self.copied
        return (-1,) * first + tuple(range(start, start + len(self.drafted) - first))

    @property
    def num_drafted(self) -> int:
        """Number of drafted tokens, known or not."""
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
    """The lane failed; what it committed before remains."""

    message: str


Event = Union[Started, Step, Finished, Failed]


@dataclass(frozen=True, slots=True)
class LaneEvent:
    """An event of a named lane.

    clock_s: the seconds of the lane's steps so far, without prefill.
    wall_s: seconds since the race began, on the wall clock; None if not measured.
    """

    lane: str
    clock_s: float
    event: Event
    wall_s: float | None = None


_TYPES: dict[str, type] = {"started": Started, "step": Step, "finished": Finished, "failed": Failed}
_NAMES = {cls: name for name, cls in _TYPES.items()}
_FIELDS = {cls: [field.name for field in fields(cls)] for cls in _NAMES}
_IF_ANY = ("copied", "parents", "sources", "chances")
"""Fields of steps that are left out where they are empty."""
_KINDS: dict[str, Any] = {
    "int": Shape("a non-negative integer", lambda value: type(value) is int and 0 <= value < 2**64),
    "float": Shape(
        f"a time from 0 to {MAX_SECONDS:.0f} seconds",
        lambda value: type(value) in (int, float) and 0 <= value <= MAX_SECONDS,
    ),
    "str": TEXT,
}
_KINDS |= {f"tuple[{kind}, ...]": AtMost(MAX_NEW_TOKENS, shape) for kind, shape in _KINDS.items()}
_KINDS["int | None"] = Maybe(_KINDS["int"])
_SHAPES: dict[type, dict[str, Any]] = {
    cls: {
        "lane": TEXT,
        "clock_s": _KINDS["float"],
        **{f.name: _KINDS[str(f.type)] for f in fields(cls) if f.name not in (*_IF_ANY, "num_unknown")},
        "wall_s": IfThere(_KINDS["float"]),
    }
    for cls in _TYPES.values()
}
"""The JSON shape of each event's fields."""
_SHAPES[Step] |= {"drafted": AtMost(MAX_K, _KINDS["int"]), "drafted_pieces": AtMost(MAX_K, TEXT)}
_SHAPES[Step]["num_drafted"] = IfThere(Shape("a positive integer", lambda value: type(value) is int and value > 0))
_SHAPES[Step]["copied"] = IfThere(
    Shape(
        "two non-negative integers",
        lambda value: isinstance(value, list) and len(value) == 2 and all(map(_KINDS["int"].holds, value)),
    )
)
_SHAPES[Step]["parents"] = IfThere(_SHAPES[Step]["drafted"])
_SHAPES[Step]["sources"] = IfThere(
    AtMost(MAX_K, Shape("an integer from -1 on", lambda value: type(value) is int and value >= -1))
)
_SHAPES[Step]["chances"] = IfThere(
    AtMost(MAX_K, Shape("a probability", lambda value: type(value) in (int, float) and 0 <= value <= 1))
)
_ALLOWED = {cls: {"type", *shape} for cls, shape in _SHAPES.items()}


def width_words(width: int | None) -> str:
    """The width of a step in words."""
    return "unknown width" if width is None else f"width {width}"


def to_json(lane_event: LaneEvent) -> dict[str, Any]:
    """A flat object: lane, clock_s, type, then the event's own fields. `num_drafted` is present if the drafts are
    unknown, `copied`, `parents`, `sources` and `chances` if they are not empty, `wall_s` if it was measured."""
    event = lane_event.event
    out: dict[str, Any] = {"lane": lane_event.lane, "clock_s": lane_event.clock_s, "type": _NAMES[type(event)]}
    for field in fields(event):
        value = getattr(event, field.name)
        out[field.name] = list(value) if isinstance(value, tuple) else value
    if num_unknown := out.pop("num_unknown", 0):
        out["num_drafted"] = num_unknown
    for name in _IF_ANY:
        if not out.get(name, True):
            del out[name]
    if lane_event.wall_s is not None:
        out["wall_s"] = lane_event.wall_s
    return out


def from_json(value: Any) -> LaneEvent:
    """The inverse of `to_json`. Raises UsageError for anything that `to_json` cannot have written."""
    if not isinstance(value, dict):
        raise UsageError(f"an event must be an object, not {kind(value)}")
    name = value.get("type")
    cls = _TYPES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise choices("event type", name, _TYPES)
    fits(value, _SHAPES[cls], f"a {name} event")
    if extra := value.keys() - _ALLOWED[cls]:
        raise UsageError(f"a {name} event has no field {short(min(extra))}")
    found = of_checked(value)
    _check(found.event)
    return found


def of_checked(value: Mapping[str, Any]) -> LaneEvent:
    """`from_json` without checks, for a value that it has accepted before."""
    cls = _TYPES[value["type"]]
    arguments = {
        name: tuple(item) if isinstance(item := value[name], list) else item for name in _FIELDS[cls] if name in value
    }
    if "num_drafted" in value:
        arguments["num_unknown"] = value["num_drafted"]
    return LaneEvent(value["lane"], value["clock_s"], cls(**arguments), value.get("wall_s"))


def _check(event: Event) -> None:
    if isinstance(event, Finished) and event.reason not in FINISH_REASONS:
        raise UsageError(f"unknown finish reason {event.reason[:40]!r}; choose one of: {', '.join(FINISH_REASONS)}")
    if isinstance(event, Step):
        n = event.num_accepted
        if event.parents and not is_tree(event.parents, event.drafted):
            raise UsageError(f"step {event.index} has parents that are no tree of its {len(event.drafted)} tokens")
        if event.drafted and event.num_unknown:
            raise UsageError(
                f"step {event.index} names {len(event.drafted)} drafted tokens and has num_drafted "
                f"{event.num_unknown}, which is for those that are not known"
            )
        together = event.width is None and not event.num_drafted
        fits_n = together or n <= len(event.token_ids) <= n + 1
        if n > event.num_drafted or not fits_n or not _keeps(event):
            raise UsageError(
                f"step {event.index} contradicts itself: {n} accepted of {event.num_drafted} drafted, "
                f"{len(event.token_ids)} committed"
            )
        if event.copied and event.parents:
            raise UsageError(f"step {event.index} drafted a tree, which has sources and not copied")
        if event.copied and event.copied[0] >= len(event.drafted):
            raise UsageError(
                f"step {event.index} copied from place {event.copied[0]} of its draft on, which has "
                f"{len(event.drafted)} tokens"
            )
        for name, items, want in (
            ("pieces", event.pieces, event.token_ids),
            ("drafted_pieces", event.drafted_pieces, event.drafted),
            ("checksums", event.checksums, event.token_ids),
            ("sources", event.sources, event.parents),
            ("chances", event.chances, event.drafted),
        ):
            if items and len(items) != len(want):
                raise UsageError(f"step {event.index} has {len(items)} {name} for {len(want)} tokens")


def _keeps(step: Step) -> bool:
    """Whether the accepted tokens are drafted ones, and in a tree the target's own is none that it could have kept."""
    if step.num_unknown:
        return True
    kept, n = step.kept, step.num_accepted
    if tuple(step.drafted[i] for i in kept) != step.token_ids[:n]:
        return False
    last = kept[-1] + 1 if kept else 0
    return not step.parents or all(
        row_after(step.parents, step.drafted, last, own) is None for own in step.token_ids[n:]
    )


def steps(events: Iterable[LaneEvent], lane: str) -> list[Step]:
    """The steps of one lane, in order."""
    return [e.event for e in events if e.lane == lane and isinstance(e.event, Step)]


def token_ids(events: Iterable[LaneEvent], lane: str) -> list[int]:
    """All tokens that a lane committed."""
    return [token for step in steps(events, lane) for token in step.token_ids]


def text_of(events: Iterable[LaneEvent], lane: str, stop: tuple[str, ...] = ()) -> str:
    """The text that a lane wrote, without the end token and without the stop string that ended it."""
    return visible_text("".join(piece for step in steps(events, lane) for piece in step.pieces), stop)


def visible_text(text: str, stop: tuple[str, ...]) -> str:
    """The text before the first stop string, or all of it."""
    return text[: min((place for s in stop if (place := text.find(s)) >= 0), default=len(text))]
