"""Recordings: those that ship with the page, which are shown at once and need neither a model nor torch; and those that
it keeps for a while, so that a browser can name one instead of sending it back: for figures, for files to download, to
race it again."""

import gzip
import json
import threading
from collections.abc import Mapping

from engine.core.errors import UsageError
from engine.recordings.extras import EXTRAS
from engine.recordings.recording import Recording, read

from ..catalogue.catalogue import ASSETS
from .frames import RECORDED, RaceView

RACES = ASSETS / "races"
MAX_BYTES = 64_000_000  # for all of them, compressed. The longest race of this page takes about 1 million.


def recorded_view(preset_id: str, name: str = "") -> RaceView:
    """The recorded race of that preset as an ended view, with its ribbon.

    name: the title of its prompt."""
    recording = read(RACES / f"{preset_id.replace('-', '_')}.json")
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


class Shelf:
    """The recordings of races and opened files, by key; the oldest go first. Thread-safe.

    fixed: recordings that stay."""

    def __init__(self, fixed: Mapping[str, Recording]) -> None:
        self._fixed = dict(fixed)
        self._lock = threading.Lock()
        self._packed: dict[str, bytes] = {}

    def put(self, key: str, recording: Recording) -> None:
        """Keep a recording, in place of an earlier one with this key."""
        packed = gzip.compress(recording.text.encode("utf-8", "surrogatepass"), 1)
        with self._lock:
            self._packed.pop(key, None)
            self._packed[key] = packed
            while sum(map(len, self._packed.values())) > MAX_BYTES:
                del self._packed[next(iter(self._packed))]

    def get(self, key: str) -> Recording:
        """The recording with this key. Raises UsageError if it is gone."""
        if key in self._fixed:
            return self._fixed[key]
        with self._lock:
            packed = self._packed.get(key)
        if packed is None:
            raise UsageError("this race is no longer on the server; open it from its file, or race again")
        return Recording.of(json.loads(gzip.decompress(packed)))
