"""A race on this machine: a loaded model, a prompt and a RaceSpec become one stream of lane events, a header and a
verdict.

    set_up.py       the named steps from a loaded model to lanes that are ready to run
    torch_race.py   the race itself
    threads.py      how many threads a step uses here

May import: every room below; `bench`, `training` and the command line import it."""

from .torch_race import TorchRace

__all__ = ["TorchRace"]
