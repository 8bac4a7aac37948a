"""How the page looks: a theme of its own (colours, type, spacing, dark and light) and the style of everything around
the race."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from ..web.colours import BLUES, COLOURS, INKS, WHITE, variables

PAGE_CSS = variables(".gradio-container") + (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
HEAD = """<style>
@media (max-width: 640px) { .gradio-container .fillable { padding-left: 0 !important; padding-right: 0 !important; } }
@media (min-width: 2400px) { .gradio-container { zoom: 1.3; --zoom: 1.3; } }
@media (min-width: 3200px) { .gradio-container { zoom: 1.8; --zoom: 1.8; } }
@media (prefers-reduced-motion: reduce) {
  .gradio-container * { transition: none !important; animation: none !important; }
}
</style>"""
"""Rules for the whole page under a condition: in `launch(css=...)` Gradio would put `.gradio-container` before each of
them once more."""
INK, BLUE, PAPER = gr.themes.Color(*INKS, name="ink"), gr.themes.Color(*BLUES, name="blue"), COLOURS["paper"]


def theme() -> gr.themes.Base:
    """Paper and ink, one blue. The fonts ship with Gradio, in these two weights: nothing is fetched."""
    sans = (gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif")
    mono = (gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "monospace")
    return gr.themes.Base(
        primary_hue=BLUE,
        secondary_hue=BLUE,
        neutral_hue=INK,
        font=sans,
        font_mono=mono,
        radius_size=gr.themes.sizes.radius_sm,
        spacing_size=gr.themes.sizes.spacing_md,
    ).set(
        body_background_fill=COLOURS["page"].light,
        body_background_fill_dark=COLOURS["page"].dark,
        body_text_color="*neutral_900",
        body_text_color_dark="*neutral_100",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_400",
        background_fill_primary=PAPER.light,
        background_fill_primary_dark=PAPER.dark,
        background_fill_secondary="*neutral_100",
        background_fill_secondary_dark="*neutral_800",
        border_color_primary="*neutral_200",
        border_color_primary_dark="*neutral_800",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_border_width="0px",
        block_border_width_dark="0px",
        block_padding="0px",
        block_shadow="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_title_text_weight="700",
        block_info_text_size="14px",
        block_title_text_color="*neutral_900",
        block_title_text_color_dark="*neutral_100",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_400",
        input_background_fill=PAPER.light,
        input_background_fill_dark=PAPER.dark,
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_700",
        checkbox_border_color="*neutral_500",
        checkbox_border_color_dark="*neutral_400",
        input_border_color_focus="*primary_500",
        input_border_color_focus_dark="*primary_400",
        button_primary_background_fill="*primary_500",
        button_primary_background_fill_hover="*primary_600",
        button_primary_background_fill_dark="*primary_500",
        button_primary_background_fill_hover_dark="*primary_600",
        button_primary_text_color=WHITE,
        button_primary_text_color_dark=WHITE,
        button_secondary_background_fill="transparent",
        button_secondary_background_fill_dark="transparent",
        button_secondary_background_fill_hover="*neutral_100",
        button_secondary_background_fill_hover_dark="*neutral_800",
        button_secondary_border_color="*neutral_300",
        button_secondary_border_color_dark="*neutral_700",
        button_border_width="1px",
        slider_color="*primary_500",
        slider_color_dark="*primary_400",
    )
