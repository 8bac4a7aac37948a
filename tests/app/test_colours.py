"""One file holds the page's colours: the style sheets, Gradio's theme and plotly's figures all read it."""

import re

from tests.helpers.pageserver import ROOT

APP = ROOT / "app"
COLOURS = APP / "web" / "colours.py"
LITERAL = re.compile(r"(?<!&)#(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{6}|[0-9a-fA-F]{3,4})\b|\b(?:rgb|hsl)a?\((?=[\d.])")
FILES = sorted(path for suffix in ("py", "css", "js", "html") for path in APP.rglob(f"*.{suffix}") if path != COLOURS)


def test_every_colour_stands_once() -> None:
    """A colour in a second place, or under a second name, keeps its old value when the first one is changed."""
    literals = {path.relative_to(APP): LITERAL.findall(path.read_text(encoding="utf-8")) for path in FILES}
    assert len(literals) > 50 and not any(literals.values()), literals
    own = LITERAL.findall(COLOURS.read_text(encoding="utf-8").lower())
    assert sorted(own) == sorted(set(own)) != []


def test_every_variable_of_a_style_sheet_is_given_and_every_colour_is_used() -> None:
    """A misspelt var(--name) paints nothing, without a word; a colour that nobody reads misleads who changes it."""
    from app import web as race_view
    from app.page import theme
    from app.web import colours
    from app.web.components import YOURS_CSS
    from app.web.player import player

    race, page = race_view.RACE_VIEW_CSS, theme.PAGE_CSS + YOURS_CSS
    themed = race + page + theme.theme()._get_theme_css()
    assert _used(player.SHELL) <= _given(player.SHELL)
    assert _used(race) <= _given(race) and _used(page) <= _given(themed)
    code = "".join((APP / name).read_text(encoding="utf-8") for name in ("figures/charts.py", "page/theme.py"))
    assert [name for name in colours.COLOURS if name not in _used(race + page) and f'"{name}"' not in code] == []


def _used(css: str) -> set[str]:
    return set(re.findall(r"var\(--([\w-]+)\)", css))


def _given(css: str) -> set[str]:
    return set(re.findall(r"--([\w-]+):", css))
