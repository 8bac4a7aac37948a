"""Recorded races that ship with the page. They are shown at once: they need neither a model nor torch."""

from __future__ import annotations

from pathlib import Path

from engine.recordings.extras import EXTRAS
from engine.recordings.recording import read

from ..catalogue.catalogue import ASSETS
from .frames import RECORDED, RaceView

RACES = ASSETS / "races"


def recorded_view(preset_id: str, name: str = "", folder: Path = RACES) -> RaceView | None:
    """The recorded race of that preset as an ended view, with its ribbon; None if none ships.

    name: the title of its prompt. Raises UsageError for a broken file."""
    path = folder / f"{preset_id.replace('-', '_')}.json"
    if not path.is_file():
        return None
    recording = read(path)
    left_out = ("schema", "format", "events", "verdicts", "cautions", *EXTRAS)
    return RaceView(
        race=f"{RECORDED.lower()}-{preset_id}",
        name=name,
        state="finished",
        text=f"Recorded on {recording['device']['name']}.",
        ribbon=RECORDED,
        header={key: value for key, value in recording.items() if key not in left_out},
        spec=recording.spec,
        events=recording.events,
        recording=recording,
        has_extras=True,
    )
