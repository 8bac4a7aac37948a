"""The page's log, on standard error. The words of other packages, and of errors that nobody foresaw, may quote a
visitor."""

from __future__ import annotations

import logging

from engine.core.errors import NO_MEMORY, PhotofinishError, is_out_of_memory

BUG = "{} failed because of a bug in Photofinish; see its log"
log = logging.getLogger(__name__)


def set_up() -> None:
    """Write the log of this process to standard error. Call it once, before anything is logged."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)


def words_of(error: BaseException, what: str) -> str:
    """What a visitor reads about an error that ended some work, without a stop at its end. Anything but this project's
    own errors is logged. what: failed."""
    if isinstance(error, PhotofinishError):
        return str(error)
    log.error("%s failed", what, exc_info=error)
    return NO_MEMORY if is_out_of_memory(error) else BUG.format(what)
