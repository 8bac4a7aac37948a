"""Runs a race for a command: from a model's name to a recording. Heavy modules are imported on use."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.events import Prompt
from ..core.spec import RaceSpec
from ..progress import Progress, collected
from ..recordings.recording import Recording, build
from ..text import encode_prompt
from .output import progress_line

if TYPE_CHECKING:
    from ..loading.loading import LoadedModel
    from ..session import TorchRace


# 27 GiB: see docs/architecture.md, "What it needs".
TOY = (
    "the bundled model is a toy for a GPU. With 27 GiB free, for example: --target Qwen/Qwen3-8B --drafter "
    "eagle3:RedHatAI/Qwen3-8B-speculator.eagle3 --k 5 --chat; python app.py lists what fits"
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


def set_up(
    target: str | None,
    dtype: str,
    device: str,
    spec: RaceSpec,
    prompt_of: Callable[[Any], Prompt],
    progress: Progress,
    settle_threads: bool = False,
) -> TorchRace:
    """A race that is ready to run. prompt_of: from the tokenizer to the prompt."""
    loaded = load_ready(target, dtype, device, progress, settle_threads)
    from ..session import TorchRace

    race = TorchRace(loaded, spec, prompt_of(loaded.tokenizer), progress)
    toy = [TOY] if target is None and loaded.info.device.startswith("cuda") else []
    for note in (*toy, *race.order.notes, *race.order.limits):
        print(f"Note: {note}.", file=sys.stderr)
    return race


def set_up_as(options: Namespace, spec: RaceSpec, text: str, progress: Progress) -> TorchRace:
    """`set_up` of a text, with the options --target, --dtype, --device, --chat and --threads."""
    model = (options.target, options.dtype, options.device)
    prompt_of = partial(encode_prompt, text=text, chat=options.chat)
    return set_up(*model, spec, prompt_of, progress, settle_threads=options.threads is None)


def load_ready(
    target: str | None,
    dtype: str,
    device: str,
    progress: Progress,
    settle_threads: bool,
    make_ready: Callable[[LoadedModel, Progress], Any] | None = None,
) -> LoadedModel:
    """A model ready for races. target: None for the default one. make_ready: instead of the model's own."""
    progress("starting torch", None)
    from ..loading.loading import DEFAULT_TARGET, load

    loaded = load(target or DEFAULT_TARGET, dtype=dtype, device=device, progress=progress)
    (make_ready or type(loaded).make_ready)(loaded, progress)
    if settle_threads:
        from ..session.threads import settle

        settle(loaded.prepared, progress)
    return loaded
