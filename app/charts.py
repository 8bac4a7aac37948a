"""What appears after a race: four figures and, with each, a sentence that says what to see. Pure; plotly is imported
when the first is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from engine.drafters import label
from engine.errors import UsageError
from engine.events import LaneEvent, Step, steps
from engine.measure.roofline import roofline
from engine.metrics import lane_metrics, percentile, ratio, speedup
from engine.recordings.recording import spec_of
from engine.spec import AUTO, BASELINE, PLAIN, SERVER, SPECULATIVE, LaneSpec
from engine.what_if.ask import asked_of
from engine.what_if.judged import WhatIf
from engine.what_if.read import what_if_of
from engine.what_if.tables import seconds_of

from .colours import AUTOMATIC, COMMITTED, DRAFT, EACH_DRAFTER, FIGURE_TEXT, KEPT, PLAIN_STEP, REACHED, VERIFY
from .figures import HEIGHT, Chart, axes, bars, level, percent, points, shown
from .view import first_named, is_shown_elsewhere, sentence

MS = 1000.0
LEGEND_LINE = 20
NOTHING = "Nothing was drafted in this race, so there is nothing to show here."
NO_TABLES = (
    "This race has no tables of guesses at every place, so its speed at other lengths is not known. Race it on this "
    "page, where they are made after the race unless somebody waits, or with race --tables --save FILE."
)

NOT_ASKED = "A server's drafter cannot be asked what it would have guessed."


def charts(events: Sequence[LaneEvent], header: Mapping[str, Any] | None = None) -> tuple[Chart, Chart, Chart, Chart]:
    """Step times, acceptance by position, tokens per step: of the speculative lane on the page, the first one of the
    race that `header` is of. If the memory bandwidth was measured, also how much of it a plain step used. Then speed
    over k, of all lanes, where `header` is a whole recording with tables."""
    lane, plain = (first_named(header, role) for role in (SPECULATIVE, PLAIN))
    done = steps(events, lane)
    times_of_plain = [] if is_shown_elsewhere(header) else [step.seconds for step in steps(events, plain)]
    plain_step_s = percentile(times_of_plain, 0.5)
    bound = roofline(header or {}, events, plain)
    times = step_times(done, plain_step_s, bound.sentence if bound else "")
    return times, acceptance(events, lane), tokens_per_step(done), speed_over_k(events, header)


def step_times(done: Sequence[Step], plain_step_s: float | None, bound: str = "") -> Chart:
    """Each step's draft and verify time, stacked; the plain lane's median step as a line to compare with, and what
    bounds it, in a sentence."""
    title = "Time of each step"
    if not done:
        return Chart(title, None, f"The speculative lane took no step. {bound}".strip())
    index = [step.index for step in done]
    figure = axes("step", "ms")
    bars(figure, index, [step.verify_s * MS for step in done], "verify", VERIFY, "", "step %{x}: verify %{y:.1f} ms")
    bars(figure, index, [step.draft_s * MS for step in done], "draft", DRAFT, "/", "step %{x}: draft %{y:.1f} ms")
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
    sentence = f"Drafting took {percent(share)} of the lane's time."
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
    figure = axes("position in the draft", "%")
    percents = [100 * value for value in share]
    bars(figure, place, percents, "of all drafts", KEPT, "", "token %{x}: kept in %{y:.0f} % of drafts")
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
    figure = axes("tokens committed", "steps")
    bars(figure, sizes, [counts[size] for size in sizes], "steps", COMMITTED, "", "%{y} steps committed %{x} tokens")
    figure.update_xaxes(dtick=1 if len(sizes) <= 16 else None)
    mean = sum(len(step.token_ids) for step in done) / len(done)
    alone = 100 * counts[1] / len(done)
    return Chart(
        title,
        figure,
        f"{mean:.2f} tokens a step on average; {alone:.0f} % of steps brought just the target's own one, which "
        "plain decoding would have brought too.",
    )


def speed_over_k(events: Sequence[LaneEvent], recording: Mapping[str, Any] | None) -> Chart:
    """Tokens per second at every k that the recording's tables tell, by drafter, beside what was raced and the oracle
    of the speculative lane on the page."""
    title = "Speed at every length of guesses"
    lanes = spec_of(recording).lanes if recording else ()
    if any(lane.name == first_named(recording, SPECULATIVE) and lane.drafter == SERVER for lane in lanes):
        return Chart(title, None, NOT_ASKED)
    try:
        found = what_if_of(recording) if recording else None
        if recording and found:
            return Chart(title, *_over_k(events, recording, found))
        if recording:
            asked_of(spec_of(recording).without_servers())  # raises where such a race has no tables
    except UsageError as error:
        return Chart(title, None, sentence(str(error)))
    return Chart(title, None, NO_TABLES)


def _over_k(events: Sequence[LaneEvent], recording: Mapping[str, Any], found: WhatIf) -> tuple[Any, str]:
    """Figure and sentence. Raises UsageError where the tables are of no drafter of the lane, or of none at all."""
    lanes = spec_of(recording).without_servers().lanes
    rates = {lane.name: lane_metrics(events, lane.name).tokens_per_s or 0.0 for lane in lanes}
    undrafted = [lane.name for lane in lanes if lane.role in (PLAIN, BASELINE)]
    first = next(lane for lane in lanes if lane.name == first_named(recording, SPECULATIVE))
    told = {of: {k: found.steps(of, k) for k in ks} for of, ks in found.offered().items()}
    num = len(found.text.token_ids)
    speeds = {of: {k: ratio(num, seconds_of(done)) or 0.0 for k, done in by_k.items()} for of, by_k in told.items()}
    ends = [1, max((k for by_k in told.values() for k in by_k), default=1)]

    figure = axes("length of a guess, in tokens", "tokens per second")
    for number, (of, by_k) in enumerate(speeds.items()):
        how = "lines+markers" if of in found.tables else "markers"  # a block drafter was asked at some lengths only
        colour = EACH_DRAFTER[number % len(EACH_DRAFTER)]
        hover = "%{y:.1f} tokens/s at a length of %{x}, computed"
        points(figure, list(by_k), list(by_k.values()), shown(label(of)), how, colour, "circle", hover)
    raced = [lane for lane in lanes if lane.role == SPECULATIVE and lane.k != AUTO and rates[lane.name]]
    if raced:
        at, fast = [lane.k for lane in raced], [rates[lane.name] for lane in raced]
        points(figure, at, fast, "raced", "markers", FIGURE_TEXT, "diamond-open", "%{y:.1f} tokens/s, raced")
    for lane in lanes:
        if lane.k == AUTO and rates[lane.name]:
            level(figure, ends, rates[lane.name], shown(f"automatic: {lane.drafter}"), AUTOMATIC, "dash")
    level(figure, ends, max(rates[name] for name in undrafted), "plain", PLAIN_STEP, "solid")
    best_possible = ratio(num, found.oracle(first.drafter).seconds) or 0.0
    level(figure, ends, best_possible, "perfect foresight (the oracle)", AUTOMATIC, "dot")
    figure.update_layout(
        height=HEIGHT + LEGEND_LINE * len(figure.data),
        legend={"orientation": "v", "y": -0.4, "yanchor": "top", "font": {"size": 14}},
    )
    figure.update_xaxes(dtick=1 if ends[1] <= 16 else None)

    words = ""
    if speeds:
        choices = [(speed, of, k) for of, by_k in speeds.items() for k, speed in by_k.items()]
        _, of, k = max(choices, key=itemgetter(0))  # of equal ones the shortest
        gains = [gain for name in undrafted if (gain := speedup(steps(events, name), told[of][k])) is not None]
        against = f", {min(gains):.2f}x plain" if gains else ""
        words = f"Best fixed length here: {k} with {shown(_in_words(of))}{against}{_reached(found, events, first)}. "
    return figure, f"{words}Steps are counted exactly, times are computed from this race's own costs."


def _reached(found: WhatIf, events: Sequence[LaneEvent], lane: LaneSpec) -> str:
    """How near a lane came to its oracle."""
    judged = found.shares([(lane, steps(events, lane.name))])
    if lane.name not in judged:
        return ""
    how = "automatic length" if lane.k == AUTO else f"a length of {lane.k}"
    return f"; {how} reached {percent(judged[lane.name]['share'])} of what perfect foresight would reach (the oracle)"


def _in_words(drafter: str) -> str:
    name, _, words = label(drafter).partition(": ")
    return f"{name} ({words})" if words else name


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
