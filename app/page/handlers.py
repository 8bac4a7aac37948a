"""What the page does when something happens on it: a handler checks what it gets, and calls the stage or a study for
its frames, or returns new values for components."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import gradio as gr

from engine.core.errors import UsageError, choices
from engine.recordings.recording import Recording, checked, unpacked
from engine.text import encode_prompt

from ..catalogue.catalogue import Catalogue, Pair
from ..catalogue.hub import Check
from ..catalogue.limits import MAX_RECORDING_CHARS, check_file
from ..catalogue.request import read_again, read_check_up, read_load, read_request, read_study
from ..catalogue.saved import read_saved
from ..figures.charts import charts
from ..figures.cheats import cheats
from ..figures.plots import Chart
from ..figures.why import compared_of, why
from ..jobs.backend import TorchBackend
from ..jobs.frames import frame, frame_json
from ..jobs.pool import Jobs
from ..jobs.races import Frames, Stage
from ..jobs.recorded import Shelf, recorded_view
from ..jobs.server_races import ServersBackend
from ..jobs.studies import CheckUp, LoadStudy, PromptsStudy, Studies
from . import sentences
from .controls import OF_THE_ENGINE, chat_help, controls, more_choices, pair_choices, preset_values, settings_of
from .doors import Doors
from .gate import address_of
from .gradio_faults import as_gradio_errors
from .opening_races import OpeningRaces
from .stream import Asked, Events, Runs, Stops

MAX_ID_CHARS = 100  # limit on the browser's number for a request, which the answer repeats
NO_LOAD = (
    "a check-up puts servers under load, which visitors of this page may not do; in a terminal it is python -m engine "
    "doctor --lane plain=openai:URL --lane speculative=openai:URL --model NAME"
)
MODEL_POLL_S = 0.2


class Handlers:
    """The page's behaviour for one process: its catalogue, its backend, its stage."""

    def __init__(
        self,
        catalogue: Catalogue,
        backend: TorchBackend | ServersBackend,
        check: Check | None = None,
        own: bool = False,
    ) -> None:
        self._catalogue, self._check, self.backend = catalogue, check, backend
        self.doors = Doors(backend) if own and isinstance(backend, TorchBackend) else None
        views = {preset.id: recorded_view(preset.id, preset.name) for preset in catalogue.presets}
        # the frame that shows the recorded race of the first example
        self.first_frame = frame_json(frame(None, views[catalogue.presets[0].id], 0))
        self.shelf = Shelf({view.race: view.recording for view in views.values() if view.recording})
        self.stage = Stage(backend, shelf=self.shelf, limits=catalogue.limits)
        self._opening = OpeningRaces(self.stage, lambda: self._offered)
        self.jobs, self._names = Jobs(), [control.name for control in controls(catalogue)]
        self._studies = Studies(self.stage.queue)

    @property
    def _offered(self) -> Catalogue:
        return (self._check and self._check.found) or self._catalogue

    @property
    def catalogue(self) -> Catalogue:
        """What is on offer now."""
        catalogue = self._offered.opening(self._opening.ratios)
        return catalogue if self.doors is None else self.doors.added_to(catalogue)

    @property
    def is_watched(self) -> bool:
        """Whether a browser follows a race, a study or a check-up."""
        return self.stage.is_watched or self._studies.is_watched

    def close(self) -> None:
        """The page is about to end: no race starts any more, and all that run or wait end, with a sentence. To be
        called from any thread."""
        self.stage.queue.is_closed = True

    async def checked(self) -> None:
        """Wait until the check of what this machine can run is over."""
        while self._check is not None and self._check.found is None:
            await asyncio.sleep(MODEL_POLL_S)

    async def offers(self) -> tuple[Any, str]:
        """The pairs on offer and the refused ones, once all are checked, with those that the owner has named."""
        await self.checked()
        catalogue = self.catalogue
        if catalogue is self._catalogue:
            return gr.skip(), gr.skip()
        pairs = gr.update(choices=pair_choices(catalogue), value=catalogue.default.id)
        return pairs, sentences.refused(catalogue.offers, catalogue.note)

    def runs(self) -> Runs:
        """What a tab can ask for, by name."""
        runs = {"race": self._race, "again": self._again, "resume": self._resume, "open": self._open}
        if self.catalogue.limits.studies:
            runs |= {"study": self._study, "checkup": self._check_up}
        if self.doors is not None:
            runs["load"] = self._load

        def followed(start: Callable[[Asked], Awaitable[Frames]]) -> Callable[[Asked], Awaitable[Events]]:
            async def run(asked: Asked) -> Events:
                settings = {**dict.fromkeys(self._names), **asked.settings}
                return self._followed(await start(replace(asked, settings=settings)), asked)

            return run

        return {**{name: followed(start) for name, start in runs.items()}, "model": self.model}

    def stops(self) -> Stops:
        """What ends a visitor's races, study, check-up or load within one step. To be called in the event loop."""
        return {"race": self.stage.stop, **dict.fromkeys(("study", "checkup", "load"), self._studies.stop)}

    async def _race(self, asked: Asked) -> Frames:
        return self.stage.frames(asked.visitor, asked.address, read_request(self.catalogue, asked.settings))

    async def _again(self, asked: Asked) -> Frames:
        """The race of a recording once more; the order has its key, and the lane on the screen."""
        race = await self.jobs.run(asked.address, lambda: read_again(self.catalogue, self._named(asked.order)))
        return self.stage.frames(asked.visitor, asked.address, race)

    async def _resume(self, asked: Asked) -> Frames:
        """The race with this id, which the browser watched before its page was loaded again."""
        return self.stage.resume(asked.visitor, str(asked.order.get("race")))

    async def _study(self, asked: Asked) -> Frames:
        order = await self.jobs.run(asked.address, read_study, self.catalogue, asked.settings, asked.order)
        return self._studies.frames(asked.visitor, asked.address, PromptsStudy(self.backend.of(order.pair), order))

    async def _open(self, asked: Asked) -> Frames:
        """The results in a file that this page saved."""
        results = await self.jobs.run(asked.address, read_saved, asked.order.get("saved"))

        async def frames() -> Frames:
            for result in results:
                yield frame_json(result)

        return frames()

    async def _check_up(self, asked: Asked) -> Frames:
        order = await self.jobs.run(asked.address, read_check_up, self.catalogue, asked.settings, asked.order)
        if order.pair.lanes is not None and self.doors is None:
            raise UsageError(NO_LOAD)
        return self._studies.frames(asked.visitor, asked.address, CheckUp(self.backend.of(order.pair), order))

    async def _load(self, asked: Asked) -> Frames:
        """A study of the chosen servers under load."""
        pair = self.catalogue.pair(asked.settings["pair"])
        if pair.lanes is None:
            raise UsageError(f"only servers can be put under load, and {pair.target} runs in this page's own program")
        servers = self.backend.of(pair)
        arguments = servers.endpoints, asked.settings, asked.order, self.catalogue.limits.max_new_tokens
        plan = await self.jobs.run(asked.address, read_load, *arguments)
        return self._studies.frames(asked.visitor, asked.address, LoadStudy(plan, servers.id))

    def preset(self, preset_id: str, pair_id: object) -> dict[str, Any]:
        """What to expect, and its settings, by name."""
        preset = next(preset for preset in self.catalogue.presets if preset.id == preset_id)
        pair = self._pair(pair_id)
        return {"expectation": sentences.preset_line(preset, pair), **preset_values(self.catalogue, preset, pair)}

    def fitted(self, pair_id: object, drafter: object, chat: object) -> tuple[Any, ...]:
        """Drafter, k, chat template, width, audit and further lanes of a race that may come from another page, each the
        pair's own if it has no such thing or the race brings none; and a line that says so of a drafter."""
        pair = self._pair(pair_id)
        own = settings_of(self.catalogue, pair, None)
        template = gr.skip() if pair.chat is not False or chat is not True else False
        rest = template, own["width"], own["audit"], own["more"]
        try:
            self.catalogue.drafter(pair, drafter)
        except UsageError:
            line = sentences.other_drafter_line(drafter, own["drafter"]) if pair.lanes is None else ""
            return own["drafter"], own["k"], *rest, line
        return gr.skip(), gr.skip(), *rest, gr.skip()

    def pair(self, pair_id: object, prompt: object) -> dict[str, Any]:
        """All that depends on the chosen pair, by name: its settings, what is on offer for them, a preset's text in the
        form that suits the target, and the lines about the two. Settings that servers choose for themselves are hidden;
        what a preset's sentence says may not hold for another pair."""
        pair, catalogue = self._pair(pair_id), self.catalogue
        values = settings_of(catalogue, pair, catalogue.preset_of(prompt))
        here: dict[str, Any] = {"visible": pair.lanes is None}
        if self.doors is not None:
            self.doors.follow(pair)
        offered: dict[str, dict[str, Any]] = {
            "drafter": {"choices": sentences.drafter_choices(catalogue.drafters(pair))},
            "more": {"choices": more_choices(catalogue, pair)},
        }
        return {
            **{name: gr.update(**{"value": values[name], **here, **offered.get(name, {})}) for name in OF_THE_ENGINE},
            "model": self.model_now(pair.id),
            "chat": gr.update(value=values["chat"], interactive=pair.chat is not False, info=chat_help(pair)),
            "prompt": values.get("prompt", gr.skip()),
            "expectation": "",
            "pair_line": sentences.pair_line(catalogue.like(pair, values["drafter"])),
        }

    def door(self, pair_id: object, prompt: object, event: gr.EventData) -> dict[str, Any]:
        """Choose what the owner has named, a model or servers, with all that choosing a pair sets, by name."""
        assert self.doors is not None
        with as_gradio_errors():
            pair = self.doors.choose(str(event._data))
        chosen = gr.update(choices=pair_choices(self.catalogue), value=pair.id)
        return {**self.pair(pair.id, prompt), "pair": chosen}

    def drafter_line(self, pair_id: object, drafter: object) -> str:
        """What is special about the chosen target and drafter."""
        return sentences.pair_line(self.catalogue.like(self._pair(pair_id), drafter))

    async def figures(self, event: gr.EventData, request: gr.Request) -> tuple[Any, ...]:
        """The figures of a tab, "charts" or "why" (where the speed comes from), of a race that the browser names. For
        each tab: the browser's number for this request, then figure and sentence of each chart."""

        def drawn() -> tuple[Any, ...]:
            order = event._data if isinstance(event._data, dict) else {}
            number, tab = order.get("request"), order.get("tab")
            if not isinstance(number, str) or len(number) > MAX_ID_CHARS or not number.isascii():
                raise UsageError(f"request must be a text of at most {MAX_ID_CHARS} ASCII characters")
            if tab not in ("charts", "why"):
                raise choices("tab", tab, ("charts", "why"))
            recording = self._named(order)
            if tab == "charts":
                return *_drawn(number, charts(recording), {}), *_skipped(why(None))
            return *_skipped(charts(None)), *_drawn(number, why(recording), cheats(compared_of(recording)))

        with as_gradio_errors():
            return await self.jobs.run(address_of(request), drawn)

    async def count(self, address: str, target: str, text: str) -> dict[str, Any]:
        """How many tokens this target reads the text as, and whether it has a chat template; no values unless it is
        loaded here. Raises UsageError if the address has too many jobs."""
        loaded, status = self.backend.loader.loaded, self.backend.loader.status
        if loaded is None or status is None or status.target != target:
            return {"count": None}
        prompt = await self.jobs.run(address, encode_prompt, loaded.tokenizer, text)
        return {"count": len(prompt.token_ids), "chat": bool(getattr(loaded.tokenizer, "chat_template", None))}

    def take(self, data: bytes) -> str:
        """Check the file of a recording and keep it. Returns its key. Raises UsageError if it is no recording, or too
        large. To be run as a job."""
        data = unpacked(data)
        check_file(data.decode("utf-8", "replace"), "it", MAX_RECORDING_CHARS)
        key = secrets.token_hex(16)
        self.shelf.put(key, checked(data))
        return key

    def _named(self, order: Mapping[str, Any]) -> Recording:
        """The recording that a browser names by its key, with the lane on its screen first. Raises UsageError."""
        return self.shelf.get(str(order.get("key"))).showing(str(order.get("lane")))

    async def model(self, asked: Asked) -> Events:
        """The line about the default model, until it is ready."""
        return (("model", json.dumps(line)) async for line in self._line())

    async def _followed(self, frames: Frames, asked: Asked) -> Events:
        """Frames, and the line about the chosen model whenever it changes."""
        catalogue, chosen, shown = self.catalogue, asked.settings.get("pair"), None
        pair = next((pair for pair in catalogue.runnable if pair.id == chosen), catalogue.default)
        async with aclosing(frames):
            async for text in frames:
                yield "", text
                if pair.lanes is None and (status := self.backend.loader.status) is not shown:
                    shown = status
                    yield "model", json.dumps(sentences.model_line(status, chosen=pair.target))
        yield "model", json.dumps(await asyncio.to_thread(self.model_now, pair.id))

    async def _line(self) -> AsyncGenerator[str, None]:
        """The status line of the default model, until it is ready, or another one that was being loaded."""
        loader, shown = self.backend.loader, ""
        if self._check is not None and self._check.found is None:
            yield sentences.model_line(None)
        await self.checked()
        default = self.catalogue.default
        if default.lanes is not None:
            servers = self.backend.of(default).loader
            yield sentences.model_line(servers.asking)
            yield sentences.model_line(await servers.ask())
            return
        loader.start(default.target)
        while True:
            status = loader.status
            if (line := sentences.model_line(status, chosen=self.catalogue.default.target)) != shown:
                shown = line
                yield line
            if status is not None and status.state != "loading":
                return
            await asyncio.sleep(MODEL_POLL_S)

    def model_now(self, pair_id: object) -> str:
        """The status line of the chosen pair: a race may have loaded another model, and servers are asked anew. May
        take seconds; not to be called in an event loop."""
        pair = self._pair(pair_id)
        if pair.lanes is not None:
            return sentences.model_line(asyncio.run(self.backend.of(pair).loader.ask()))
        return sentences.model_line(self.backend.loader.status, chosen=pair.target)

    def _pair(self, pair_id: object) -> Pair:
        with as_gradio_errors():
            return self.catalogue.pair(pair_id)


def _skipped(drawn: Sequence[Chart]) -> list[Any]:
    return [gr.skip()] * len(_drawn("", drawn, {}))


def _drawn(request: str, drawn: Sequence[Chart], switches: Mapping[str, Any]) -> tuple[Any, ...]:
    parts: list[Any] = [sentences.charts_of(request, switches)]
    for chart in drawn:
        words = sentences.chart_sentence(chart.sentence) + sentences.chart_table(chart.title, chart.table)
        parts += gr.update(visible=True), gr.update(value=chart.figure, visible=chart.figure is not None), words
    return tuple(parts)
