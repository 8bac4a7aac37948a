"""The page's log, on standard error. The words of other packages, and of errors that nobody foresaw, may quote a
visitor."""

from __future__ import annotations

import logging

# For what an operator wants to see at level INFO; other loggers show warnings and errors only.
RUNNING = logging.getLogger("app.running")


def set_up() -> None:
    """Write the log of this process to standard error. Call it once, before anything is logged."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
    RUNNING.setLevel(logging.INFO)
