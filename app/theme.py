"""How the page looks: a theme of its own (colours, type, spacing, dark and light) and the style of what surrounds the race."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

PAGE_CSS = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
HEAD = """<style>
@media (max-width: 640px) { .gradio-container .fillable { padding-left: 0 !important; padding-right: 0 !important; } }
@media (min-width: 2400px) { .gradio-container { zoom: 1.3; } }
@media (min-width: 3200px) { .gradio-container { zoom: 1.8; } }
@media (prefers-reduced-motion: reduce) { .gradio-container * { transition: none !important; animation: none !important; } }
</style>"""
"""Rules for the whole page under a condition: in `launch(css=...)` Gradio would put `.gradio-container` before each of them once more."""
INK = gr.themes.Color("#f7f6f3", "#efede8", "#e2dfd8", "#cbc7bd", "#9c988e", "#75736d", "#555c65", "#2f3740", "#20262d", "#12161b", "#0d1014", name="ink")
BLUE = gr.themes.Color("#eaf4fb", "#cfe6f6", "#a3cfee", "#6fb4e2", "#3c97d3", "#0072b2", "#00629a", "#004f7d", "#003e62", "#002c46", "#001c2e", name="blue")


def theme() -> gr.themes.Base:
    """Paper and ink, one blue. The fonts ship with Gradio, in these two weights: nothing is fetched."""
    sans = (gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif")
    mono = (gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "monospace")
    return gr.themes.Base(primary_hue=BLUE, secondary_hue=BLUE, neutral_hue=INK, font=sans, font_mono=mono, radius_size=gr.themes.sizes.radius_sm, spacing_size=gr.themes.sizes.spacing_md).set(
        body_background_fill="*neutral_50",
        body_background_fill_dark="*neutral_950",
        body_text_color="*neutral_900",
        body_text_color_dark="*neutral_100",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_400",
        background_fill_primary="white",
        background_fill_primary_dark="*neutral_900",
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
        block_title_text_color="*neutral_900",
        block_title_text_color_dark="*neutral_100",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_400",
        input_background_fill="white",
        input_background_fill_dark="*neutral_900",
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_700",
        input_border_color_focus="*primary_500",
        input_border_color_focus_dark="*primary_400",
        button_primary_background_fill="*primary_500",
        button_primary_background_fill_hover="*primary_600",
        button_primary_background_fill_dark="*primary_500",
        button_primary_background_fill_hover_dark="*primary_600",
        button_primary_text_color="white",
        button_primary_text_color_dark="white",
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
