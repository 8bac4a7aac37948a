"""A race as one JSON file: all that is needed to judge, replay and repeat it. Standard library only.

    {"schema": 2, "format": "photofinish-race", **header, "events": [...], "verdicts": {lane: {...}}, "cautions": [...]}

`header` and `result` are those of a backend's race. `read` trusts nothing, as files may be hostile: see `check.py`.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ..analysis.metrics import lane_metrics, race_speedups
from ..analysis.verdict_words import VERDICTS
from ..cache import write_atomically
from ..core.errors import RaceError, UsageError
from ..core.events import Failed, LaneEvent, text_of, token_ids
from ..core.spec import PLAIN, SERVER, SPECULATIVE, RaceSpec
from ..strict_json import check_quick, gunzipped, parse
from ..text import read_bytes
from .check import FORMAT, SCHEMA, check, read_spec
from .claims import judged
from .event_json import of_checked, to_json
from .extras import EXTRAS

# Limit for a file: a stranger could make a larger one just to keep the reader busy. A race of 1,000 tokens with five
# lanes, audit and tables has 1.9 MB.
MAX_BYTES = 16 * 1024**2
OUTPUT_SCHEMA = 1  # Version of the output of --json. Fields may be added to it, never removed.
VERDICT_KEYS = ("kind", "rows_compared", "rows_different", "first_difference", "complete")
NOT_IN_SUMMARY = ("acceptance_by_position", "conditional_acceptance_by_position")


@dataclass(frozen=True, eq=False)
class Recording(Mapping[str, Any]):
    """A finished race: a mapping of its file's JSON members, with the spec and the events (in order) as values. Made by
    `checked` or `build`."""

    fields: dict[str, Any]
    spec: RaceSpec
    events: tuple[LaneEvent, ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Recording:
        """From a checked JSON object."""
        return cls(dict(fields), read_spec(fields["spec"]), tuple(map(of_checked, fields["events"])))

    def adding(self, extras: Mapping[str, Any]) -> Recording:
        """A copy with these members added; see `extras.EXTRAS`."""
        return replace(self, fields={**self.fields, **json.loads(json.dumps(extras, allow_nan=False))})

    def showing(self, lane: str) -> Recording:
        """A copy with this lane before all others of its role, so that a page shows it."""
        lanes = sorted(self.spec.lanes, key=lambda spec: spec.name != lane)
        return replace(self, spec=replace(self.spec, lanes=tuple(lanes)))

    @cached_property
    def text(self) -> str:
        """The JSON text of the file."""
        return json.dumps(self.fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def on_servers(self) -> bool:
        """Whether its lanes ran on servers: their times are those of their text's arrival."""
        return self["device"]["type"] == SERVER


def build(header: Mapping[str, Any], events: Iterable[LaneEvent], result: Mapping[str, Any]) -> Recording:
    """The recording of a finished race, exactly as it will be read back (JSON has no tuples)."""
    fields = {"schema": SCHEMA, "format": FORMAT, **header, "events": [to_json(event) for event in events], **result}
    recording = Recording.of(json.loads(json.dumps(fields, allow_nan=False)))
    return replace(recording, fields={**recording.fields, **judged(recording.fields, recording.spec, recording.events)})


def checked(data: bytes) -> Recording:
    """A checked recording from the bytes of its file. Raises UsageError if they are broken or hostile."""
    fields = parse(unpacked(data), MAX_BYTES)
    spec, events = check(fields)
    return Recording({**fields, **judged(fields, spec, events)}, spec, events)


def unpacked(data: bytes) -> bytes:
    """The JSON in a recording's file, which may also be an exported page in any encoding, or packed with gzip. Raises
    UsageError."""
    data = gunzipped(data, MAX_BYTES)
    if not data.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n").startswith(b"<"):
        return data
    _, mark, rest = data.replace(b"\0", b"").partition(b'id="recording">')  # without the zeros of UTF-16
    if not mark:
        raise UsageError("it is a web page without a recorded race")
    try:
        return gunzipped(b64decode(rest.partition(b"<")[0]), MAX_BYTES)
    except ValueError as error:
        raise UsageError("it is a web page whose recorded race is damaged") from error


def read(path: str | os.PathLike[str]) -> Recording:
    """A checked recording from a file; "-" is stdin. Raises UsageError if it cannot be read or is no recording."""
    source = f"the recording {os.fspath(path)!r}"
    data = read_bytes(os.fspath(path), MAX_BYTES, source)
    try:
        return checked(data)
    except UsageError as error:
        raise UsageError(f"{source} cannot be used: {error}") from error


def write(path: str | os.PathLike[str], recording: Recording) -> tuple[str, ...]:
    """Write a recording atomically: an old file stays until the new one is complete. Returns the members that were left
    out, because with them the file could not be read again. Raises RaceError on failure."""
    for left_out in ((), ("candidates",), tuple(EXTRAS)):
        fields = {name: value for name, value in recording.fields.items() if name not in left_out}
        data = replace(recording, fields=fields).text.encode("utf-8")
        try:
            check_quick(data, MAX_BYTES)
        except UsageError as error:
            why = error
        else:
            write_bytes(path, data)
            return tuple(name for name in left_out if name in recording)
    raise RaceError(f"the recording could not be read again, so it was not saved: {why}")


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file atomically, as `write` does. Raises RaceError on failure."""
    try:
        if (place := Path(path)).exists() and not place.is_file():  # a device, or a pipe as /dev/stdout
            place.write_bytes(data)
        else:
            write_atomically(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise RaceError(f"cannot write {os.fspath(path)!r}: {_reason(error)}") from error


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check before a race that `write` and `write_bytes` can write here; leaves nothing behind. Raises UsageError."""
    try:
        place = Path(path)
        if place.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        if place.exists() and not os.access(place, os.W_OK):
            raise PermissionError(None, "the file there may not be changed")
        if not place.exists() or place.is_file():
            TemporaryFile(dir=Path(os.path.realpath(path)).parent).close()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot save to {os.fspath(path)!r}: {_reason(error)}") from error


def summary(recording: Recording) -> dict[str, Any]:
    """The output of `race --json`: the circumstances, each lane's tokens, text and numbers, and each speculative lane's
    verdict and speed-up over the fastest plain decoding.

    verdict, speedup: those of the only speculative lane; None if there are several.
    oracles: those of lanes whose race has tables.
    cautions: what belongs next to a speed-up: see `claims.py`.
    promises: what servers stated about themselves."""
    events, spec, widths = recording.events, recording.spec, recording["widths"]
    speedups = race_speedups(events, spec.lanes)
    verdicts = {lane: _verdict(recording, lane) for lane in speedups}
    only = next(iter(speedups)) if len(speedups) == 1 else ""
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
        "lanes": {lane.name: _lane(recording, lane.name) for lane in spec.lanes},
        "speedup": speedups.get(only),
        "verdicts": verdicts,
        "speedups": speedups,
        "oracles": recording.get("oracles", {}),
        "cautions": recording["cautions"],
        **({"promises": recording["promises"]} if "promises" in recording else {}),
    }


def faults(recording: Recording) -> list[str]:
    """The verdict sentences of speculative lanes that wrote wrong tokens, or of which nothing was compared."""
    lanes, verdicts = recording.spec.named(SPECULATIVE), recording["verdicts"].items()
    return [verdict["sentence"] for lane, verdict in verdicts if lane in lanes and VERDICTS[verdict["kind"]].no_result]


def failures(recording: Recording) -> dict[str, str]:
    """The error messages of the lanes that failed, by lane."""
    return {e.lane: e.event.message for e in recording.events if isinstance(e.event, Failed)}


def _lane(recording: Recording, name: str) -> dict[str, Any]:
    events, numbers = recording.events, asdict(lane_metrics(recording.events, name))
    lane = {
        "token_ids": token_ids(events, name),
        "text": text_of(events, name, recording.spec.params.stop),
        **{key: value for key, value in numbers.items() if key not in NOT_IN_SUMMARY},
    }
    failed = failures(recording)
    return {**lane, "error": failed[name]} if name in failed else lane


def _verdict(recording: Recording, lane: str) -> dict[str, Any] | None:
    verdict = recording["verdicts"].get(lane)
    return None if verdict is None else {key: verdict[key] for key in VERDICT_KEYS}


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
