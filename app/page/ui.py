"""The page: its components, how they are laid out, and which handler each event calls. Nothing else."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
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
from ..jobs.logs import RUNNING, take_over
from ..jobs.process_memory import keep_from_collector
from ..jobs.server_races import ServersBackend
from ..web import RACE_VIEW_CSS
from ..web.components import DIALOGS_CSS, checkup_view, door_view, load_view, race_view, study_view
from . import sentences
from .controls import OF_THE_ENGINE, Control, controls
from .doors import OWN, SERVERS
from .gate import Gate
from .gradio_errors import answers
from .gradio_faults import MAX_SESSIONS, mend, mend_gradio
from .handlers import Handlers
from .programs import for_programs
from .routes import routes
from .theme import HEAD, NO_CHECK_UPS, PAGE_CSS, theme
from .upkeep import Upkeep

SPACE_PROXIES = "127.0.0.1,::1,10.0.0.0/8"
# How long one thread may run Python while another waits for the interpreter. A race needs it several times a step;
# Python's default, 5 ms, is half a step.
SWITCH_S = 5e-4
SET_BY_PRESET = (
    *("expectation", "prompt", "chat", "drafter", "k"),
    *("temperature", "top_p", "seed", "max_new_tokens", "rule", "more", "width", "audit"),
)
SET_BY_PAIR = (*OF_THE_ENGINE, "chat", "prompt", "model", "expectation", "pair_line")
# A preset's sentence is about these: it disappears when the visitor changes one.
SETTLES = ("prompt", "pair", "drafter", "k", "temperature", "top_p", "seed", "rule")
NOT_BROUGHT = ("expectation", "more", "width", "audit")
BROUGHT = (*(name for name in SET_BY_PRESET if name not in NOT_BROUGHT), "expectation")
START_JS = (Path(__file__).parent / "start.js").read_text(encoding="utf-8")
RACE_JS = '() => { document.getElementById("page-race-button").click(); }'
# What the controls are set to, for what a tab is about to run, and that the owner has named a model; see
# app/web/board/stream.js. The model's line comes in the stream.
SETTINGS_JS = """(...values) => { document.dispatchEvent(new CustomEvent("photofinish:settings", { detail:
  Object.fromEntries(%s.map((name, i) => [name, values[i]])) })); }"""
NAMED_JS = '() => { document.dispatchEvent(new CustomEvent("photofinish:named")); }'
MODEL_JS = """document.addEventListener("photofinish:model", ({ detail }) => { props.value = detail; });
document.dispatchEvent(new CustomEvent("photofinish:mounted"));"""
# The prompt and the settings of a race that was opened from its file, or in which a finding shows; see `openFile` in
# app/web/files/files.js and `race` in app/web/dialogs/checkup_view.js.
OPENED_JS = f"() => {json.dumps(BROUGHT)}.map(name => window.photofinish.raced[name] ?? '')"
# Of the function for programs, which Gradio only lists; programs.py answers its calls.
NEVER_RUN: dict[str, Any] = {"queue": False, "preprocess": False}
PRIVATE: dict[str, Any] = {
    "api_visibility": "private",
    "preprocess": False,
    "queue": False,
    "concurrency_limit": None,
    "show_progress": "hidden",
}


def build(
    catalogue: Catalogue,
    backend: TorchBackend | ServersBackend,
    check: Check | None = None,
    under_load: bool = False,
    own: Collection[str] | None = None,
) -> gr.Blocks:
    """The whole page, not yet served. Loads nothing. check: finds out in the background what else can run. under_load:
    whether visitors may put its servers under load. own: of a page that only its owner may use, the names that it is
    served as; the owner may name models and servers."""
    handlers, limits = Handlers(catalogue, backend, check, under_load, own is not None), catalogue.limits
    preset = catalogue.presets[0]
    prompt_control, *settings = described = controls(catalogue)
    with gr.Blocks(title=sentences.TITLE, analytics_enabled=False, fill_width=True) as page:
        with gr.Row(elem_id="page-top"):
            gr.HTML(sentences.header(under_load, limits.studies))
            model = gr.HTML(sentences.model_line(backend.loader.status), elem_id="page-model", js_on_load=MODEL_JS)
            if os.environ.get("SPACE_ID"):
                gr.DuplicateButton(size="sm", elem_id="page-duplicate")
        with gr.Row(elem_id="page-presets"):
            with gr.Row(elem_id="page-examples"):
                gr.HTML("<p>Examples</p>", elem_classes="page-scale")
                presets = {
                    one.id: gr.Button(one.name, size="sm", elem_id=f"page-example-{one.id}")
                    for one in catalogue.presets
                }
            expectation = gr.HTML(sentences.preset_line(preset, catalogue.default), elem_id="page-expectation")
            gr.Button("Settings", size="sm", elem_id="page-settings-button")
        with gr.Row(elem_id="page-go"):
            prompt = _component(prompt_control)
            gr.Button("Race", variant="primary", elem_id="page-race-button")
            gr.Button("Stop", interactive=False, elem_id="page-stop-button")
        race = race_view(handlers.first_frame, elem_id="race")
        drawn = _figures("page-charts", charts(None))
        reasons = _figures("page-why", why(None))
        if limits.studies:
            study_view(limits.max_new_tokens, elem_id="page-study")
        checkup = checkup_view(elem_id="page-checkup") if limits.studies else None
        separate = not backend.same_device if isinstance(backend, ServersBackend) else None
        if handlers.loads is not None:
            load_view(separate, limits.max_new_tokens, elem_id="page-load")
        doors = {name: door_view(name, own is not None, elem_id=f"page-{name}") for name in (OWN, SERVERS)}
        gr.HTML(sentences.footer())
        components = _settings(catalogue, settings)
        components.update(prompt=prompt, expectation=expectation, race=race, model=model)
        pair = components["pair"]

        values = {control.name: components[control.name] for control in described}
        race.submit(None, [*values.values()], None, js=SETTINGS_JS % json.dumps([*values]), **PRIVATE)
        gr.on([], for_programs, inputs_kwargs=values, outputs=gr.JSON(visible=False), api_name="race", **NEVER_RUN)
        brought = _named(BROUGHT, components)
        ours = _named(("drafter", "k", "chat", "width", "audit", "more"), components)
        fitted = handlers.fitted, [pair, components["drafter"], components["chat"]], ours
        if checkup is not None:
            filled = checkup.edit(None, None, brought, js=OPENED_JS, **PRIVATE)
            filled.success(*fitted, **PRIVATE).success(None, None, None, js=RACE_JS, **PRIVATE)
        # extras ask anew in the middle
        race.select(handlers.figures, None, [*drawn, *reasons], trigger_mode="multiple", **PRIVATE)
        for preset_id, button in presets.items():
            fill = partial(handlers.preset, preset_id)
            button.click(_by_name(fill, components), pair, _named(SET_BY_PRESET, components), **PRIVATE)
        by_pair = [pair, prompt], _named(SET_BY_PAIR, components)
        pair.change(_by_name(handlers.pair, components), *by_pair, **PRIVATE)
        chosen = _named(("pair", "drafter"), components)
        components["drafter"].change(handlers.drafter_line, chosen, components["pair_line"], **PRIVATE)
        for name in SETTLES:
            components[name].input(None, None, expectation, js="() => ''", **PRIVATE)
        came = page.load(None, brought, brought, js=START_JS, **PRIVATE)
        came.success(*fitted, **PRIVATE)
        opened = race.edit(None, None, brought, js=OPENED_JS, **PRIVATE)
        opened.success(*fitted, **PRIVATE)
        if handlers.doors is not None:
            set_by_door = _named(("pair", *SET_BY_PAIR), components)
            for name, door in doors.items():
                choose = _by_name(partial(handlers.door, name), components), by_pair[0], set_by_door
                door.submit(*choose, **PRIVATE).success(None, None, None, js=RACE_JS, **PRIVATE)
                door.select(*choose, **PRIVATE).success(None, None, None, js=NAMED_JS, **PRIVATE)
        if check is not None or handlers.doors is not None:
            page.load(handlers.offers, None, [pair, components["refused"]], **PRIVATE)
    mend(page)
    number = next(number for number, function in page.fns.items() if function.api_name == "race")
    page.own_routes, page.own_names, page.ends = routes(handlers, list(values), number), own, handlers
    return page


def launch(page: gr.Blocks, host: str, port: int | None, json_log: bool = False) -> None:
    """Serve the page and return once it is up. Visitors never see a traceback: only a deliberate gr.Error has words for
    them. json_log: print nothing but the log, see `set_up` in app/jobs/logs.py."""
    if os.environ.get("SPACE_ID"):  # all visitors come through its proxy, which has an address of its inner network
        os.environ.setdefault("FORWARDED_ALLOW_IPS", SPACE_PROXIES)
    sys.setswitchinterval(SWITCH_S)
    mend_gradio()
    page.launch(
        server_name=in_url(host),
        server_port=port,
        theme=theme(),
        css=RACE_VIEW_CSS + DIALOGS_CSS + PAGE_CSS,
        head=HEAD if page.ends.catalogue.limits.studies else HEAD + NO_CHECK_UPS,
        show_error=False,
        run_history=False,
        footer_links=["api"],
        ssr_mode=False,
        state_session_capacity=MAX_SESSIONS,
        app_kwargs={
            "middleware": [Middleware(Upkeep, page, page.ends.is_idle), Middleware(Gate, page.own_names)],
            "routes": page.own_routes,
            "exception_handlers": answers(page),
        },
        prevent_thread_lock=True,
        quiet=json_log,
    )
    if json_log:
        take_over("uvicorn", "uvicorn.error")
        RUNNING.info("the page is up on port %d", page.server_port)
    # uvicorn warns of each malformed request in a line or two, with which a caller could fill the disk
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    keep_from_collector()


def _figures(place: str, drawn: Sequence[Chart]) -> list[Any]:
    """A row of places for the charts; the first place says which race they show."""
    with gr.Row(elem_id=place, elem_classes="page-figures"):
        parts: list[Any] = [gr.HTML(elem_classes="page-whose")]
        for chart in drawn:
            with gr.Column(min_width=340):
                gr.HTML(sentences.chart_head(chart.title))
                parts += gr.Plot(show_label=False, container=False), gr.HTML()
    return parts


def _component(control: Control) -> Any:
    """The Gradio component of a control."""
    kind = getattr(gr, control.kind)
    return kind(value=control.default, label=control.label, info=control.help, **control.options)


def _settings(catalogue: Catalogue, settings: Sequence[Control]) -> dict[str, Any]:
    """The side panel: every setting with a sentence. Returns its components by name, with the pair's line. The page's
    own program opens and closes it."""
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

    def named(*values: Any) -> dict[Any, Any]:
        return {components[name]: given for name, given in handler(*values).items()}

    return named
