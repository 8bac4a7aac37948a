"""What the owner of the page names in the browser, a model or servers. It belongs to the process, not to a visitor, and
ends with it. Keys and URLs come by a route of the page's own, never through Gradio, and stay in
endpoints; every answer is a sentence without them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from engine.core.errors import UsageError
from engine.core.spec import PLAIN, SERVER, SPECULATIVE
from engine.loading.sources import hub_names
from engine.remote.client import trust
from engine.remote.endpoint import Endpoint, check_key, check_url
from engine.remote.look import look

from ..catalogue.catalogue import Catalogue, Pair
from ..catalogue.own_model import OWN, check_own
from ..jobs.backend import TorchBackend
from ..jobs.server_races import ServersBackend
from .gate import YOURS_BYTES
from .stream import NO_OBJECT, object_of

SERVERS = "your-servers"
LANES = {1: (SERVER,), 2: (PLAIN, SPECULATIVE)}
WHOSE = ("the first server", "the second server")
MAX_CHARS = 500
SAME = "Both are the same address: a race of it would compare a server with itself."


class Doors:
    """What the owner has named so far. To be used from the event loop that serves the page."""

    def __init__(self, backend: TorchBackend) -> None:
        self._backend = backend
        self._pairs: dict[str, Pair] = {}
        self._chosen = ""
        self._keys: dict[tuple[str, str], str] = {}
        self._can_race: ServersBackend | None = None
        self._chat, self._sentences, self._tries = False, list[str](), asyncio.Lock()

    def added_to(self, catalogue: Catalogue) -> Catalogue:
        """The catalogue with what the owner has named; what was chosen last, here or there, is its default."""
        chosen = [pair for pair in (*self._pairs.values(), *catalogue.runnable) if pair.id == self._chosen]
        return catalogue.adding(self._pairs.values(), next(iter(chosen), None)) if self._pairs else catalogue

    def follow(self, pair: Pair) -> None:
        """The owner has chosen this pair in Settings."""
        self._chosen = pair.id

    async def model(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What a target and a drafter are and take, in sentences; with `use` they can be chosen from now on. Raises
        UsageError with the reason if they cannot run here."""
        target, drafter = (hub_names(_text(asked, name, MAX_CHARS)) for name in ("target", "drafter"))
        if not target:
            raise UsageError("name a model first: owner/name on the hub, or a folder of this machine")
        pair, sentences = await asyncio.to_thread(lambda: check_own(target, drafter or "ngram", self._backend.room()))
        if asked.get("use") is True:
            self._pairs[OWN] = pair
        return {"sentences": sentences}

    async def servers(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What one or two servers are, in sentences, and how many of them can race, 1 if a single one could with
        another. With `use` they can be chosen from now on, if all can race. `chat`: whether prompts go as messages;
        None: if both take them. `cacert`: a file with the certificate of their authority. Without a URL: those last
        tried. Without a key, a server tried before gets the key that it had. Raises UsageError."""
        urls = [url for name in ("url", "url2") if (url := _text(asked, name))]
        urls = [url if "://" in url else f"http://{url}" for url in urls]
        if not urls and self._can_race is None and asked.get("again") is not True:
            raise UsageError("give the URL of a server, as http://localhost:8000/v1")
        if file := _text(asked, "cacert", MAX_CHARS):
            trust(file)
        if urls:
            async with self._tries:  # of several tabs
                await self._try(urls, asked)
        if asked.get("use") is True and self._can_race is not None:
            self._backend.named = self._can_race
        num = 0 if self._can_race is None else len(self._can_race.endpoints)
        return {"sentences": self._sentences, "can_race": num}

    async def _try(self, urls: Sequence[str], asked: Mapping[str, Any]) -> None:
        key, model = check_key(_text(asked, "key"), "its field"), _text(asked, "model", MAX_CHARS)
        urls = [check_url(whose, url) for whose, url in zip(WHOSE, urls, strict=False)]
        lanes, keys = LANES[len(urls)], [key or self._keys.get(_origin(url), "") for url in urls]
        endpoints = [Endpoint(lane, model, url, key) for lane, url, key in zip(lanes, urls, keys, strict=True)]
        self._can_race, self._keys = None, {_origin(endpoint.url): endpoint.key for endpoint in endpoints}
        seen = await asyncio.gather(*map(look, endpoints))
        sentences = [entry.sentence if len(seen) == 1 else f"{i}. {entry.sentence}" for i, entry in enumerate(seen, 1)]
        working, chat = [entry.endpoint for entry in seen if entry.endpoint is not None], False
        if len(working) == 2:
            if [entry.speculates for entry in seen] in ([True, False], [True, None]):
                sentences.append("The first one drafts and the second one does not: are they swapped?")
            if urls[0] == urls[1]:
                sentences.append(SAME)
            chats = [bool(entry.chat_reply and entry.chat_reply.chunks) for entry in seen]
            chat = all(chats) if asked.get("chat") is None else asked["chat"] is True
            misfit = next((i for i, entry in enumerate(seen) if (not chats[i] if chat else entry.chat)), None)
            if misfit is not None:
                working, other = [], ("plain text", "chat messages")[not chat]
                sentences.append(f"Number {misfit + 1} takes {other} only: send the prompts to both as {other}.")
            else:
                sentences.append(f"Prompts go as {'chat messages' if chat else 'plain text'}.")
        if len(working) == len(seen):
            self._can_race = ServersBackend(working, asked.get("same_device") is True)
        self._chat, self._sentences = chat, sentences

    def choose(self, name: str) -> Pair:
        """What the owner has named there, OWN or SERVERS: from now on the page's default. Raises UsageError if nothing
        was named."""
        if name == SERVERS:
            self._pairs[name] = self._backend.servers.pair(SERVERS, True if self._chat else None)
        elif name not in self._pairs:
            raise UsageError("name a model first")
        self._chosen = name
        return self._pairs[name]


def read_asked(body: bytes) -> Mapping[str, Any]:
    """The object that the page's own program sends. Raises UsageError, without a word of it."""
    try:
        return object_of(body, YOURS_BYTES)
    except UsageError:
        raise UsageError(NO_OBJECT) from None


def _text(asked: Mapping[str, Any], name: str, most: int = YOURS_BYTES) -> str:
    value = asked.get(name, "")
    if not isinstance(value, str) or len(value) > most:
        raise UsageError(f"{name} must be a text of at most {most} characters")
    return value.strip()


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
