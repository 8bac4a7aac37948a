"""The model behind the page: loaded once in the background and shared by all races."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from engine.core.errors import PhotofinishError, RaceError
from engine.progress import Progress

from .logs import words_of

POLL_S = 0.05
# A load hangs if it reports no progress for so long. A download reports what has come, so even a slow one does not.
QUIET_S = 1800.0


@dataclass(frozen=True)
class ModelStatus:
    """Loading status of a model: state, sentence, share done (None: unknown). note: why no GPU is used, once loaded.
    hangs: the load has failed because it hangs, so that no other model can be loaded either. fault: what has failed,
    in words that precede the sentence."""

    target: str
    state: Literal["loading", "ready", "failed"]
    text: str
    share: float | None = None
    note: str = ""
    hangs: bool = False
    fault: str = "could not be loaded"


class Loader:
    """Keeps one model at a time. `load(target, progress)` does the work in a thread of its own; `note()`, called
    there afterwards, returns the status line's note."""

    def __init__(
        self,
        load: Callable[[str, Progress], Any],
        note: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load, self._note, self._clock = load, note, clock
        self._lock = threading.Lock()
        self._status: ModelStatus | None = None
        self._heard_at = 0.0
        self._loaded: Any = None
        self._error: PhotofinishError | None = None

    @property
    def status(self) -> ModelStatus | None:
        """None before the first `start`. A load that hangs has failed, until it reports progress after all."""
        now = self._status
        if now is None or now.state != "loading" or self._clock() - self._heard_at <= QUIET_S:
            return now
        why = f"nothing has been heard of it for {QUIET_S / 60:.0f} minutes; it hangs, until the page is restarted"
        return ModelStatus(now.target, "failed", why, hangs=True)

    def start(self, target: str) -> None:
        """Start loading a target, unless a model is loading or this one is ready. Releases the previous model first."""
        with self._lock:
            now = self._status
            if now and (now.state == "loading" or (now.target, now.state) == (target, "ready")):
                return
            self._loaded = self._error = None
            self._heard(ModelStatus(target, "loading", f"preparing {target}"))
            threading.Thread(target=self._run, args=(target,), name="load", daemon=True).start()

    @property
    def loaded(self) -> Any:
        """The model that is ready; None if there is none."""
        with self._lock:
            return self._loaded

    def get(self, target: str, progress: Progress) -> Any:
        """Wait for the loaded target. `progress` may raise to give up waiting. Raises what loading raised."""
        while True:
            self.start(target)
            while (status := self.status) and status.state == "loading":
                progress(status.text, status.share)
                time.sleep(POLL_S)
            if status and status.hangs:
                raise RaceError(f"{status.target} could not be loaded: {status.text}")
            with self._lock:
                if self._status and self._status.target == target:
                    if self._error:
                        raise self._error
                    if self._loaded is not None:
                        return self._loaded

    def _run(self, target: str) -> None:
        def progress(text: str, share: float | None) -> None:
            self._heard(ModelStatus(target, "loading", text, share))

        try:
            try:
                loaded = self._load(target, progress)
            except PhotofinishError as error:
                self._finish(ModelStatus(target, "failed", str(error), note=self._note()), error=error)
            else:
                self._finish(ModelStatus(target, "ready", f"{target} is ready", note=self._note()), loaded)
        except BaseException as error:  # or races would wait for this thread for ever
            why = words_of(error, f"loading {target}")
            self._finish(ModelStatus(target, "failed", why), error=RaceError(why))

    def _heard(self, status: ModelStatus) -> None:
        self._status, self._heard_at = status, self._clock()

    def _finish(self, status: ModelStatus, loaded: Any = None, error: PhotofinishError | None = None) -> None:
        with self._lock:
            self._loaded, self._error, self._status = loaded, error, status
