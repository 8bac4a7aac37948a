"""Race the examples of the page again, for assets/races: every preset as the page races it, audited, with tables.

    python -m tools.record_examples

Needs a quiet machine and a commit without changes. A race that failed, differed or was disturbed is repeated, ATTEMPTS
times at most. Files are written once all races are over, so all name one commit; if one never came out well, none is.
docs/stage.md, README and the pictures quote them.
"""

import sys
from pathlib import Path

from app.catalogue.catalogue import load, load_presets
from app.catalogue.machine import Machine
from app.catalogue.request import RaceRequest, read_request
from app.jobs.recorded import RACES
from app.page.controls import preset_values
from engine.cli.run import load_ready, run
from engine.recordings.recording import Recording, failures, write
from engine.session import TorchRace
from engine.text import encode_prompt

ATTEMPTS = 5


def why_not(race: Recording) -> str:
    """Why this race cannot be an example; "" if it can."""
    others = [verdict["sentence"] for verdict in race["verdicts"].values() if verdict["kind"] != "identical_bits"]
    cautions = [caution["sentence"] for caution in race["cautions"] if caution["lane"] is None]
    return "; ".join([*failures(race).values(), *others, *cautions])


def main() -> int:
    catalogue, races = load(Machine()), dict[Path, Recording]()
    model = load_ready(None, "auto", "auto", lambda text, share: print(text, file=sys.stderr), settle_threads=True)

    def raced(asked: RaceRequest) -> Recording:
        prompt = encode_prompt(model.tokenizer, asked.prompt, asked.chat)
        return run(lambda progress: TorchRace(model, asked.spec, prompt, progress), tables=True)

    for preset in load_presets():
        values = preset_values(catalogue, preset, catalogue.default)
        asked = read_request(catalogue, values | {"pair": catalogue.default.id, "width": "auto", "audit": True})
        for _ in range(ATTEMPTS):
            if not (why := why_not(race := raced(asked))):
                break
            print(f"{preset.id}: {why}", file=sys.stderr)
        else:
            return 1
        races[RACES / f"{preset.id.replace('-', '_')}.json"] = race
    for path, race in races.items():
        write(path, race)
    return 0


if __name__ == "__main__":
    sys.exit(main())
