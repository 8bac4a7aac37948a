"""Real races for the page: the engine with torch, imported when the first model is loaded and never before."""

import gc
import os
from collections.abc import Container, Iterator, Mapping
from contextlib import closing
from functools import partial
from importlib import metadata
from typing import Any

from engine.core.errors import UsageError
from engine.doctor.findings import Finding, is_faulty
from engine.hardware.environment import commit
from engine.progress import Progress
from engine.text import encode_prompt

from ..catalogue.catalogue import Pair
from ..catalogue.own_model import Room
from ..catalogue.request import CheckUpRequest, RaceRequest, StudyRequest
from .loader import Loader
from .process_memory import keep_from_collector
from .server_races import NO_SERVERS, ServersBackend
from .studies import Raced
from .worker import Race


class TorchBackend:
    """Prepares races on one device. Models are loaded in the background, by `loader`.

    watched_here: the browser runs on this machine too. Steps on the CPU then leave it one core: threads that meet at
    barriers all wait when the browser takes one's core (measured on 2 cores: a viewer doubles the step times with 2
    threads and hardly changes them with 1).

    named: the servers that the page's owner named last."""

    def __init__(self, dtype: str = "auto", device: str = "auto", watched_here: bool = False) -> None:
        self._dtype, self._device, self._watched_here = dtype, device, watched_here
        self.loader = Loader(self._load, self._why_no_gpu)
        self.named: ServersBackend | None = None

    @property
    def servers(self) -> ServersBackend:
        """Raises UsageError if there are none."""
        if self.named is None:
            raise UsageError(NO_SERVERS)
        return self.named

    def of(self, pair: Pair) -> Any:
        """What races this pair: this machine, or the servers that are named now. Raises UsageError."""
        return self if pair.lanes is None else self.servers

    def gpu(self) -> dict[str, Any]:
        """What a `Machine` says of the GPU that this page's races run on. Imports torch. Raises UsageError where torch
        cannot use the GPU that is there."""
        from engine.kernels.choose import choose
        from engine.kernels.devices import device_named

        kernels = choose(device_named(self._device))
        if why := self._why_no_gpu():
            raise UsageError(why)
        if kernels.on_host:
            return {"gpu_bytes": 0}
        dtype = kernels.best_dtype()
        chosen, torch = dtype if self._dtype == "auto" else self._dtype, f"torch {metadata.version('torch')}"
        card = ", ".join(filter(None, (kernels.about_device()["name"], chosen, torch, commit())))
        about = {"gpu_bytes": kernels.free_bytes(), "gpu_dtype": dtype, "captures_experts": kernels.captures_experts}
        return about | {"card": card}

    def room(self) -> Room:
        """What another model may take of this page's device, instead of the one that is loaded. Imports torch."""
        from engine.kernels.choose import choose
        from engine.kernels.devices import device_named

        kernels, loaded = choose(device_named(self._device)), self.loader.loaded
        in_use = sum(parameter.nbytes for parameter in loaded.model.parameters()) if loaded else 0
        dtype = loaded.info.dtype if loaded and self._dtype == "auto" else self._dtype
        return Room(kernels.free_bytes() + in_use, dtype, graphs=not kernels.on_host)

    def prepare(self, request: RaceRequest, progress: Progress) -> Race:
        """The requested race, ready to run. Raises UsageError and RaceError."""
        loaded = self.loader.get(request.pair.target, progress)
        from engine.session import TorchRace

        prompt = encode_prompt(loaded.tokenizer, request.prompt, request.chat, request.pair.thinking)
        return TorchRace(loaded, request.spec, prompt, progress)

    def extras(self, race: Any, progress: Progress) -> Mapping[str, Any]:
        """What is added to a finished race's recording; `progress` may raise to give up. Raises UsageError if
        its drafters have no tables."""
        from engine.what_if.ask import members

        return members(race, progress)

    def study(self, request: StudyRequest, done: Container[int], progress: Progress) -> Raced:
        """Race the first prompt of a study whose line is not in `done`: its rows, what it ran on (see
        `engine.studies.prompts.study_file`), and its circumstances. `progress` may raise to give up, also between two
        steps. Raises UsageError and RaceError."""
        loaded = self.loader.get(request.pair.target, progress)
        from engine.studies.prompts.race_prompts import Study

        study = Study(loaded, request.prompts, request.drafters, request.params)
        about = study.about()
        with closing(study.races(done, progress)) as races:  # type: ignore[type-var]
            return next(races), {"weights": loaded.info.digest, "machine": about["device"]["name"]}, about

    def examined(self, request: CheckUpRequest) -> dict[str, Any]:
        """What the report of a check-up says it is about."""
        return {"target": request.pair.target, "drafter": request.drafter}

    def check_up(self, request: CheckUpRequest, progress: Progress) -> Iterator[Finding]:
        """What may keep the request's pair from being faster. `progress` may raise to give up. Raises UsageError if it
        cannot be checked."""
        target = request.pair.target
        from engine.doctor.checkup import Checkup

        checkup = Checkup(target, request.drafter)
        findings = list(checkup.before_weights())
        yield from findings
        if not is_faulty(findings):
            load = partial(self.loader.get, target, progress)
            yield from checkup.with_tokens(load, request.prompts, request.params, progress)

    def _why_no_gpu(self) -> str:
        """Why races run on the CPU despite a GPU; "" if they do not, or the user chose the CPU. Imports torch."""
        from engine.kernels.usable import why_unused

        return why_unused() if self._device == "auto" else ""

    def _load(self, target: str, progress: Progress) -> Any:
        progress("starting torch", None)
        from engine.loading.loading import give_back_memory, load

        gc.unfreeze()  # see keep_from_collector: the model before may have cycles
        give_back_memory(self._device)  # that of the model before, which the loader has let go
        loaded = load(target, dtype=self._dtype, device=self._device, progress=progress)
        progress(f"getting {target} ready", None)
        from engine.session.threads import leave_a_core, settle

        if self._watched_here and loaded.model.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
            leave_a_core()
        settle(loaded.make_ready(progress), progress)
        keep_from_collector()
        return loaded
