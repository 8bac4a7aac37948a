"""A race as one JSON file: everything to judge it by, to replay it and to run it again. Standard library only.

    {"schema": 2, "format": "photofinish-race", **header, "events": [...], "verdicts": {lane: {...}}}

`header` and `result` are those of a backend's race. `read` trusts nothing: a recording may come from a stranger (see
`check.py`, which says what a good one is).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ..cache import write_atomically
from ..errors import RaceError, UsageError
from ..events import Failed, LaneEvent, from_json, steps, to_json
from ..metrics import lane_metrics, race_speedups
from ..spec import PLAIN, SERVER, SPECULATIVE, LaneSpec, RaceSpec
from ..strict_json import parse
from ..text import visible_text
from .check import FORMAT, SCHEMA, check, read_spec

MAX_BYTES = 64 * 1024 * 1024
OUTPUT_SCHEMA = 1
"""Of what --json prints: fields are added to it, none is taken away."""
VERDICT_KEYS = ("kind", "rows_compared", "rows_different", "first_difference")
NOT_IN_SUMMARY = ("acceptance_by_position", "conditional_acceptance_by_position")


def build(header: Mapping[str, Any], events: Iterable[LaneEvent], result: Mapping[str, Any]) -> dict[str, Any]:
    """The recording of a finished race, in the very form in which it is read back (JSON knows no tuples)."""
    recording = {"schema": SCHEMA, "format": FORMAT, **header, "events": [to_json(event) for event in events], **result}
    return json.loads(json.dumps(recording, allow_nan=False))


def loads(data: bytes, source: str = "the recording") -> dict[str, Any]:
    """A checked recording from the bytes of its file; `source` names it in errors. Raises UsageError for anything a
    broken or hostile file can hold."""
    try:
        return check(parse(data, MAX_BYTES))
    except UsageError as error:
        raise UsageError(f"{source} cannot be used: {error}") from error


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A checked recording from a file. Raises UsageError if it is missing, unreadable, too large, or no recording."""
    return loads(read_bytes(path), f"the recording {os.fspath(path)!r}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a recording's file for `loads`, which refuses one that is too large: no more than that is read.
    Raises UsageError if it is missing or unreadable."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the recording {os.fspath(path)!r}: {_reason(error)}") from error


def write(path: str | os.PathLike[str], recording: Mapping[str, Any]) -> None:
    """Write a recording whole or not at all: an old file at `path` stays until the new one is complete. Raises
    RaceError if it cannot be written."""
    data = json.dumps(recording, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    if len(data) > MAX_BYTES:
        raise RaceError(
            f"the recording has {len(data)} bytes; more than {MAX_BYTES} could not be read again, so it was not saved"
        )
    write_bytes(path, data)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file whole or not at all, as `write` does. Raises RaceError if it cannot be written."""
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            write_atomically(target, data)
    except OSError as error:
        raise RaceError(f"cannot write {os.fspath(path)!r}: {_reason(error)}") from error


def check_writable(path: str | os.PathLike[str]) -> None:
    """Find out before a race whether `write` or `write_bytes` will be able to write here. Leaves nothing
    behind. Raises UsageError."""
    try:
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError(None, "the file there may not be changed")
        if not target.exists() or target.is_file():
            TemporaryFile(dir=target.parent).close()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot save to {os.fspath(path)!r}: {_reason(error)}") from error


def spec_of(recording: Mapping[str, Any]) -> RaceSpec:
    """The spec that a checked recording was made from."""
    return read_spec(recording["spec"])


def is_elsewhere(recording: Mapping[str, Any], lane: LaneSpec) -> bool:
    """Whether a lane ran on a server and others did not: its seconds are by another clock, and as a rule of another
    device."""
    return lane.drafter == SERVER and recording["device"]["type"] != SERVER


def events_of(recording: Mapping[str, Any]) -> list[LaneEvent]:
    """The events of a checked recording, in the order in which they happened."""
    return [from_json(event) for event in recording["events"]]


def summary(recording: Mapping[str, Any]) -> dict[str, Any]:
    """What `race --json` prints: the circumstances, each lane's tokens, text and numbers, and of each speculative lane
    its verdict and its speed-up over the fastest plain decoding. `verdict` and `speedup` are those of the only one on
    this machine; None where there are several. `oracles`: of the lanes whose race has tables.
    `promises`: what servers said of themselves. `places`: where each lane ran, if not all in one place; the ratio of a
    lane on a server is then of two clocks."""
    events, spec, widths = events_of(recording), spec_of(recording), recording["widths"]
    speedups = race_speedups(events, spec.lanes)
    verdicts = {lane: _verdict(recording, lane) for lane in speedups}
    own = [lane.name for lane in spec.lanes if lane.name in speedups and not is_elsewhere(recording, lane)]
    only = own[0] if len(own) == 1 else ""
    return {
        "schema": OUTPUT_SCHEMA,
        "device": recording["device"]["type"],
        "dtype": recording["model"]["dtype"],
        "runs": recording.get("runs", {}).get("sentence"),
        "width": widths["width"],
        "widths_class": widths["widths_class"],
        "seed": spec.params.seed,
        "temperature": spec.params.temperature,
        "audit": spec.audit,
        "verdict": verdicts.get(only),
        "plain_verdict": next((_verdict(recording, plain) for plain in spec.named(PLAIN)), None),
        "lanes": {lane.name: _lane(events, lane.name, spec.params.stop) for lane in spec.lanes},
        "speedup": speedups.get(only),
        "verdicts": verdicts,
        "speedups": speedups,
        "oracles": recording.get("oracles", {}),
        **{name: recording[name] for name in ("promises", "places") if name in recording},
    }


def faults(recording: Mapping[str, Any]) -> list[str]:
    """What the verdicts say of speculative lanes that wrote what they must not."""
    lanes = spec_of(recording).named(SPECULATIVE)
    found = recording["verdicts"].items()
    return [verdict["sentence"] for lane, verdict in found if lane in lanes and verdict["kind"] == "different"]


def failures(recording: Mapping[str, Any]) -> dict[str, str]:
    """The messages of the lanes that failed, by lane."""
    return {e["lane"]: e["message"] for e in recording["events"] if e["type"] == "failed"}


def token_ids(events: Iterable[LaneEvent], lane: str) -> list[int]:
    """All tokens that a lane committed."""
    return [token for step in steps(events, lane) for token in step.token_ids]


def text(events: Iterable[LaneEvent], lane: str, stop: tuple[str, ...] = ()) -> str:
    """What a lane wrote, as a reader sees it: without the end token and without the stop string that ended it."""
    return visible_text("".join(piece for step in steps(events, lane) for piece in step.pieces), stop)


def _lane(events: list[LaneEvent], name: str, stop: tuple[str, ...]) -> dict[str, Any]:
    numbers = asdict(lane_metrics(events, name))
    lane = {
        "token_ids": token_ids(events, name),
        "text": text(events, name, stop),
        **{key: value for key, value in numbers.items() if key not in NOT_IN_SUMMARY},
    }
    failed = next((e.event for e in events if e.lane == name and isinstance(e.event, Failed)), None)
    return lane if failed is None else {**lane, "error": failed.message}


def _verdict(recording: Mapping[str, Any], lane: str) -> dict[str, Any] | None:
    verdict = recording["verdicts"].get(lane)
    return None if verdict is None else {key: verdict[key] for key in VERDICT_KEYS}


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
