"""Races on servers that the operator named on the command line: the same page, with another backend and one choice of
model, or with the servers' lanes next to local ones. Visitors cannot name servers, and no URL or key gets here: see
`engine.remote.endpoint`."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from engine.errors import UsageError
from engine.progress import Progress
from engine.remote.client import Patience
from engine.remote.endpoint import Endpoint, Question
from engine.remote.mixed import MixedRace
from engine.remote.race import RemoteRace

from ..catalogue.catalogue import Catalogue, Offer, Pair, load_presets
from ..catalogue.request import RaceRequest, StudyRequest
from .backend import TorchBackend
from .loader import ModelStatus
from .worker import Race

NOTE = "Both lanes run on servers, which choose their own drafter and draft length."
NO_STUDY = "the lanes here are servers; use python -m engine study to compare servers on many prompts"


def servers_catalogue(model: str, chat: bool) -> Catalogue:
    """One choice: the model, on its servers. chat: prompts are messages for the chat endpoint unless the box is
    unticked."""
    pair = Pair("servers", model, model, "none", 1, NOTE, True if chat else None)
    return Catalogue(load_presets(), (Offer(pair, ""),), pair, on_servers=True)


class Ready:
    """In the place of a loader: there is nothing to load."""

    loaded = None

    def __init__(self, what: str) -> None:
        self.status = ModelStatus(what, "ready", "")

    def start(self, target: str) -> None:
        """Nothing."""


class ServersBackend:
    """Prepares races of servers. endpoints: of the lanes, in their order. same_device: they take turns. `model`: what
    they run, in words."""

    def __init__(self, endpoints: Sequence[Endpoint], same_device: bool) -> None:
        self.endpoints, self.same_device = endpoints, same_device
        self.model = " and ".join(dict.fromkeys(endpoint.model for endpoint in endpoints))
        self.loader = Ready(f"{self.model} on {len(endpoints)} servers")

    def prepare(self, request: RaceRequest, progress: Progress) -> RemoteRace:
        """The requested race. Raises UsageError."""
        text = request.prompt
        question = Question(messages=(("user", text),)) if request.chat else Question(text)
        return RemoteRace(self.endpoints, question, request.spec.params, Patience(), self.same_device)

    def extras(self, race: Any, progress: Progress) -> Mapping[str, Any]:
        """{}: servers do not say what their drafters would have proposed elsewhere."""
        return {}

    def study(self, request: StudyRequest, done: Container[int], progress: Progress) -> Any:
        """Raises UsageError: that is another command's."""
        raise UsageError(NO_STUDY)


class MixedBackend(TorchBackend):
    """Prepares the races of this machine, each with the lanes on servers after its own. The rest as of TorchBackend."""

    def __init__(self, servers: ServersBackend, dtype: str, device: str, watched_here: bool) -> None:
        super().__init__(dtype, device, watched_here)
        self._servers = servers

    def prepare(self, request: RaceRequest, progress: Progress) -> Race:
        """The requested race; if a recorded one is run again, only its local lanes. Raises UsageError
        and RaceError."""
        here: Any = super().prepare(request, progress)
        return here if request.recorded else MixedRace(here, self._servers.prepare(request, progress))

    def extras(self, race: Any, progress: Progress) -> Mapping[str, Any]:
        """Same as TorchBackend, for local lanes only."""
        return super().extras(race.here if isinstance(race, MixedRace) else race, progress)
