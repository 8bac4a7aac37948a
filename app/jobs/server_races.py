"""Races on servers that the operator named, on the command line or as the page's owner. Visitors cannot name servers,
and no URL or key leaves the endpoints: see `engine.remote.endpoint`."""

import asyncio
import hashlib
import math
import secrets
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, Self

from engine.core.errors import UsageError
from engine.doctor.findings import Finding, about_servers
from engine.progress import Progress
from engine.remote.client import Patience, RemoteError, named_errors, new_client
from engine.remote.endpoint import Endpoint
from engine.remote.look import kinds_of
from engine.remote.server_race import RemoteRace
from engine.studies.prompts.prompts import FilePrompt
from engine.studies.prompts.race_servers import ServersStudy, drafting_lanes, question_of

from ..catalogue.catalogue import Catalogue, Offer, Pair, load_presets
from ..catalogue.request import CheckUpRequest, RaceRequest, StudyRequest
from .loader import ModelStatus
from .studies import Raced

NOTE = "Both lanes run on servers, which choose their own drafter and draft length."
SECRET = secrets.token_bytes(16)  # drawn anew by each process, so that an id reveals no address
ANSWER_S = 4.0  # how long a server may take to say that it is there
FRESH_S = 1.0
NO_SERVERS = "name a server first, under \u201cTry it on yours\u201d"
ONE_SERVER = "one server alone has none to race: name two, under \u201cTry it on yours\u201d"


class Servers:
    """In the place of a loader: there is nothing to load, but servers may be gone. asking: the status before they were
    asked. status: what they said last."""

    loaded = None

    def __init__(self, what: str, endpoints: Sequence[Endpoint]) -> None:
        self.asking = self.status = ModelStatus(what, "loading", f"asking {what}")
        self._endpoints, self._asked_at = endpoints, -math.inf

    def start(self, target: str) -> None:
        """Nothing."""

    async def ask(self) -> ModelStatus:
        """Whether all of them answer now: any answer will do. Visitors who come at once ask once."""
        if time.monotonic() - self._asked_at > FRESH_S:
            self._asked_at = time.monotonic()
            silent = [why for why in await asyncio.gather(*map(_why_silent, self._endpoints)) if why]
            fields = self.asking.target, "failed" if silent else "ready", "; ".join(silent)
            self.status = ModelStatus(*fields, fault="cannot be raced now")  # type: ignore[arg-type]
        return self.status


async def _why_silent(endpoint: Endpoint) -> str:
    """Why a server does not answer, without secrets; "" if it does."""
    try:
        async with asyncio.timeout(ANSWER_S), new_client() as client:
            request = client.stream("GET", f"{endpoint.url}/models", headers=endpoint.headers(), timeout=ANSWER_S)
            async with named_errors(endpoint, Patience(ANSWER_S)), request:
                return ""
    except TimeoutError:
        return f"lane {endpoint.lane} did not answer within {ANSWER_S:g} s"
    except RemoteError as error:
        return endpoint.redact(str(error))


class ServersBackend:
    """Prepares races of servers. endpoints: of the lanes, in their order; one alone can only be checked up or put under
    load. same_device: they take turns. `model`: what they run, in words; `title`: on how many. `lanes`: what rows of a
    study call the drafters of its drafting lanes, by lane. `id`: whose numbers these are, without saying where they
    are."""

    def __init__(self, endpoints: Sequence[Endpoint], same_device: bool) -> None:
        self.endpoints, self.same_device = tuple(endpoints), same_device
        self.model = " and ".join(dict.fromkeys(endpoint.model for endpoint in endpoints))
        self.title = f"{self.model} on " + ("a server" if len(endpoints) == 1 else f"{len(endpoints)} servers")
        self.loader = Servers(self.title, self.endpoints)
        self.lanes = drafting_lanes(endpoints)
        addresses = repr([(endpoint.lane, endpoint.model, endpoint.url) for endpoint in endpoints]).encode()
        self.id = hashlib.blake2b(addresses, key=SECRET, digest_size=8).hexdigest()

    @cached_property
    def _kinds(self) -> Mapping[str, str]:
        return asyncio.run(kinds_of(self.endpoints))

    def of(self, pair: Pair) -> Self:
        """See `TorchBackend.of`: no pair is raced elsewhere."""
        return self

    def pair(self, name: str, chat: bool | None) -> Pair:
        """What a visitor chooses to race them. chat: see `Pair`."""
        return Pair(name, self.title, self.model, "none", 1, NOTE, chat, lanes=tuple(self.lanes.values()))

    def prepare(self, request: RaceRequest, progress: Progress) -> RemoteRace:
        """The requested race. Raises UsageError."""
        self._need_two()
        question = question_of(FilePrompt(0, "", request.prompt), request.chat)
        return RemoteRace(self.endpoints, question, request.spec.params, Patience(), self.same_device)

    def extras(self, race: Any, progress: Progress) -> Mapping[str, Any]:
        """{}: servers do not say what their drafters would have proposed elsewhere."""
        return {}

    def study(self, request: StudyRequest, done: Container[int], progress: Progress) -> Raced:
        """See `TorchBackend.study`. A prompt is sent as a message if it is one, or the pair's are."""
        self._need_two()
        settings = request.prompts, request.params, self.same_device, request.pair.chat is True, self._kinds
        study, ran_on = ServersStudy(self.endpoints, *settings), {"weights": self.model, "machine": self.id}
        with closing(study.races(done, progress)) as races:  # type: ignore[type-var]
            return next(races), ran_on, study.about()

    def examined(self, request: CheckUpRequest) -> dict[str, Any]:
        """See `TorchBackend.examined`; also the servers' id."""
        return {**about_servers(self._plain_first()), "servers": self.id}

    def check_up(self, request: CheckUpRequest, progress: Progress) -> Iterator[Finding]:
        """What may keep the drafting server from being faster than the plain one. See `TorchBackend.check_up`."""
        from engine.doctor.servers import check_servers

        questions = [question_of(prompt, request.as_messages) for prompt in request.prompts]
        yield from check_servers(self._plain_first(), questions, request.params, progress)

    def _need_two(self) -> None:
        if len(self.endpoints) == 1:
            raise UsageError(ONE_SERVER)

    def _plain_first(self) -> list[Endpoint]:
        """A lane without drafts, if there is one, and the first one that drafts."""
        plain = [endpoint for endpoint in self.endpoints if endpoint.lane not in self.lanes]
        return [*plain[:1], *(endpoint for endpoint in self.endpoints if endpoint.lane in self.lanes)][:2]


def servers_catalogue(servers: ServersBackend, chat: bool) -> Catalogue:
    """One choice: the model, on its servers. chat: prompts are messages for the chat endpoint unless the box is
    unticked."""
    pair = servers.pair("servers", True if chat else None)
    return Catalogue(load_presets(), (Offer(pair, ""),), pair)
