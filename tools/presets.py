"""Which drafter is best on each of the page's presets, and the recorded races that ship: python tools/presets.py
[--repeats 3] [--out FILE] | --record [ID ...]

The first races every preset's prompt, at its temperature and length, with one lane for each DRAFTER@K beside plain and
baseline, interleaved in one process, another seed each repeat, and prints the median speed-up against the fastest plain
decoding. --record races each preset (or those named) with its own drafter, k and seed, audited, as the page does, and
writes assets/races/ID.json with tables of drafts at every position.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PRESETS = ROOT / "assets" / "presets.json"
RACES = ROOT / "assets" / "races"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--lanes", nargs="+", default=["ngram@7", "ngram@auto", "eagle3@auto", "hybrid:ngram+eagle3@auto"]
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--only", nargs="+", metavar="ID", default=[])
    parser.add_argument("--record", nargs="*", metavar="ID")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from engine.models.loading import load

    loaded = load()
    presets = [preset for preset in json.loads(PRESETS.read_text()) if not options.only or preset["id"] in options.only]
    if options.record is not None:
        for preset in presets:
            if not options.record or preset["id"] in options.record:
                _record(loaded, preset)
        return
    table = [_compared(loaded, preset, options) for preset in presets]
    if options.out:
        from engine.measure import environment

        about = {
            "versions": environment.versions(loaded.prepared.kernels.describe()),
            "device": loaded.prepared.kernels.about_device(),
            "commit": environment.commit(),
        }
        options.out.write_text(
            json.dumps(
                {**about, "repeats": options.repeats, "max_new_tokens": options.max_new_tokens, "presets": table},
                indent=1,
            )
            + "\n"
        )


def _compared(loaded: Any, preset: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    from engine.events import Finished, Step
    from engine.session import TorchRace
    from engine.spec import LaneSpec, RaceSpec, SamplingParams
    from engine.text import encode_prompt

    lanes = [LaneSpec("plain", width="fastest"), LaneSpec("baseline")]
    for text in options.lanes:
        drafter, _, k = text.rpartition("@")
        lanes.append(LaneSpec(text, drafter=drafter, k=k if k == "auto" else int(k)))
    gains: dict[str, list[float]] = defaultdict(list)
    for repeat in range(options.repeats):
        params = SamplingParams(
            temperature=preset["temperature"],
            seed=preset["seed"] + repeat,
            max_new_tokens=min(options.max_new_tokens, preset["max_new_tokens"]),
        )
        race = TorchRace(
            loaded, RaceSpec(tuple(lanes), params), encode_prompt(loaded.tokenizer, preset["prompt"], False)
        )
        seconds: dict[str, float] = {}
        written: dict[str, list[int]] = defaultdict(list)
        for event in race.events():
            if isinstance(event.event, Step):
                written[event.lane] += event.event.token_ids
            elif isinstance(event.event, Finished):
                seconds[event.lane] = event.event.decode_s / event.event.num_tokens
        for name in seconds:
            if name != "plain":
                assert written[name] == written["baseline"], f"{name} wrote other tokens"
                gains[name].append(min(seconds["plain"], seconds["baseline"]) / seconds[name])
    row = {
        "id": preset["id"],
        "speedups": {name: statistics.median(values) for name, values in gains.items()},
        "races": dict(gains),
    }
    print(
        f"{preset['id']:14}" + "  ".join(f"{name} {value:.2f}x" for name, value in row["speedups"].items()), flush=True
    )
    return row


def _record(loaded: Any, preset: dict[str, Any]) -> None:
    from engine.recordings.recording import build, check, summary, write
    from engine.session import TorchRace
    from engine.spec import RaceSpec, SamplingParams, standard_lanes
    from engine.text import encode_prompt
    from engine.what_if.ask import members

    params = SamplingParams(
        temperature=preset["temperature"], seed=preset["seed"], max_new_tokens=preset["max_new_tokens"]
    )
    race = TorchRace(
        loaded,
        RaceSpec(standard_lanes(preset["drafter"], preset["k"]), params, audit=True),
        encode_prompt(loaded.tokenizer, preset["prompt"], False),
    )
    events = list(race.events())
    recording = check(build(race.header(), events, {**race.result(), **members(race)}))
    write(RACES / f"{preset['id'].replace('-', '_')}.json", recording)
    told = summary(recording)
    print(
        preset["id"],
        recording["verdicts"]["speculative"]["kind"],
        {key: told.get(key) for key in ("speedup",)},
        flush=True,
    )


if __name__ == "__main__":
    main()
