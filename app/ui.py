"""The page: its components, how they are laid out, and which handler each event calls. Nothing else."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import gradio as gr

from engine.spec import MAX_AUTO_K, MAX_WIDTH

from . import words
from .backend import TorchBackend
from .catalogue import Catalogue
from .charts import charts
from .guarded_queue import guard
from .handlers import Handlers
from .order import MAX_NEW_TOKENS, MAX_PROMPT_CHARS
from .race_view import RACE_VIEW_CSS, race_view
from .stream import first_frame
from .theme import HEAD, PAGE_CSS, theme

LENGTHS = ["auto", *map(str, range(1, MAX_AUTO_K + 1))]
WIDTHS = ["auto", "2", "4", "8", "16", "32", str(MAX_WIDTH)]
SPACE_PROXIES = "127.0.0.1,::1,10.0.0.0/8"
FOREVER: dict[str, Any] = {"concurrency_limit": None, "show_progress": "hidden"}
PRIVATE: dict[str, Any] = {**FOREVER, "api_visibility": "private", "preprocess": False}


@dataclass(frozen=True)
class Controls:
    """The values of an order, in the order of `read_order`."""

    prompt: gr.Textbox
    pair: gr.Radio
    drafter: gr.Dropdown
    k: gr.Dropdown
    temperature: gr.Slider
    top_p: gr.Slider
    seed: gr.Number
    max_new_tokens: gr.Slider
    width: gr.Dropdown
    audit: gr.Checkbox
    chat: gr.Checkbox

    def all(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]


def build(catalogue: Catalogue, backend: TorchBackend) -> gr.Blocks:
    """The whole page, not yet served. Loads nothing."""
    handlers = Handlers(catalogue, backend)
    preset = catalogue.presets[0]
    with gr.Blocks(title=words.TITLE, analytics_enabled=False, fill_width=True) as page:
        with gr.Row(elem_id="page-top"):
            gr.HTML(words.HEADER)
            model = gr.HTML(words.model_line(backend.loader.status), elem_id="page-model")
        presets = _presets(catalogue)
        prompt = gr.Textbox(preset.prompt, lines=4, max_lines=4, max_length=MAX_PROMPT_CHARS, label="Prompt", show_label=False, placeholder="A prompt, used byte for byte", elem_id="page-prompt")
        with gr.Row(elem_id="page-go"):
            start = gr.Button("Race", variant="primary", elem_id="page-race-button")
            stop = gr.Button("Stop", elem_id="page-stop-button")
            expectation = gr.HTML(words.preset_line(preset))
            more = gr.Button("Settings", elem_id="page-settings-button")
        race = race_view(first_frame(handlers.recorded), elem_id="race")
        with gr.Row(elem_id="page-cost"):
            dollars = gr.Number(2.5, label="Price of the machine, $ an hour", minimum=0, elem_id="page-dollars")
            cost = gr.HTML(words.cost_line(None))
        with gr.Row(elem_id="page-charts", visible=False) as row:
            drawn = [part for chart in charts(()) for part in _chart(chart.title)]
        gr.HTML(words.footer())
        panel, controls, pair_hint = _settings(catalogue, prompt)

        result = [cost, row, *drawn]
        start.click(handlers.before, None, [cost, row], queue=False, **PRIVATE)
        held = start.click(handlers.race, controls.all(), race, api_name="race", trigger_mode="once", preprocess=False, **FOREVER)
        held.then(handlers.after, dollars, result, **PRIVATE).then(handlers.model_now, None, model, **PRIVATE)
        stop.click(handlers.stop, api_name="stop", queue=False, **FOREVER)
        filled = [prompt, expectation, controls.drafter, controls.k, controls.temperature, controls.top_p, controls.seed, controls.max_new_tokens]
        more.click(lambda: gr.update(open=True), None, panel, queue=False, **PRIVATE)
        for preset_id, button in presets.items():
            button.click(partial(handlers.preset, preset_id), controls.pair, filled, queue=False, **PRIVATE)
        controls.pair.change(handlers.pair, controls.pair, [pair_hint, controls.drafter, controls.k], queue=False, **PRIVATE)
        dollars.change(handlers.cost, dollars, cost, **PRIVATE)
        page.load(handlers.model, None, model, **PRIVATE)
        page.load(handlers.after, dollars, result, **PRIVATE)
        page.unload(handlers.leave)
    guard(page)
    return page


def launch(page: gr.Blocks, host: str | None, port: int | None) -> None:
    """Serve the page and return once it is up. Visitors never see a traceback: only a deliberate gr.Error has words for them."""
    if os.environ.get("SPACE_ID"):  # all visitors come through its proxy, which has an address of its inner network
        os.environ.setdefault("FORWARDED_ALLOW_IPS", SPACE_PROXIES)
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
        max_file_size="1mb",
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
        gr.HTML(words.chart_head(title))
        return gr.Plot(show_label=False, container=False), gr.HTML()


def _settings(catalogue: Catalogue, prompt: gr.Textbox) -> tuple[gr.Sidebar, Controls, gr.HTML]:
    """The side panel: every setting with a sentence. Returns it, all controls, and the line about the chosen pair."""
    pair, preset = catalogue.default, catalogue.presets[0]
    drafter_name, draft_length = catalogue.drafting(preset, pair)
    with gr.Sidebar(position="right", open=False, width=380, label="Settings", elem_id="page-panel") as panel:
        gr.HTML('<h2 class="page-panel-title">Settings</h2>')
        pairs = gr.Radio([(each.title, each.id) for each in catalogue.runnable], value=pair.id, label="Target and drafter", info="What is raced: the model that decides, and what guesses for it.")
        hint = gr.HTML(words.pair_line(pair))
        drafter = gr.Dropdown(
            words.drafter_choices(catalogue.drafters(pair)),
            value=drafter_name,
            allow_custom_value=True,
            label="Drafter",
            info="What proposes tokens. It changes speed, never tokens. synthetic:0.8 drafts right 80 times in 100, to study the hardware.",
        )
        k = gr.Dropdown(LENGTHS, value=str(draft_length), label="Draft length k", info="Tokens a draft may have. More can win more, and waste more. auto: as many as pay, step by step.")
        temperature = gr.Slider(0, 2, preset.temperature, step=0.05, label="Temperature", info="0 is greedy. Above, tokens are sampled: the same ones in both lanes, for the same seed.")
        top_p = gr.Slider(0.05, 1, 1, step=0.05, label="Top-p", info="Sample within the likeliest tokens that hold this share; 1 is off.")
        seed = gr.Number(preset.seed, precision=0, minimum=0, label="Seed", info="Decides all noise. The same seed gives the same text.")
        length = gr.Slider(16, MAX_NEW_TOKENS, preset.max_new_tokens, step=16, label="Length", info="Tokens after which every lane ends at the latest.")
        width = gr.Dropdown(WIDTHS, value="auto", label="Width", info="Rows of every exact step, above k. auto: the narrowest that gives the same bits.")
        audit = gr.Checkbox(True, label="Audit", info="Compare all bits of all rows of logits, not the tokens alone.")
        chat = gr.Checkbox(False, label="Chat template", info="Send the prompt as one message, for models that were tuned to chat.")
        gr.HTML(words.refused(catalogue.offers))
    return panel, Controls(prompt, pairs, drafter, k, temperature, top_p, seed, length, width, audit, chat), hint
