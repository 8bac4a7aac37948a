"""Helpers to draw figures. Plotly is imported when the first is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..web.colours import CLEAR, FIGURE_TEXT, GRID

HEIGHT, LEGEND_LINE = 260, 20
MAX_NAME = 36
Drawn = tuple[Any, str, Sequence[Sequence[str]]]  # Figure, sentence and table of a `Chart`


@dataclass(frozen=True)
class Chart:
    """A plotly figure (None: nothing to draw), its title, a sentence, and the rows of its table, header first."""

    title: str
    figure: Any
    sentence: str
    table: Sequence[Sequence[str]] = ()


def shown(text: str) -> str:
    """A name from a file on one line, without markup for plotly, and short enough for a legend."""
    line = " ".join(text.replace("<", "(").split())
    return line if len(line) <= MAX_NAME else line[: MAX_NAME - 1] + "…"


def line(
    figure: Any,
    x: Sequence[Any],
    y: Sequence[float | None],
    name: str,
    colour: str,
    hover: str,
    dash: str = "solid",
    symbol: str | None = None,
) -> None:
    """Add a line through one value for each x, which the symbol marks."""
    figure.add_scatter(
        x=x,
        y=y,
        name=name,
        mode="lines+markers" if symbol else "lines",
        line={"color": colour, "width": 2, "dash": dash},
        marker={"symbol": symbol, "size": 7, "color": colour},
        hovertemplate=f"{hover}<extra></extra>",
    )


def axes(x: str, y: str) -> Any:
    """An empty figure with these axis titles."""
    from plotly import graph_objects

    figure = graph_objects.Figure()
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "tickfont": {"size": 14}, "fixedrange": True}
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 48, "r": 12, "t": 12, "b": 44},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        font={"family": "IBM Plex Sans, system-ui, sans-serif", "size": 14, "color": FIGURE_TEXT},
        legend={"orientation": "h", "x": 0, "bgcolor": CLEAR, "y": 1.14},
        xaxis={**axis, "title": x},
        yaxis={**axis, "title": y, "rangemode": "tozero"},
        hoverlabel={"font": {"family": "IBM Plex Sans, system-ui, sans-serif"}},
        showlegend=True,
    )
    return figure


def legend_below(figure: Any) -> None:
    """Put the legend below the figure, a line for each trace so far: above a narrow one it would lie on the data."""
    figure.update_layout(
        height=HEIGHT + LEGEND_LINE * len(figure.data), legend={"orientation": "v", "y": -0.4, "yanchor": "top"}
    )


def bars(
    figure: Any,
    x: Sequence[Any],
    y: Sequence[Any],
    name: str,
    colour: str,
    pattern: str,
    hover: str,
    orientation: str = "v",
) -> None:
    """Add a bar for each x ("h": for each y). Patterns distinguish stacked bars without colour."""
    figure.add_bar(
        x=x,
        y=y,
        name=name,
        orientation=orientation,
        marker={"color": colour, "line": {"width": 0}, "pattern": {"shape": pattern, "solidity": 0.35}},
        hovertemplate=f"{hover}<extra></extra>",
    )


def times(ratio: float) -> str:
    """A ratio, as everywhere on the page; see `times` in app/web/base/text.js."""
    return f"{ratio:.2f}×"


def percent(share: float) -> str:
    """A share in words."""
    return "less than 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"
