"""Loading without the chatter of the libraries that do it."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

LIBRARIES = ("transformers", "huggingface_hub", "accelerate", "torch", "gguf")
_turn = threading.RLock()


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing of transformers and its like on stdout or stderr inside: no warnings, log lines or progress bars. All
    switches are put back after.

    The switches belong to the process, so threads take turns."""
    from transformers.utils import logging as transformers_logging

    with _turn, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loggers = [logging.getLogger(name) for name in LIBRARIES]
        levels = [logger.level for logger in loggers]
        bars = transformers_logging.is_progress_bar_enabled()
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        transformers_logging.disable_progress_bar()
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if bars:
                transformers_logging.enable_progress_bar()
