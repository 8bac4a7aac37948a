"""Runs a race for a command: from a model's name to a recording. Heavy modules are imported on use."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

from ..core.events import Prompt
from ..core.spec import RaceSpec
from ..progress import Progress, collected
from ..recordings.recording import Recording, build
from .output import progress_line

if TYPE_CHECKING:
    from ..loading.loading import LoadedModel
    from ..session import TorchRace


# 27 GiB: see docs/architecture.md, "What it needs".
TOY = (
    "the bundled model is a toy for a GPU. With 27 GiB free, for example: --target Qwen/Qwen3-8B --drafter "
    "eagle3:RedHatAI/Qwen3-8B-speculator.eagle3 --k 5 --chat --no-thinking; python app.py lists what fits"
)


def run(make: Callable[[Progress], Any], tables: bool = False) -> Recording:
    """Run the race that `make` returns: a TorchRace, or anything with its `header`, `events` and `result`; returns its
    recording. Libraries' output goes to stderr meanwhile.

    tables: add tables of drafts when the race is over; an interrupt then ends only that part.

    Raises UsageError or RaceError."""
    with redirect_stdout(sys.stderr), progress_line() as progress:
        race = make(progress)
        header = race.header()  # what runs now: a kernel that fails in the race changes that for the next one
        events = collected(race.events(), progress)
        result = race.result()
        if tables:
            from ..what_if.ask import members

            with suppress(KeyboardInterrupt):
                result |= members(race, progress)
        return build(header, events, result)


def set_up(options: Namespace, spec: RaceSpec, prompt_of: Callable[[Any], Prompt], progress: Progress) -> TorchRace:
    """A race that is ready to run. options: see `load_ready`. prompt_of: from the tokenizer to the prompt."""
    loaded = load_ready(options, progress)
    from ..session import TorchRace

    race = TorchRace(loaded, spec, prompt_of(loaded.tokenizer), progress)
    toy = [TOY] if options.target is None and loaded.info.device.startswith("cuda") else []
    for note in (*toy, *race.order.notes, *race.order.limits):
        print(f"Note: {note}.", file=sys.stderr)
    return race


def load_ready(
    options: Namespace, progress: Progress, make_ready: Callable[[LoadedModel, Progress], Any] | None = None
) -> LoadedModel:
    """A model ready for races, by the options --target, --dtype and --device; with as many threads as pay unless
    --threads says how many. make_ready: instead of the model's own."""
    progress("starting torch", None)
    from ..loading.loading import DEFAULT_TARGET, load

    target = options.target or DEFAULT_TARGET
    loaded = load(target, dtype=options.dtype, device=options.device, progress=progress)
    (make_ready or type(loaded).make_ready)(loaded, progress)
    if options.threads is None:
        from ..session.threads import settle

        settle(loaded.prepared, progress)
    return loaded
