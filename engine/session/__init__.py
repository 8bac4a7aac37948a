"""A race on this machine: from a loaded model, a prompt and a RaceSpec to lane events, a header and a verdict.

`torch_race.py` runs the race and judges it; `set_up.py` does everything before the first timed step; `lanes.py` builds,
warms and decodes a lane; `likely_tokens.py` keeps the most probable tokens at every row; `faults.py` tells kinds of
device failures apart; `threads.py` decides how many CPU threads a step uses."""

from .torch_race import TorchRace

__all__ = ["TorchRace"]
