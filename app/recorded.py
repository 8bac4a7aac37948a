"""Recorded races that ship with the page: shown at once, before any model is there. They need no model and no torch."""

from __future__ import annotations

from pathlib import Path

from engine.recordings.beside import BESIDE
from engine.recordings.recording import events_of, read

from .catalogue import ASSETS
from .view import RECORDED, RaceView

RACES = ASSETS / "races"


def recorded_view(preset_id: str, name: str = "", folder: Path = RACES) -> RaceView | None:
    """The race of that preset as an ended view, with its ribbon; None where none ships. `name`: what its prompt is
    called. Raises UsageError for a broken file."""
    path = folder / f"{preset_id.replace('-', '_')}.json"
    if not path.is_file():
        return None
    recording = read(path)
    elsewhere = ("schema", "format", "events", "verdicts", *BESIDE)
    header = {key: value for key, value in recording.items() if key not in elsewhere}
    return RaceView(
        f"{RECORDED.lower()}-{preset_id}",
        name,
        "finished",
        f"Recorded on {recording['device']['name']}.",
        None,
        RECORDED,
        header,
        tuple(events_of(recording)),
        recording,
    )
