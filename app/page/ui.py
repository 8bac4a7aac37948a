"""The page: its components, how they are laid out, and which handler each event calls. Nothing else."""

import json
import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from ..catalogue.catalogue import Catalogue
from ..catalogue.hub import Check
from ..catalogue.machine import in_url
from ..figures.charts import charts
from ..figures.plots import Chart
from ..figures.why import why
from ..jobs.backend import TorchBackend
from ..jobs.process_memory import keep_from_collector
from ..jobs.server_races import ServersBackend
from ..web import RACE_VIEW_CSS
from ..web.components import YOURS_CSS, race_view
from . import sentences
from .controls import OF_THE_ENGINE, Control, controls
from .gate import Gate
from .gradio_faults import MAX_SESSIONS, answers, mend, mend_gradio
from .handlers import Handlers
from .programs import for_programs
from .routes import routes
from .theme import HEAD, PAGE_CSS, theme

SPACE_PROXIES = "127.0.0.1,::1,10.0.0.0/8"
# How long one thread may run Python while another waits for the interpreter. A race needs it several times a step;
# Python's default, 5 ms, is half a step.
SWITCH_S = 5e-4
SET_BY_PAIR = (*OF_THE_ENGINE, "chat", "prompt", "model", "expectation", "pair_line")
# A preset's sentence is about these: it disappears when the visitor changes one.
SETTLES = ("prompt", "pair", "drafter", "k", "temperature", "top_p", "seed", "rule")
# What a visitor brings, in the order of start.js.
BROUGHT = ("prompt", "chat", "drafter", "k", "temperature", "top_p", "seed", "max_new_tokens", "rule", "expectation")
START_JS = (Path(__file__).parent / "start.js").read_text(encoding="utf-8")
# What the controls are set to, for what a tab is about to run (app/web/board/stream.js); that the owner has named a
# model or servers, that a race's settings are filled in, or an example's, or what a chosen model brings (asked for and
# there). The model's line comes in the stream.
SETTINGS_JS = """(...values) => { document.dispatchEvent(new CustomEvent("photofinish:settings", { detail:
  Object.fromEntries(%s.map((name, i) => [name, values[i]])) })); }"""
NAMED_JS, FILLED_JS, CHOSEN_JS, PAIRING_JS, PAIRED_JS = (
    f'(...values) => {{ document.dispatchEvent(new CustomEvent("photofinish:{name}")); return values.slice(0, 2); }}'
    for name in ("named", "filled", "chosen", "pairing", "paired")
)
MODEL_JS = """document.addEventListener("photofinish:model", ({ detail }) => { props.value = detail; });
document.dispatchEvent(new CustomEvent("photofinish:mounted"));"""
# The prompt and the settings of a race that was opened from its file, or in which a finding shows: see `fillIn` in
# app/web/board/page.js, which answers the event at once.
FILL_JS = f"""() => {{ const asked = {{}};
  document.dispatchEvent(new CustomEvent("photofinish:fill", {{ detail: asked }}));
  return {json.dumps(BROUGHT)}.map(name => asked.settings[name] ?? ''); }}"""
# Of the function for programs, which Gradio only lists; programs.py answers its calls.
NEVER_RUN: dict[str, Any] = {"queue": False, "preprocess": False}
PRIVATE: dict[str, Any] = {
    "api_visibility": "private", "preprocess": False, "queue": False, "concurrency_limit": None,
    "show_progress": "hidden",
}  # fmt: skip


def build(
    catalogue: Catalogue,
    backend: TorchBackend | ServersBackend,
    check: Check | None = None,
    own: Collection[str] | None = None,
) -> gr.Blocks:
    """The whole page, not yet served. Loads nothing. check: finds out in the background what else can run. own: of
    a page that only its owner may use, the names that it is served as; the owner may name models and servers."""
    handlers, limits = Handlers(catalogue, backend, check, own is not None), catalogue.limits
    preset = catalogue.presets[0]
    prompt_control, *settings = described = controls(catalogue)
    with gr.Blocks(title=sentences.TITLE, analytics_enabled=False, fill_width=True) as page:
        with gr.Row(elem_id="page-top"):
            gr.HTML(sentences.HEADER)
            model = gr.HTML(sentences.model_line(backend.loader.status), elem_id="page-model", js_on_load=MODEL_JS)
            if os.environ.get("SPACE_ID"):
                gr.DuplicateButton(size="sm", elem_id="page-duplicate")
        with gr.Row(elem_id="page-go"):
            prompt = _component(prompt_control)
            # Stop comes before Race, so that a rule can hide Race while Stop is enabled
            gr.Button("Stop", interactive=False, elem_id="page-stop-button")
            gr.Button("Race", variant="primary", elem_id="page-race-button")
        with gr.Row(elem_id="page-presets"):
            with gr.Row(elem_id="page-examples"):
                gr.HTML("<p>Examples</p>", elem_classes="page-scale")
                presets = {
                    one.id: gr.Button(one.name, size="sm", elem_id=f"page-example-{one.id}")
                    for one in catalogue.presets
                }
                gr.Button("More", size="sm", elem_id="page-more-button")
            expectation = gr.HTML(sentences.preset_line(preset, catalogue.default), elem_id="page-expectation")
            gr.Button("Settings", size="sm", elem_id="page-settings-button")
        allowed = {"own": own is not None, "studies": limits.studies}
        race = race_view(handlers.first_frame, limits.max_new_tokens, allowed, elem_id="race")
        drawn = _figures("page-charts", charts(None))
        reasons = _figures("page-why", why(None))
        gr.HTML(sentences.footer())
        components = _settings(catalogue, settings)
        components.update(prompt=prompt, expectation=expectation, race=race, model=model)
        pair = components["pair"]

        values = {control.name: components[control.name] for control in described}
        race.submit(None, [*values.values()], None, js=SETTINGS_JS % json.dumps([*values]), **PRIVATE)
        gr.on([], for_programs, inputs_kwargs=values, outputs=gr.JSON(visible=False), api_name="race", **NEVER_RUN)
        brought = _named(BROUGHT, components)
        ours = _named(("drafter", "k", "chat", "width", "audit", "more", "expectation"), components)
        fitted = handlers.fitted, [pair, components["drafter"], components["chat"]], ours
        # extras ask anew in the middle
        race.select(handlers.figures, None, [*drawn, *reasons], trigger_mode="multiple", **PRIVATE)
        set_by_preset = _named([*handlers.preset(preset.id, catalogue.default.id)], components)
        for preset_id, button in presets.items():
            fill = partial(handlers.preset, preset_id)
            click = button.click(_by_name(fill, components), pair, set_by_preset, **PRIVATE)
            click.success(None, None, None, js=CHOSEN_JS, **PRIVATE)
        by_pair = [pair, prompt], _named(SET_BY_PAIR, components)
        paired = pair.change(_by_name(handlers.pair, components), *by_pair, js=PAIRING_JS, **PRIVATE)
        paired.success(None, None, None, js=PAIRED_JS, **PRIVATE)
        chosen = _named(("pair", "drafter"), components)
        components["drafter"].change(handlers.drafter_line, chosen, components["pair_line"], **PRIVATE)
        for name in SETTLES:
            components[name].input(None, None, expectation, js="() => ''", **PRIVATE)
        page.load(None, brought, brought, js=START_JS, **PRIVATE).success(*fitted, **PRIVATE)
        filled = race.edit(None, None, brought, js=FILL_JS, **PRIVATE)
        filled.success(*fitted, **PRIVATE).success(None, None, None, js=FILLED_JS, **PRIVATE)
        if handlers.doors is not None:
            choose = _by_name(handlers.door, components), by_pair[0], _named(("pair", *SET_BY_PAIR), components)
            race.apply(*choose, **PRIVATE).then(None, None, None, js=NAMED_JS, **PRIVATE)
        if check is not None or handlers.doors is not None:
            page.load(handlers.offers, None, [pair, components["refused"]], **PRIVATE)
    mend(page)
    number = next(number for number, function in page.fns.items() if function.api_name == "race")
    page.own_routes, page.own_names, page.ends = routes(handlers, list(values), number), own, handlers
    return page


def launch(page: gr.Blocks, host: str, port: int | None) -> None:
    """Serve the page and return once it is up. Visitors never see a traceback: only a deliberate gr.Error has words for
    them."""
    if os.environ.get("SPACE_ID"):  # all visitors come through its proxy, which has an address of its inner network
        os.environ.setdefault("FORWARDED_ALLOW_IPS", SPACE_PROXIES)
    sys.setswitchinterval(SWITCH_S)
    mend_gradio()
    page.launch(
        server_name=in_url(host),
        server_port=port,
        theme=theme(),
        css=RACE_VIEW_CSS + YOURS_CSS + PAGE_CSS,
        head=HEAD,
        show_error=False,
        run_history=False,
        footer_links=["api"],
        ssr_mode=False,
        state_session_capacity=MAX_SESSIONS,
        app_kwargs={
            "middleware": [Middleware(Gate, page.own_names)],
            "routes": page.own_routes,
            "exception_handlers": answers(page),
        },
        prevent_thread_lock=True,
    )
    # uvicorn warns of each malformed request in a line or two, with which a caller could fill the disk
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    keep_from_collector()


def _figures(place: str, drawn: Sequence[Chart]) -> list[Any]:
    """A row of places for the charts; the first place says which race they show. The others are made when they are
    first drawn: they would be a third of what a browser makes of the page."""
    with gr.Row(elem_id=place, elem_classes="page-figures"):
        parts: list[Any] = [gr.HTML(elem_classes="page-whose")]
        for chart in drawn:
            with gr.Column(min_width=340, visible=False) as column:
                gr.HTML(sentences.chart_head(chart.title))
                parts += column, gr.Plot(show_label=False, container=False), gr.HTML()
    return parts


def _component(control: Control) -> Any:
    """The Gradio component of a control."""
    return getattr(gr, control.kind)(value=control.default, label=control.label, info=control.help, **control.options)


def _settings(catalogue: Catalogue, settings: Sequence[Control]) -> dict[str, Any]:
    """The side panel: every setting with a sentence. Returns its components by name, with the pair's line."""
    components: dict[str, Any] = {}
    with gr.Sidebar(position="right", open=False, width=380, label="Settings", elem_id="page-panel"):
        gr.HTML(sentences.PANEL_HEAD)
        for control in (setting for setting in settings if not setting.advanced):
            components[control.name] = _component(control)
            if control.name == "drafter":
                components["pair_line"] = gr.HTML(
                    sentences.pair_line(catalogue.like(catalogue.default, control.default))
                )
        with gr.Accordion("Advanced", open=False, elem_id="page-advanced"):
            components.update({control.name: _component(control) for control in settings if control.advanced})
        components["refused"] = gr.HTML(sentences.refused(catalogue.offers, catalogue.note))
    return components


def _named(names: Sequence[str], components: Mapping[str, Any]) -> list[Any]:
    return [components[name] for name in names]


def _by_name(handler: Callable[..., dict[str, Any]], components: Mapping[str, Any]) -> Callable[..., dict[Any, Any]]:
    """A handler's values by name, as Gradio takes them: by component."""

    @wraps(handler)  # Gradio reads from its hints whether it takes the event
    def named(*values: Any) -> dict[Any, Any]:
        return {components[name]: given for name, given in handler(*values).items()}

    return named
