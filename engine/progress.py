"""Progress of slow parts, and silence of the libraries they call. Standard library only."""

import logging
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

# progress(text, share): what is going on, and the share done, from 0 to 1, or None if unknown.
Progress = Callable[[str, float | None], None]
LIBRARIES = ("transformers", "huggingface_hub", "accelerate", "torch", "gguf")
RACING = "racing"
Item = TypeVar("Item")
_turn = threading.RLock()


def silent(stage: str, share: float | None) -> None:
    """Report nothing."""


@contextmanager
def quiet(only_hub: bool = False) -> Iterator[None]:
    """Silence transformers and the like on stdout and stderr: no warnings, log lines or progress bars. All settings are
    restored afterwards. They belong to the process, so threads take turns.

    only_hub: nothing but the hub's client is used, and transformers, whose import takes seconds, is left alone."""
    if only_hub:
        from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

        bars, hide, show = not are_progress_bars_disabled(), disable_progress_bars, enable_progress_bars
    else:
        from transformers.utils import logging as of_transformers

        bars, hide = of_transformers.is_progress_bar_enabled(), of_transformers.disable_progress_bar
        show = of_transformers.enable_progress_bar
    with _turn, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loggers = [logging.getLogger(name) for name in LIBRARIES]
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        hide()
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if bars:
                show()


def collected(stream: Iterator[Item], progress: Progress) -> list[Item]:
    """All events of a race. `progress` is called after each and may raise to give up: the race is closed then."""
    items = []
    with closing(stream):  # type: ignore[type-var]
        for item in stream:
            items.append(item)
            progress(RACING, None)
    return items
