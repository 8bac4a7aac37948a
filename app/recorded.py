"""Recorded races that ship with the page: shown at once, before any model is there. They need no model and no torch."""

from __future__ import annotations

from pathlib import Path

from engine.recordings.recording import events_of, read

from .catalogue import ASSETS
from .view import RECORDED, RaceView

RACES = ASSETS / "races"
FIRST = "csv_to_json"
TEXT = "A recorded race, played at the speed at which it was run."


def recorded_view(name: str = FIRST, folder: Path = RACES) -> RaceView | None:
    """The race of that name as an ended view, with its ribbon; None where it does not ship. Raises UsageError for a
    broken file."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    recording = read(path)
    header = {key: value for key, value in recording.items() if key not in ("schema", "format", "events", "verdicts")}
    return RaceView(
        f"{RECORDED.lower()}-{name}", "finished", TEXT, None, RECORDED, header, tuple(events_of(recording)), recording
    )
