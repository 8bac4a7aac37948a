"""The model behind the page: loaded once in the background, shared by all races, its progress there for everyone to
read."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from engine.errors import PhotofinishError, RaceError
from engine.progress import Progress

POLL_S = 0.05
FAULT = "loading the model failed for a reason that is a fault of this program; its log has the details"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelStatus:
    """Where a model is: a sentence on what happens, how much of it is done (None: nobody knows), and whether it is
    over."""

    target: str
    state: Literal["loading", "ready", "failed"]
    text: str
    share: float | None = None


class Loader:
    """Holds one model at a time. `load(target, progress)` does the work; it runs in a thread of its own."""

    def __init__(self, load: Callable[[str, Progress], Any]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._status: ModelStatus | None = None
        self._loaded: Any = None
        self._error: PhotofinishError | None = None

    @property
    def status(self) -> ModelStatus | None:
        """None before anything was asked for."""
        return self._status

    def start(self, target: str) -> None:
        """Begin to load a target, unless a model is being loaded or this one is there. The model before it is let go
        first."""
        with self._lock:
            if self._status and (
                self._status.state == "loading" or (self._status.target, self._status.state) == (target, "ready")
            ):
                return
            self._loaded = self._error = None
            self._status = ModelStatus(target, "loading", f"preparing {target}")
            threading.Thread(target=self._run, args=(target,), name="load", daemon=True).start()

    def get(self, target: str, progress: Progress) -> Any:
        """The loaded target, waited for. `progress` is told what happens meanwhile, and may raise to give up waiting.
        Raises what loading raised."""
        while True:
            self.start(target)
            while (status := self._status) and status.state == "loading":
                progress(status.text, status.share)
                time.sleep(POLL_S)
            with self._lock:
                if self._status and self._status.target == target:
                    if self._error:
                        raise self._error
                    if self._loaded is not None:
                        return self._loaded

    def _run(self, target: str) -> None:
        def progress(text: str, share: float | None) -> None:
            self._status = ModelStatus(target, "loading", text, share)

        try:
            loaded = self._load(target, progress)
        except PhotofinishError as error:
            self._finish(ModelStatus(target, "failed", str(error)), error=error)
        except Exception:
            log.exception("loading %s failed", target)
            self._finish(ModelStatus(target, "failed", FAULT), error=RaceError(FAULT))
        else:
            self._finish(ModelStatus(target, "ready", f"{target} is ready"), loaded)

    def _finish(self, status: ModelStatus, loaded: Any = None, error: PhotofinishError | None = None) -> None:
        with self._lock:
            self._loaded, self._error, self._status = loaded, error, status
