"""One file holds the page's colours: the style sheets, Gradio's theme and plotly's figures all read it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.colours import BLUE
from tests.helpers.pageserver import ROOT

APP = ROOT / "app"
COLOURS = APP / "colours.py"
LITERAL = re.compile(r"(?<!&)#(?:[0-9a-fA-F]{8}|[0-9a-fA-F]{6}|[0-9a-fA-F]{3,4})\b|\b(?:rgb|hsl)a?\((?=[\d.])")
FILES = sorted(path for suffix in ("py", "css", "js", "html") for path in APP.rglob(f"*.{suffix}") if path != COLOURS)
REPAINTED = """
import json, pathlib, random, sys, types
source = pathlib.Path("app/colours.py").read_text(encoding="utf-8")
assert source.count(sys.argv[1]) == 1
module = types.ModuleType("app.colours")
sys.modules["app.colours"] = module
exec(source.replace(sys.argv[1], "#abcdef"), module.__dict__)
from app import charts, race_view, theme
from engine.events import LaneEvent, Step
from engine.recordings.recording import events_of
from tests.helpers.races import fixed_race, with_tables
race = with_tables(fixed_race(), random.Random(1))
step = Step(0, 0, (7, 8), 1, (7, 9), 0.01, 0.02, 4)
drawn = charts.charts([LaneEvent("speculative", 0.03, step), LaneEvent("plain", 0.03, step)])
drawn = [*drawn[:3], charts.speed_over_k(events_of(race), race)]
figures = [[chart.figure.to_plotly_json()["data"], str(chart.figure.layout.font.color)] for chart in drawn]
page = {"race": race_view.RACE_VIEW_CSS, "page": theme.PAGE_CSS, "theme": theme.theme()._get_theme_css()}
print(json.dumps({**page, "plotly": json.dumps(figures, default=str)}))
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(APP)))
def test_no_colour_stands_elsewhere(path: Path) -> None:
    """A colour written out in a second place keeps its old value when the first one is changed."""
    assert LITERAL.findall(path.read_text(encoding="utf-8")) == []


def test_no_value_stands_twice_in_the_file_itself() -> None:
    """Two names for one colour must share its value, or a change reaches only one of them."""
    found = LITERAL.findall(COLOURS.read_text(encoding="utf-8").lower())
    assert sorted(found) == sorted(set(found)) != []


@pytest.mark.slow
def test_one_change_reaches_style_sheets_theme_and_figures() -> None:
    """The blue of accepted tokens, of buttons and of plotly's bars is one blue."""
    command = [sys.executable, "-c", REPAINTED, BLUE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for where, text in json.loads(done.stdout).items():
        assert "#abcdef" in text.lower() and BLUE.lower() not in text.lower(), where


def test_every_variable_of_a_style_sheet_is_given_and_every_colour_is_used() -> None:
    """A misspelt var(--name) paints nothing, without a word; a colour that nobody reads misleads who changes it."""
    from app import colours, player, race_view, theme

    race, page = race_view.RACE_VIEW_CSS, theme.PAGE_CSS
    themed = page + theme.theme()._get_theme_css()
    assert _used(player.SHELL) <= _given(player.SHELL)
    assert _used(race) <= _given(race) and _used(page) <= _given(themed)
    code = "".join((APP / name).read_text(encoding="utf-8") for name in ("charts.py", "theme.py"))
    assert [name for name in colours.COLOURS if name not in _used(race + page) and f'"{name}"' not in code] == []


def _used(css: str) -> set[str]:
    return set(re.findall(r"var\(--([\w-]+)\)", css))


def _given(css: str) -> set[str]:
    return set(re.findall(r"--([\w-]+):", css))
