"""The one JSON form of events. `to_json` and `from_json` are inverse; `from_json` trusts nothing, because a recording
may come from a stranger. Standard library only."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..core.errors import UsageError, choices, short
from ..core.events import FINISH_REASONS, Event, Failed, Finished, LaneEvent, Started, Step
from ..core.spec import MAX_K, MAX_NEW_TOKENS, is_tree, row_after
from ..core.values import Shape, integer, items, number
from ..strict_json import CHANCE, TEXT, AtMost, IfThere, Maybe, fits

MAX_SECONDS = 1e7

_TYPES: dict[str, type] = {"started": Started, "step": Step, "finished": Finished, "failed": Failed}
_NAMES = {cls: name for name, cls in _TYPES.items()}
_FIELDS = {cls: [field.name for field in fields(cls)] for cls in _NAMES}
_IF_ANY = ("copied", "parents", "sources", "chances")  # fields of steps that are left out where they are empty
SECONDS = number(0, MAX_SECONDS, f"a time from 0 to {MAX_SECONDS:.0f} seconds")
_KINDS: dict[Any, Any] = {int: integer(0, 2**64 - 1, wanted="a non-negative integer"), float: SECONDS, str: TEXT}
_KINDS |= {tuple[int, ...]: AtMost(MAX_NEW_TOKENS, _KINDS[int]), tuple[str, ...]: AtMost(MAX_NEW_TOKENS, TEXT)}
_KINDS[int | None] = Maybe(_KINDS[int])
_SHAPES: dict[type, dict[str, Any]] = {
    cls: {
        "lane": TEXT,
        "clock_s": SECONDS,
        **{f.name: _KINDS[f.type] for f in fields(cls) if f.name not in (*_IF_ANY, "num_unknown")},
        "wall_s": IfThere(SECONDS),
    }
    for cls in _TYPES.values()
}  # the JSON shape of each event's fields
_DRAFTED = AtMost(MAX_K, _KINDS[int])
_SHAPES[Step] |= {
    "drafted": _DRAFTED,
    "drafted_pieces": AtMost(MAX_K, TEXT),
    "num_drafted": IfThere(Shape("a positive integer", lambda value: type(value) is int and value > 0)),
    "copied": IfThere(items("two non-negative integers", _KINDS[int], [2])),
    "parents": IfThere(_DRAFTED),
    "sources": IfThere(AtMost(MAX_K, Shape("an integer from -1 on", lambda value: type(value) is int and value >= -1))),
    "chances": IfThere(AtMost(MAX_K, CHANCE)),
}
_ALLOWED = {cls: {"type", *shape} for cls, shape in _SHAPES.items()}


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


def from_json(value: Mapping[str, Any]) -> LaneEvent:
    """The inverse of `to_json`, for a JSON object. Raises UsageError for any that `to_json` cannot have written."""
    name = value.get("type")
    cls = _TYPES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise choices("event type", name, _TYPES)
    fits(value, _SHAPES[cls], f"a {name} event")
    if extra := value.keys() - _ALLOWED[cls]:
        raise UsageError(f"a {name} event has no field {short(min(extra))}")
    lane_event = of_checked(value)
    _check(lane_event.event)
    return lane_event


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
