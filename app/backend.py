"""Real races for the page: the engine with torch, imported when the first model is loaded and never before."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from contextlib import closing
from typing import Any

from engine.progress import Progress
from engine.text import encode_prompt
from engine.traffic.rows import Row

from .loader import Loader
from .request import RaceRequest, StudyRequest
from .worker import Race


class TorchBackend:
    """Prepares races on one device. Models are loaded in the background, by `loader`.

    watched_here: the browser runs on this machine too. Steps on the CPU then leave it one core: threads that meet at
    barriers wait for each other whenever the browser has taken the core of one (measured on 2 cores: a viewer doubles
    the step times of 2 threads, and those of 1 hardly change)."""

    def __init__(self, dtype: str = "auto", device: str = "auto", watched_here: bool = False) -> None:
        self._dtype, self._device, self._watched_here = dtype, device, watched_here
        self.loader = Loader(self._load)

    def gpu_bytes(self) -> int:
        """What torch says that the GPU of this page's races has free; 0 where they run elsewhere. Imports torch."""
        from engine.kernels.choose import choose
        from engine.kernels.devices import device_named

        kernels = choose(device_named(self._device))
        return 0 if kernels.on_host else kernels.free_bytes()

    def prepare(self, request: RaceRequest, progress: Progress) -> Race:
        """The race that was asked for, ready to run. Raises UsageError and RaceError."""
        loaded = self.loader.get(request.pair.target, progress)
        from engine.session import TorchRace

        prompt = encode_prompt(loaded.tokenizer, request.prompt, request.chat)
        return TorchRace(loaded, request.spec, prompt, progress)

    def beside(self, race: Any, progress: Progress) -> Mapping[str, Any]:
        """Members for the recording of a race that is over; `progress` may raise to give up. Raises UsageError where
        its drafters have no tables."""
        from engine.what_if.ask import members

        return members(race, progress)

    def study(
        self, request: StudyRequest, done: Container[int], progress: Progress
    ) -> tuple[tuple[Row, ...], dict[str, Any], dict[str, Any]]:
        """Race the first prompt of a study whose line is not in `done`: its rows, what it ran on (see
        `engine.traffic.saved`), and its circumstances. `progress` may raise to give up, between two steps as well.
        Raises UsageError and RaceError."""
        loaded = self.loader.get(request.pair.target, progress)
        from engine.traffic.races import Study

        study = Study(loaded, request.prompts, request.drafters, request.params)
        about = study.about()
        with closing(study.races(done, progress)) as races:  # type: ignore[type-var]
            return next(races), {"weights": loaded.info.digest, "machine": about["device"]["name"]}, about

    def _load(self, target: str, progress: Progress) -> Any:
        progress("starting torch", None)
        from engine.models.loading import give_back_memory, load

        give_back_memory(self._device)  # that of the model before, which the loader has let go
        loaded = load(target, dtype=self._dtype, device=self._device, progress=progress)
        progress(f"getting {target} ready", None)
        from engine.session.threads import leave_a_core, settle

        if self._watched_here and loaded.model.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
            leave_a_core()
        settle(loaded.make_ready(progress), progress)
        return loaded
