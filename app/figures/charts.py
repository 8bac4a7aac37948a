"""Under Charts: figures, each with a sentence. Pure; plotly is imported when the first is drawn."""

from collections.abc import Sequence
from typing import Any

from engine.analysis.metrics import lane_metrics, percentile, ratio
from engine.analysis.roofline import roofline
from engine.analysis.verdict_words import capital
from engine.core.errors import UsageError, sentence
from engine.core.events import LaneEvent, Step, steps
from engine.core.spec import BASELINE, PLAIN, SPECULATIVE
from engine.drafters import label, ruled, short_label
from engine.recordings.recording import Recording
from engine.what_if.ask import queries_of
from engine.what_if.judged import WhatIf
from engine.what_if.read import what_if_of

from ..web.colours import DRAFT, EACH_DRAFTER, KEPT, PLAIN_STEP, REACHED, VERIFY
from .plots import Chart, axes, bars, legend_below, line, percent, shown

MS = 1000.0
OVER_TIME, FIRST = "Tokens over time", "First guess by draft length"
MAX_BARS = 2_000  # per figure: more than a race on this page has steps, and as many as a browser draws quickly
NOTHING = "No guesses in this race, so there is nothing to show."
NO_TABLES = (
    "This race has no tables, so its guesses at other draft lengths are not known. The page makes them after a race "
    "(unless others are waiting), the command line with race --tables --save FILE."
)
NOT_ASKED = "First guesses are not known: a server does not reveal its guesses."
ARRIVALS = "The time between two arrivals of text from the server, which does not say how long it drafts."


def charts(recording: Recording | None) -> tuple[Chart, ...]:
    """Tokens over time; step times and acceptance by position of the first speculative lane; first guesses over k of
    all lanes if the recording has tables. None: the empty figures."""
    if recording is None:
        return Chart(OVER_TIME, None, ""), step_times((), None), acceptance((), ""), Chart(FIRST, None, NO_TABLES)
    events, (lane, plain) = recording.events, map(recording.spec.first, (SPECULATIVE, PLAIN))
    done = steps(events, lane)
    plain_step_s = percentile([step.seconds for step in steps(events, plain)], 0.5)
    of_steps = step_times(done, plain_step_s, roofline(recording, events, plain), recording.on_servers)
    return tokens_over_time(recording), of_steps, acceptance(events, lane), first_guess(recording)


def tokens_over_time(recording: Recording) -> Chart:
    """Tokens that the plain lanes and the first speculative one had written at the end of each step."""
    first, figure = recording.spec.first, axes("seconds", "tokens")
    for lane, name, colour, dash in (
        (first(SPECULATIVE), shown(capital(first(SPECULATIVE))), VERIFY, "solid"),
        (first(BASELINE), "Plain", PLAIN_STEP, "dash"),
        (first(PLAIN), "Plain, best width" if first(BASELINE) else "Plain", PLAIN_STEP, "dot"),
    ):
        ends = [
            (event.clock_s, event.event.position + len(event.event.token_ids))
            for event in recording.events
            if event.lane == lane and isinstance(event.event, Step)
        ]
        if ends:
            clock, written = zip((0.0, 0), *ends[:: len(ends) // MAX_BARS + 1], strict=True)
            line(figure, clock, written, name, colour, "%{y} tokens after %{x:.2f} s", dash)
            figure.data[-1].line.shape = "hv"
    legend_below(figure)
    jumps = "text that arrived at once" if recording.on_servers else "kept guesses"
    return Chart(OVER_TIME, figure, f"Steeper is faster. Jumps are {jumps}.")


def step_times(done: Sequence[Step], plain_step_s: float | None, bound: str = "", is_on_server: bool = False) -> Chart:
    """Each step's draft and verify time, stacked, with the plain lane's median step as a line. bound: a sentence on
    what limits a plain step. is_on_server: a step's time is all that is known."""
    title = "Time of each step"
    if not done:
        return Chart(title, None, f"The speculative lane made no steps. {bound}".strip())
    drawn = done[:MAX_BARS]
    index = [step.index for step in drawn]
    figure = axes("step", "ms")
    name = "step" if is_on_server else "verify"
    bars(figure, index, [step.verify_s * MS for step in drawn], name, VERIFY, "", f"step %{{x}}: {name} %{{y:.1f}} ms")
    if not is_on_server:
        bars(figure, index, [step.draft_s * MS for step in drawn], "draft", DRAFT, "/", "step %{x}: draft %{y:.1f} ms")
    figure.update_layout(barmode="stack", bargap=0.15)
    if plain_step_s is not None:
        ends = [index[0] - 0.5, index[-1] + 0.5]
        line(figure, ends, [plain_step_s * MS] * 2, "plain step, median", PLAIN_STEP, "", "dot")
        figure.data[-1].update(hoverinfo="skip", hovertemplate=None)
    legend_below(figure)
    share = sum(step.draft_s for step in done) / (sum(step.seconds for step in done) or 1.0)
    cost = ratio(percentile([step.seconds for step in done], 0.5), plain_step_s)
    sentence = ARRIVALS if is_on_server else f"Drafting took {percent(share)} of the lane's time."
    if cost is not None:
        sentence += (
            f" The median step takes {cost:.2f} times as long as a plain one, so it has to produce more than "
            f"{cost:.2f} tokens to win."
        )
    if len(done) > len(drawn):
        sentence += f" Shows the first {len(drawn)} of {len(done)} steps."
    return Chart(title, figure, f"{sentence} {bound}".strip())


def acceptance(events: Sequence[LaneEvent], lane: str) -> Chart:
    """Acceptance rate of the draft's first, second, ... token: of all drafts, and of those that reached it."""
    title = "Acceptance by position in the draft"
    numbers = lane_metrics(events, lane)
    share, conditional = numbers.acceptance_by_position, numbers.conditional_acceptance_by_position
    if not share:
        return Chart(title, None, NOTHING)
    place = list(range(1, len(share) + 1))
    figure = axes("position in the draft", "%")
    percents = [100 * value for value in share]
    kept = "token %{x}: kept in %{y:.0f} % of drafts"
    bars(figure, place, percents, "of all drafts", KEPT, "", kept)
    reached, hover = [None if value is None else 100 * value for value in conditional], "if all before it were kept"
    line(figure, place, reached, hover, REACHED, f"{kept} {hover}", "dash", "diamond")
    legend_below(figure)
    figure.update_yaxes(range=[0, 105])
    figure.update_xaxes(dtick=1 if len(share) <= 16 else None)
    first, last = 100 * share[0], 100 * share[-1]
    return Chart(
        title,
        figure,
        f"The first guess was kept in {first:.0f} % of drafts, the last in {last:.0f} %. Where the bars are low, "
        "longer drafts are wasted work.",
    )


def first_guess(recording: Recording) -> Chart:
    """How often the first guess of a step was right, by drafter, at every size of chains in the tables."""
    if recording.on_servers:
        return Chart(FIRST, None, NOT_ASKED)
    try:
        if (what_if := what_if_of(recording)) is not None:
            return Chart(FIRST, *_first_guess(what_if))
        queries_of(recording.spec)  # raises if such a race cannot have tables
    except UsageError as error:
        return Chart(FIRST, None, sentence(str(error)))
    return Chart(FIRST, None, NO_TABLES)


def _first_guess(what_if: WhatIf) -> tuple[Any, str]:
    """Figure and sentence. Raises UsageError if no drafter drafts chains of any length."""
    shares = what_if.first_right()
    if not shares:
        raise UsageError("no drafter of this race has chains of every length")
    figure = axes("tokens drafted per step", "%")
    for number, (drafter, by_k) in enumerate(shares.items()):
        colour, hover = EACH_DRAFTER[number % len(EACH_DRAFTER)], "right in %{y:.0f} % of steps at k = %{x}"
        percents = [100 * share for share in by_k.values()]
        line(figure, list(by_k), percents, _name(drafter), colour, hover, symbol="circle")
    legend_below(figure)
    figure.update_xaxes(dtick=1 if len(what_if.costs.verify_s) <= 17 else None)
    drafter, by_k = max(shares.items(), key=lambda item: item[1][0] - item[1][max(item[1])])
    k, at_once, in_steps = max(by_k), percent(by_k[0]), percent(by_k[max(by_k)])
    return figure, (
        f"{_name(drafter)}: right at {at_once} of the places where it guesses (k = 0), in {in_steps} of the steps "
        f"that draft {k}. Where that falls the drafter is no worse: long drafts pass over the places where guessing is "
        "easy, and a step begins where the last draft failed."
    )


def _name(drafter: str) -> str:
    """A drafter in a legend, with how a server would draw its drafts."""
    name, rule = ruled(drafter)
    return shown(short_label(name) if rule else label(name), rule)
