"""The page: its components, how they are laid out, and which handler each event calls. Nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from . import texts
from .backend import TorchBackend
from .catalogue import Catalogue
from .charts import charts
from .checks import Check
from .controls import Control, controls
from .guarded_queue import guard
from .handlers import Handlers
from .no_uploads import NoUploads
from .quiet_log import shorten_gradios
from .race_view import RACE_VIEW_CSS, race_view
from .stream import first_frame
from .theme import HEAD, PAGE_CSS, theme

SPACE_PROXIES = "127.0.0.1,::1,10.0.0.0/8"
FOREVER: dict[str, Any] = {"concurrency_limit": None, "show_progress": "hidden"}
PRIVATE: dict[str, Any] = {**FOREVER, "api_visibility": "private", "preprocess": False}


def build(catalogue: Catalogue, backend: TorchBackend, check: Check | None = None) -> gr.Blocks:
    """The whole page, not yet served. Loads nothing. check: what finds out the rest beside it."""
    handlers = Handlers(catalogue, backend, check)
    preset = catalogue.presets[0]
    prompt_control, *settings = described = controls(catalogue)
    with gr.Blocks(title=texts.TITLE, analytics_enabled=False, fill_width=True) as page:
        with gr.Row(elem_id="page-top"):
            gr.HTML(texts.HEADER)
            model = gr.HTML(texts.model_line(backend.loader.status), elem_id="page-model")
        presets = _presets(catalogue)
        prompt = _component(prompt_control)
        with gr.Row(elem_id="page-go"):
            start = gr.Button("Race", variant="primary", elem_id="page-race-button")
            stop = gr.Button("Stop", elem_id="page-stop-button")
            expectation = gr.HTML(texts.preset_line(preset))
            more = gr.Button("Settings", elem_id="page-settings-button")
        race = race_view(first_frame(handlers.recorded), elem_id="race")
        with gr.Row(elem_id="page-cost"):
            dollars = gr.Number(2.5, label="Price of the machine, $ an hour", minimum=0, elem_id="page-dollars")
            cost = gr.HTML(texts.cost_line(None))
        with gr.Row(elem_id="page-charts", visible=False) as row:
            drawn = [part for chart in charts(()) for part in _chart(chart.title)]
        gr.HTML(texts.footer())
        panel, components = _settings(catalogue, settings)
        components.update(prompt=prompt, expectation=expectation)
        pair = components["pair"]

        result = [cost, row, *drawn]
        values = {control.name: components[control.name] for control in described}
        start.click(handlers.before, None, [cost, row], queue=False, **PRIVATE)
        held = start.click(
            handlers.race,
            inputs_kwargs=values,
            outputs=race,
            api_name="race",
            trigger_mode="once",
            preprocess=False,
            **FOREVER,
        )
        held.then(handlers.after, dollars, result, **PRIVATE).then(handlers.model_now, None, model, **PRIVATE)
        stop.click(handlers.stop, api_name="stop", queue=False, **FOREVER)
        more.click(lambda: gr.update(open=True), None, panel, queue=False, **PRIVATE)
        filled = [components[name] for name in handlers.preset(preset.id, catalogue.default.id)]
        for preset_id, button in presets.items():
            fill = _by_name(partial(handlers.preset, preset_id), components)
            button.click(fill, pair, filled, queue=False, **PRIVATE)
        chosen = [components[name] for name in handlers.pair(catalogue.default.id)]
        pair.change(_by_name(handlers.pair, components), pair, chosen, queue=False, **PRIVATE)
        dollars.change(handlers.cost, dollars, cost, **PRIVATE)
        page.load(handlers.model, None, model, **PRIVATE)
        if check is not None:
            page.load(handlers.offers, None, [pair, components["refused"]], queue=False, **PRIVATE)
        page.load(handlers.after, dollars, result, **PRIVATE)
        page.unload(handlers.leave)
    guard(page)
    return page


def launch(page: gr.Blocks, host: str | None, port: int | None) -> None:
    """Serve the page and return once it is up. Visitors never see a traceback: only a deliberate gr.Error has words for
    them."""
    if os.environ.get("SPACE_ID"):  # all visitors come through its proxy, which has an address of its inner network
        os.environ.setdefault("FORWARDED_ALLOW_IPS", SPACE_PROXIES)
    shorten_gradios()
    page.launch(
        server_name=host,
        server_port=port,
        theme=theme(),
        css=RACE_VIEW_CSS + PAGE_CSS,
        head=HEAD,
        show_error=False,
        run_history=False,
        footer_links=["api"],
        ssr_mode=False,
        app_kwargs={"middleware": [Middleware(NoUploads)]},
        prevent_thread_lock=True,
    )


def _presets(catalogue: Catalogue) -> dict[str, gr.Button]:
    """One button a preset, from predictable to not, between words that say so."""
    with gr.Row(elem_id="page-presets"):
        gr.HTML("<p>predictable</p>", elem_classes="page-scale")
        buttons = {preset.id: gr.Button(preset.name, size="sm") for preset in catalogue.presets}
        gr.HTML("<p>anyone's guess</p>", elem_classes="page-scale")
    return buttons


def _chart(title: str) -> tuple[gr.Plot, gr.HTML]:
    with gr.Column(min_width=340):
        gr.HTML(texts.chart_head(title))
        return gr.Plot(show_label=False, container=False), gr.HTML()


def _component(control: Control) -> Any:
    """The Gradio component of a control."""
    kind = getattr(gr, control.kind)
    return kind(value=control.default, label=control.label, info=control.help, **control.limits, **control.look)


def _settings(catalogue: Catalogue, settings: Sequence[Control]) -> tuple[gr.Sidebar, dict[str, Any]]:
    """The side panel: every setting with a sentence. Returns it and its components by name, with the pair's line."""
    components: dict[str, Any] = {}
    with gr.Sidebar(position="right", open=False, width=380, label="Settings", elem_id="page-panel") as panel:
        gr.HTML('<h2 class="page-panel-title">Settings</h2>')
        for control in settings:
            components[control.name] = _component(control)
            if control.name == "pair":
                components["pair_line"] = gr.HTML(texts.pair_line(catalogue.default))
        components["refused"] = gr.HTML(texts.refused(catalogue.offers, catalogue.note))
    return panel, components


def _by_name(handler: Callable[..., dict[str, Any]], components: Mapping[str, Any]) -> Callable[..., dict[Any, Any]]:
    """A handler's values by name, as Gradio takes them: by component."""

    def named(*arguments: Any) -> dict[Any, Any]:
        return {components[name]: value for name, value in handler(*arguments).items()}

    return named
