"""What appears after a race: three figures and, with each, a sentence that says what to see. Pure; plotly is imported
when the first is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.events import LaneEvent, Step, steps
from engine.measure.roofline import roofline
from engine.metrics import lane_metrics, percentile
from engine.spec import PLAIN, SPECULATIVE

from .colours import CLEAR, COMMITTED, DRAFT, FIGURE_TEXT, GRID, KEPT, PLAIN_STEP, REACHED, VERIFY
from .view import first_named

HEIGHT = 260
MS = 1000.0
NOTHING = "Nothing was drafted in this race, so there is nothing to show here."


@dataclass(frozen=True)
class Chart:
    """A plotly figure (None: there is nothing to draw), its title, and what to see in it."""

    title: str
    figure: Any
    sentence: str


def charts(events: Sequence[LaneEvent], header: Mapping[str, Any] | None = None) -> tuple[Chart, Chart, Chart]:
    """Step times, acceptance by position, tokens per step: of the speculative lane on the page, the first one of the
    race that `header` is of. If the memory bandwidth was measured, also how much of it a plain step used."""
    lane, plain = (first_named(header, role) for role in (SPECULATIVE, PLAIN))
    done = steps(events, lane)
    plain_step_s = percentile([step.seconds for step in steps(events, plain)], 0.5)
    bound = roofline(header or {}, events, plain)
    times = step_times(done, plain_step_s, bound.sentence if bound else "")
    return times, acceptance(events, lane), tokens_per_step(done)


def step_times(done: Sequence[Step], plain_step_s: float | None, bound: str = "") -> Chart:
    """Each step's draft and verify time, stacked; the plain lane's median step as a line to compare with, and what
    bounds it, in a sentence."""
    title = "Time of each step"
    if not done:
        return Chart(title, None, f"The speculative lane took no step. {bound}".strip())
    index = [step.index for step in done]
    figure = _figure("step", "ms")
    _bars(figure, index, [step.verify_s * MS for step in done], "verify", VERIFY, "", "step %{x}: verify %{y:.1f} ms")
    _bars(figure, index, [step.draft_s * MS for step in done], "draft", DRAFT, "/", "step %{x}: draft %{y:.1f} ms")
    figure.update_layout(barmode="stack", bargap=0.15)
    if plain_step_s is not None:
        ends = [index[0] - 0.5, index[-1] + 0.5]
        figure.add_scatter(
            x=ends,
            y=[plain_step_s * MS] * 2,
            name="plain step, median",
            mode="lines",
            line={"color": PLAIN_STEP, "dash": "dot", "width": 2},
            hoverinfo="skip",
        )
    share = sum(step.draft_s for step in done) / (sum(step.seconds for step in done) or 1.0)
    ratio = _ratio(percentile([step.seconds for step in done], 0.5), plain_step_s)
    sentence = f"Drafting took {_percent(share)} of the lane's time."
    if ratio is not None:
        sentence += (
            f" The median step costs {ratio:.2f} times a plain one: to win, a step has to bring more tokens than that."
        )
    return Chart(title, figure, f"{sentence} {bound}".strip())


def acceptance(events: Sequence[LaneEvent], lane: str) -> Chart:
    """How often the draft's first, second, ... token was accepted: of all drafts, and of those that reached it."""
    title = "Acceptance by position in the draft"
    numbers = lane_metrics(events, lane)
    share, conditional = numbers.acceptance_by_position, numbers.conditional_acceptance_by_position
    if not share:
        return Chart(title, None, NOTHING)
    place = list(range(1, len(share) + 1))
    figure = _figure("position in the draft", "%")
    percents = [100 * value for value in share]
    _bars(figure, place, percents, "of all drafts", KEPT, "", "token %{x}: kept in %{y:.0f} % of drafts")
    figure.add_scatter(
        x=place,
        y=[None if value is None else 100 * value for value in conditional],
        name="of drafts that reached it",
        mode="lines+markers",
        line={"color": REACHED, "width": 2, "dash": "dash"},
        marker={"symbol": "diamond", "size": 7},
        hovertemplate="token %{x}: kept in %{y:.0f} % of the drafts that reached it<extra></extra>",
    )
    figure.update_yaxes(range=[0, 105])
    figure.update_xaxes(dtick=1 if len(share) <= 16 else None)
    first, last = 100 * share[0], 100 * share[-1]
    return Chart(
        title,
        figure,
        f"The first draft token was kept in {first:.0f} % of drafts, the last in {last:.0f} %: where the bars get "
        "low, a longer draft is wasted work.",
    )


def tokens_per_step(done: Sequence[Step]) -> Chart:
    """How many steps committed 1, 2, ... tokens."""
    title = "Tokens per step"
    if not done:
        return Chart(title, None, "The speculative lane took no step.")
    counts = Counter(len(step.token_ids) for step in done)
    sizes = list(range(1, max(counts) + 1))
    figure = _figure("tokens committed", "steps")
    _bars(figure, sizes, [counts[size] for size in sizes], "steps", COMMITTED, "", "%{y} steps committed %{x} tokens")
    figure.update_xaxes(dtick=1 if len(sizes) <= 16 else None)
    mean = sum(len(step.token_ids) for step in done) / len(done)
    alone = 100 * counts[1] / len(done)
    return Chart(
        title,
        figure,
        f"{mean:.2f} tokens a step on average; {alone:.0f} % of steps brought just the target's own one, which "
        "plain decoding would have brought too.",
    )


def _figure(x: str, y: str) -> Any:
    from plotly import graph_objects

    figure = graph_objects.Figure()
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID, "tickfont": {"size": 12}, "fixedrange": True}
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 48, "r": 12, "t": 12, "b": 44},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        font={"family": "IBM Plex Sans, system-ui, sans-serif", "size": 13, "color": FIGURE_TEXT},
        legend={"orientation": "h", "y": 1.14, "x": 0, "bgcolor": CLEAR},
        xaxis={**axis, "title": x},
        yaxis={**axis, "title": y, "rangemode": "tozero"},
        hoverlabel={"font": {"family": "IBM Plex Sans, system-ui, sans-serif"}},
        showlegend=True,
    )
    return figure


def _bars(figure: Any, x: list[int], y: list[float], name: str, colour: str, pattern: str, hover: str) -> None:
    figure.add_bar(
        x=x,
        y=y,
        name=name,
        marker={"color": colour, "line": {"width": 0}, "pattern": {"shape": pattern, "solidity": 0.35}},
        hovertemplate=f"{hover}<extra></extra>",
    )


def _percent(share: float) -> str:
    return "less than 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
