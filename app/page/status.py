"""The line about the chosen model or servers: what is loaded, what is not yet, and which servers answer."""

from __future__ import annotations

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..catalogue.catalogue import Catalogue, Pair
from ..catalogue.hub import Check
from ..jobs.loader import ModelStatus
from ..jobs.races import Frames
from ..jobs.server_races import EitherBackend, ServersBackend
from .doors import Doors
from .gradio_errors import as_gradio_errors
from .sentences import model_line
from .stream import Asked, Events

MODEL_POLL_S = 0.2


class StatusLines:
    """The part of `Handlers` that says how the chosen pair is."""

    backend: EitherBackend | ServersBackend
    doors: Doors | None
    _check: Check | None

    @property
    @abstractmethod
    def catalogue(self) -> Catalogue: ...

    async def model(self, asked: Asked) -> Events:
        """The line about the default model, until it is ready. `named` in the order: the owner has just named one."""
        lines = self._named_line() if asked.order.get("named") is True else self._line()
        return (("model", json.dumps(line)) async for line in lines)

    async def _followed(self, frames: Frames, asked: Asked) -> Events:
        """Frames, and the line about the chosen model whenever it changes."""
        catalogue, chosen, shown = self.catalogue, asked.settings.get("pair"), None
        pair = next((pair for pair in catalogue.runnable if pair.id == chosen), catalogue.default)
        async with aclosing(frames):
            async for frame in frames:
                yield "", frame
                if pair.lanes is None and (status := self.backend.loader.status) is not shown:
                    shown = status
                    yield "model", json.dumps(model_line(status, chosen=pair.target))
        yield "model", json.dumps(await asyncio.to_thread(self.model_now, pair.id))

    async def _line(self) -> AsyncGenerator[str, None]:
        """The status line of the default model, until it is ready, or the owner has named another one."""
        loader, shown = self.backend.loader, ""
        while self._check is not None and self._check.found is None:
            if (line := model_line(None, self._check.is_late)) != shown:
                shown = line
                yield line
            await asyncio.sleep(MODEL_POLL_S)
        default, num = self.catalogue.default, self._num_named
        if (servers := self._servers_of(default)) is not None:
            yield model_line(servers.loader.asking)
            yield model_line(await servers.loader.ask())
            return
        loader.start(default.target)
        while self._num_named == num:
            status = loader.status
            if (line := model_line(status, chosen=self.catalogue.default.target)) != shown:
                shown = line
                yield line
            if status is not None and status.state != "loading":
                return
            await asyncio.sleep(MODEL_POLL_S)

    @property
    def _num_named(self) -> int:
        return 0 if self.doors is None else self.doors.num_named

    async def _named_line(self) -> AsyncGenerator[str, None]:
        """The same for what the owner has named last, once no other model is being loaded."""
        is_here = self.catalogue.default.lanes is None
        while is_here and (now := self.backend.loader.status) and now.state == "loading":
            await asyncio.sleep(MODEL_POLL_S)
        async with aclosing(self._line()) as lines:
            async for line in lines:
                yield line

    def model_now(self, pair_id: object) -> str:
        """The status line of the chosen pair: a race may have loaded another model, and servers are asked anew. May
        take seconds; not to be called in an event loop."""
        pair = self._pair(pair_id)
        servers = self._servers_of(pair)
        if servers is not None:
            return model_line(asyncio.run(servers.loader.ask()))
        return model_line(self.backend.loader.status, chosen=pair.target)

    def _servers_of(self, pair: Pair) -> ServersBackend | None:
        """What races this pair's servers; None if it races on this machine."""
        if pair.lanes is None:
            return None
        return self.backend if isinstance(self.backend, ServersBackend) else self.backend.servers

    def status(self, pair: Pair) -> ModelStatus | None:
        """State of this pair's servers, or of the model that is loaded here."""
        servers = self._servers_of(pair)
        return self.backend.loader.status if servers is None else servers.loader.status

    def _pair(self, pair_id: object) -> Pair:
        with as_gradio_errors():
            return self.catalogue.pair(pair_id)
