"""Adds to the recorded races that ship what memory their drafters take: python tools/drafter_bytes.py

Each is raced again with the weights that are here. Only where the model's digest, the kernels, every lane's tokens and
every table of drafts are those of the recording is its drafter the one that was raced; then `drafter_bytes` is written
into the file, and nothing else of it changes. Else it says what differs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
RACES = ROOT / "assets" / "races"


def main() -> None:
    from engine.models.loading import load
    from engine.recordings.recording import read, write

    loaded = load()
    for path in sorted(RACES.glob("*.json")):
        recording = read(path)
        raced = _raced_again(loaded, recording)
        old, new = _fingerprint(recording), _fingerprint(raced)
        if other := [name for name in old if old[name] != new[name]]:
            print(f"{path.name}: left as it is; another {', another '.join(other)}", flush=True)
            continue
        beside = ("drafter_bytes", raced["drafter_bytes"])
        items = [item for item in recording.items() if item[0] != beside[0]]
        place = list(dict(items)).index("synthetic")
        write(path, dict([*items[:place], beside, *items[place:]]))
        print(f"{path.name}: {beside[1]}", flush=True)


def _raced_again(loaded: Any, recording: dict[str, Any]) -> dict[str, Any]:
    from engine.events import Prompt
    from engine.recordings.recording import build, spec_of
    from engine.session import TorchRace
    from engine.what_if.ask import members

    given = recording["prompt"]
    prompt = Prompt(**{**given, "token_ids": tuple(given["token_ids"])})
    race = TorchRace(loaded, spec_of(recording), prompt)
    events = list(race.events())
    return build(race.header(), events, {**race.result(), **members(race)})


def _fingerprint(recording: dict[str, Any]) -> dict[str, Any]:
    from engine.recordings.recording import events_of, spec_of, token_ids

    events = events_of(recording)
    return {
        "model": recording["model"]["digest"],
        "set of kernels": recording["versions"]["kernels"],
        "text": {lane.name: token_ids(events, lane.name) for lane in spec_of(recording).lanes},
        "table of drafts": recording["tables"],
    }


if __name__ == "__main__":
    main()
