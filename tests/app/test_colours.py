"""One file holds the page's colours: the style sheets, Gradio's theme and plotly's figures all read it."""

from __future__ import annotations

import re

import pytest

from app.web.colours import COLOURS as BY_NAME
from tests.helpers.pageserver import ROOT

APP = ROOT / "app"
COLOURS = APP / "web" / "colours.py"
LITERAL = re.compile(r"(?<!&)#(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{6}|[0-9a-fA-F]{3,4})\b|\b(?:rgb|hsl)a?\((?=[\d.])")
FILES = sorted(path for suffix in ("py", "css", "js", "html") for path in APP.rglob(f"*.{suffix}") if path != COLOURS)


def test_every_colour_stands_once() -> None:
    """A colour in a second place, or under a second name, keeps its old value when the first one is changed."""
    found = {path.relative_to(APP): LITERAL.findall(path.read_text(encoding="utf-8")) for path in FILES}
    assert len(found) > 50 and not any(found.values()), found
    own = LITERAL.findall(COLOURS.read_text(encoding="utf-8").lower())
    assert sorted(own) == sorted(set(own)) != []


def test_every_variable_of_a_style_sheet_is_given_and_every_colour_is_used() -> None:
    """A misspelt var(--name) paints nothing, without a word; a colour that nobody reads misleads who changes it."""
    from app import web as race_view
    from app.page import theme
    from app.web import colours
    from app.web.player import player

    race, page = race_view.RACE_VIEW_CSS, theme.PAGE_CSS
    themed = page + theme.theme()._get_theme_css()
    assert _used(player.SHELL) <= _given(player.SHELL)
    assert _used(race) <= _given(race) and _used(page) <= _given(themed)
    code = "".join((APP / name).read_text(encoding="utf-8") for name in ("figures/charts.py", "page/theme.py"))
    assert [name for name in colours.COLOURS if name not in _used(race + page) and f'"{name}"' not in code] == []


def _used(css: str) -> set[str]:
    return set(re.findall(r"var\(--([\w-]+)\)", css))


def _given(css: str) -> set[str]:
    return set(re.findall(r"--([\w-]+):", css))


def _light(colour: list[float]) -> float:
    parts = [v / 255 / 12.92 if v <= 10 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in colour]
    return sum(part * share for part, share in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_a_cell_of_the_heat_map_can_be_read_in_every_colour(mode: str) -> None:
    """The strongest gains and losses would be the ones that nobody can read."""
    ink, paper, *tints = (
        list(bytes.fromhex(getattr(BY_NAME[name], mode)[1:])) for name in ("ink", "paper", "bonus", "rejected")
    )
    (most,) = re.findall(r"calc\((\d+)% \* var\(--heat\)\)", (APP / "web" / "yours" / "results.css").read_text())
    for tint in tints:
        for share in (0, int(most) / 200, int(most) / 100):
            back = [share * a + (1 - share) * b for a, b in zip(tint, paper, strict=True)]
            high, low = sorted((_light(ink), _light(back)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (tint, share)
