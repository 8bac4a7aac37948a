"""What the page does when something happens on it: each handler checks what it is given, asks the stage, and returns
new values for components."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import gradio as gr

from engine.errors import PhotofinishError, UsageError
from engine.events import LaneEvent
from engine.recordings.recording import events_of, loads
from engine.spec import BASELINE, PLAIN

from .backend import TorchBackend
from .catalogue import Catalogue, Pair
from .charts import charts
from .cheats import cheats
from .checks import Check
from .controls import chat_help, more_choices, pair_choices, preset_values, text_for
from .figures import Chart
from .load_request import SETTINGS as LOAD_SETTINGS
from .load_request import read_load
from .load_study import LoadStudies, refused_load
from .recorded import recorded_view
from .request import RaceRequest, read_again, read_request, read_study
from .servers import ServersBackend
from .stream import Stage, first_frame
from .study import Studies, refused_study
from .texts import chart_sentence, chart_table, charts_of, drafter_choices, model_line, pair_line, preset_line, refused
from .why import compared_of, why

MODEL_POLL_S = 0.2
STUDY_SETTINGS = ("pair", "drafter", "temperature", "top_p", "seed", "more")
MAX_RECORDING_CHARS = 8_000_000
"""Four times what the longest race of the page takes."""


class Handlers:
    """The page's behaviour for one process: its catalogue, its backend, its stage."""

    def __init__(
        self,
        catalogue: Catalogue,
        backend: TorchBackend | ServersBackend,
        check: Check | None = None,
        under_load: bool = False,
    ) -> None:
        self._catalogue, self._check, self.backend = catalogue, check, backend
        self.stage = Stage(backend)
        self._studies = Studies(backend, self.stage.queue)
        self.loads: LoadStudies | None = None
        if under_load and isinstance(backend, ServersBackend):
            self.loads = LoadStudies(backend.endpoints, not backend.same_device, self.stage.queue)
        self.recorded = {preset.id: recorded_view(preset.id, preset.name) for preset in catalogue.presets}

    @property
    def catalogue(self) -> Catalogue:
        """What is on offer now."""
        return (self._check and self._check.found) or self._catalogue

    async def checked(self) -> None:
        """Wait until it is known what this machine can run."""
        while self._check is not None and self._check.found is None:
            await asyncio.sleep(MODEL_POLL_S)

    async def offers(self) -> tuple[Any, str]:
        """The choice of pairs and those that are refused, once all are checked."""
        await self.checked()
        catalogue = self.catalogue
        pairs = gr.update(choices=pair_choices(catalogue), value=catalogue.default.id)
        return pairs, refused(catalogue.offers, catalogue.note)

    async def race(self, request: gr.Request, **values: Any) -> AsyncGenerator[str, None]:
        """Hold a race: frames as JSON text. What cannot be raced is refused in a sentence."""
        async with aclosing(self._hold(request, lambda: read_request(self.catalogue, values))) as frames:
            async for frame in frames:
                yield frame

    async def again(self, event: gr.EventData, request: gr.Request) -> AsyncGenerator[str, None]:
        """Hold the race of a recording once more, which the browser sends."""
        async with aclosing(self._hold(request, lambda: read_again(self.catalogue, _asked(event)[1]))) as frames:
            async for frame in frames:
                yield frame

    async def _hold(self, request: gr.Request, read: Callable[[], RaceRequest]) -> AsyncGenerator[str, None]:
        try:
            async with aclosing(self.stage.frames(_visitor(request), _address(request), read())) as frames:
                async for frame in frames:
                    yield frame
        except PhotofinishError as error:
            raise _refusal(error) from error

    async def stop(self, request: gr.Request) -> None:
        """End the visitor's races. Runs in the event loop, as the stage asks for."""
        self.stage.stop(_visitor(request))

    async def study(self, event: gr.EventData, request: gr.Request, *values: Any) -> AsyncGenerator[str, None]:
        """Hold a study of the prompts that the browser sends, with the page's settings: frames as JSON text. What
        cannot be studied is refused in one."""
        try:
            asked = read_study(self.catalogue, dict(zip(STUDY_SETTINGS, values, strict=True)), event._data)
            async with aclosing(self._studies.frames(_visitor(request), _address(request), asked)) as frames:
                async for frame in frames:
                    yield frame
        except PhotofinishError as error:
            yield refused_study(str(error))

    async def stop_study(self, request: gr.Request) -> None:
        """End the visitor's study."""
        self._studies.stop(_visitor(request))

    async def load(self, event: gr.EventData, request: gr.Request, *values: Any) -> AsyncGenerator[str, None]:
        """Hold a study of the page's servers under load: frames as JSON text. What cannot be studied is refused in
        one."""
        assert self.loads is not None
        try:
            settings = dict(zip(LOAD_SETTINGS, values, strict=True))
            asked = read_load(self.loads.endpoints, self.loads.separate, settings, event._data)
            async with aclosing(self.loads.frames(_visitor(request), _address(request), asked)) as frames:
                async for frame in frames:
                    yield frame
        except PhotofinishError as error:
            yield refused_load(str(error))

    async def stop_load(self, request: gr.Request) -> None:
        """End the visitor's study of servers."""
        assert self.loads is not None
        self.loads.stop(_visitor(request))

    async def resume(self, race: object, request: gr.Request) -> AsyncGenerator[str, None]:
        """The frames of the race that this browser watched before its page was loaded again, by the race's id; none
        where there is no such race."""
        async with aclosing(self.stage.resume(_visitor(request), str(race))) as frames:
            async for frame in frames:
                yield frame

    async def beside(self, request: gr.Request) -> AsyncGenerator[str, None]:
        """The frames that come after the end of the race that this browser has just watched."""
        async with aclosing(self.stage.beside(_visitor(request))) as frames:
            async for frame in frames:
                yield frame

    async def model(self) -> AsyncGenerator[str, None]:
        """The status line of the default model, until it is ready."""
        loader = self.backend.loader
        if self._check is not None and self._check.found is None:
            yield model_line(None)
            await self.checked()
        loader.start(self.catalogue.default.target)
        shown = ""
        while True:
            status = loader.status
            if (line := model_line(status)) != shown:
                shown = line
                yield line
            if status is not None and status.state != "loading":
                return
            await asyncio.sleep(MODEL_POLL_S)

    def model_now(self) -> str:
        """The status line of the model that is loaded: a race may have asked for another one."""
        return model_line(self.backend.loader.status)

    def preset(self, preset_id: str, pair_id: object, request: gr.Request) -> dict[str, Any]:
        """Its recorded race, unless the visitor's own is running; what to expect of it, and what it sets, by name."""
        preset = next(preset for preset in self.catalogue.presets if preset.id == preset_id)
        recorded = self.recorded[preset_id]
        return {
            "race": gr.skip() if recorded is None or self.stage.racing(_visitor(request)) else first_frame(recorded),
            "expectation": preset_line(preset),
            **preset_values(self.catalogue, preset, self._pair(pair_id)),
        }

    def example(self, event: gr.EventData, request: gr.Request) -> Any:
        """The recorded race of the example that a browser names, unless the visitor's own is running. It sets
        nothing."""
        name = event._data.get("name") if isinstance(event._data, dict) else None
        recorded = next((self.recorded[each.id] for each in self.catalogue.presets if each.name == name), None)
        return gr.skip() if recorded is None or self.stage.racing(_visitor(request)) else first_frame(recorded)

    def _pair(self, pair_id: object) -> Pair:
        try:
            return self.catalogue.pair(pair_id)
        except PhotofinishError as error:
            raise _refusal(error) from error

    def pair(self, pair_id: object, prompt: object, request: gr.Request) -> dict[str, Any]:
        """The drafters on offer, k, whether there is a chat template, and the text of a preset in the form that suits
        the target, by name."""
        pair = self._pair(pair_id)
        preset = self.catalogue.preset_of(prompt)
        return {
            "drafter": gr.update(choices=drafter_choices(self.catalogue.drafters(pair)), value=pair.drafter),
            "k": str(pair.k),
            "more": gr.update(choices=more_choices(self.catalogue, pair), value=[]),
            "chat": gr.update(value=bool(pair.chat), interactive=pair.chat is not False, info=chat_help(pair)),
            "prompt": text_for(preset, pair) if preset else gr.skip(),
        }

    def drafter_line(self, pair_id: object, drafter: object) -> str:
        """What is special about the chosen target and drafter."""
        return pair_line(self.catalogue.like(self._pair(pair_id), drafter))

    def charts(self, event: gr.EventData) -> tuple[Any, ...]:
        """The figures of the race on the screen, wherever it comes from: the browser sends its recording. First whose
        they are, then figure and sentence of each."""
        race, recording, events = _asked(event)
        return _drawn(race, charts(events, recording))

    def why(self, event: gr.EventData) -> tuple[Any, ...]:
        """Where the speed of the race on the screen comes from, in the same form, and what its switches show."""
        race, recording, events = _asked(event)
        return _drawn(race, why(events, recording), cheats(compared_of(events, recording)))


def _asked(event: gr.EventData) -> tuple[str, dict[str, Any], list[LaneEvent]]:
    """The race that a browser sent: its id, its recording and its events. The lane that it shows comes first."""
    try:
        recording = loads(_text(event._data, "recording").encode("utf-8", "surrogatepass"))
        shown, spec = event._data.get("lane"), recording["spec"]
        spec["lanes"].sort(key=lambda lane: lane["name"] not in (PLAIN, BASELINE, shown))
        return _text(event._data, "race"), recording, events_of(recording)
    except PhotofinishError as error:
        raise _refusal(error) from error


def _drawn(race: str, drawn: Sequence[Chart], beside: Mapping[str, Any] | None = None) -> tuple[Any, ...]:
    figures = [
        (
            gr.update(value=each.figure, visible=each.figure is not None),
            chart_sentence(each.sentence) + chart_table(each.title, each.table, behind=each.figure is not None),
        )
        for each in drawn
    ]
    return charts_of(race, beside or {}), *(part for figure in figures for part in figure)


def _text(asked: object, name: str) -> str:
    """A member of what a browser sent, which can be anything."""
    value = asked.get(name) if isinstance(asked, dict) else None
    if not isinstance(value, str) or len(value) > MAX_RECORDING_CHARS:
        raise UsageError(f"{name} must be a text of at most {MAX_RECORDING_CHARS} characters")
    return value


def _visitor(request: gr.Request) -> str:
    """Who asks: the browser's session, or the address of a program that has none."""
    return request.session_hash or (request.client.host if request.client else "")


def _address(request: gr.Request) -> str:
    """Where a request comes from, as uvicorn says: it reads X-Forwarded-For only from proxies in $FORWARDED_ALLOW_IPS.
    Of IPv6 the network of 64 bits, all of which one household has."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))


def _refusal(error: Exception) -> gr.Error:
    """One sentence for the visitor. It is shown as HTML, so no markup may be in it."""
    text = str(error).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return gr.Error(text, title="Not possible", print_exception=False)
