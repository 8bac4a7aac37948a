"""How the page looks: a theme of its own (colours, type, spacing, dark and light) and the style of everything around
the race."""

from pathlib import Path

import gradio as gr

from ..web import PRINT_CSS
from ..web.colours import BLUES, COLOURS, INKS, variables
from .sentences import SLOGAN

PAGE_CSS = variables(".gradio-container") + (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
FIRST = (Path(__file__).parent / "first.html").read_text(encoding="utf-8").replace("@@", SLOGAN)
# Rules for the whole page under a condition: in `launch(css=...)` Gradio would put `.gradio-container` before each of
# them once more.
HEAD = (
    f"<style>{PRINT_CSS}</style>"
    + """<style>
@media (max-width: 640px) { .gradio-container .fillable { padding-left: 0 !important; padding-right: 0 !important; } }
@media (max-width: 1480px) {
  html[data-settings] :is(#page-stage-button, #page-presets > :not(button):not(#page-examples)) { display: none; }
  html[data-settings] #page-examples { padding-right: 28px;
    mask-image: linear-gradient(90deg, currentcolor calc(100% - 28px), transparent); }
}
@media (max-width: 760px) {
  html:not([data-more]) :is(.page-header button:not(#page-menu-button), #page-presets:not(:has(.page-instead))) {
    display: none !important; }
}
@media (min-width: 2400px) { .gradio-container { zoom: 1.3; --zoom: 1.3; } }
@media (min-width: 3200px) { .gradio-container { zoom: 1.8; --zoom: 1.8; } }
@media (prefers-reduced-motion: reduce) {
  .gradio-container * { transition: none !important; animation: none !important; }
}
</style>"""
)

LIGHT_DARK = {
    "body_background_fill": COLOURS["page"],
    "body_text_color": ("*neutral_900", "*neutral_100"),
    "body_text_color_subdued": ("*neutral_600", "*neutral_400"),
    "background_fill_primary": COLOURS["paper"],
    "background_fill_secondary": ("*neutral_100", "*neutral_800"),
    "border_color_primary": ("*neutral_200", "*neutral_800"),
    "block_background_fill": ("transparent", "transparent"),
    "block_border_width": ("0px", "0px"),
    "block_label_background_fill": ("transparent", "transparent"),
    "block_title_text_color": ("*neutral_900", "*neutral_100"),
    "input_background_fill": COLOURS["paper"],
    "input_border_color": ("*neutral_300", "*neutral_700"),
    "checkbox_border_color": ("*neutral_500", "*neutral_400"),
    "input_border_color_focus": ("*primary_500", "*primary_400"),
    "button_primary_background_fill": ("*primary_500", "*primary_500"),
    "button_primary_background_fill_hover": ("*primary_600", "*primary_600"),
    "button_secondary_background_fill": ("transparent", "transparent"),
    "button_secondary_background_fill_hover": ("*neutral_100", "*neutral_800"),
    "button_secondary_border_color": ("*neutral_300", "*neutral_700"),
    "slider_color": ("*primary_500", "*primary_400"),
}  # Gradio's variable -> its values on a light page and on a dark one


def theme() -> gr.themes.Base:
    """Paper and ink, one blue. The fonts ship with Gradio, in these two weights: nothing is fetched."""
    ink, blue = gr.themes.Color(*INKS, name="ink"), gr.themes.Color(*BLUES, name="blue")
    return gr.themes.Base(
        primary_hue=blue,
        secondary_hue=blue,
        neutral_hue=ink,
        font=(gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif"),
        font_mono=(gr.themes.LocalFont("IBM Plex Mono", weights=(400, 700)), "ui-monospace", "monospace"),
        radius_size=gr.themes.sizes.radius_sm,
        spacing_size=gr.themes.sizes.spacing_md,
    ).set(
        **{name: light for name, (light, _) in LIGHT_DARK.items()},
        **{f"{name}_dark": dark for name, (_, dark) in LIGHT_DARK.items()},
        block_padding="0px",
        block_title_text_weight="700",
        block_info_text_size="14px",
        button_border_width="1px",
    )
