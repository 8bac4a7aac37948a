"""Under Charts: figures, each with a sentence. Pure; plotly is imported when the first is drawn."""

from collections.abc import Sequence

from engine.analysis.metrics import lane_metrics, percentile, ratio
from engine.analysis.roofline import roofline
from engine.analysis.verdict_words import capital
from engine.core.events import LaneEvent, Step, steps
from engine.core.spec import BASELINE, PLAIN, SPECULATIVE
from engine.recordings.recording import Recording

from ..web.colours import DRAFT, KEPT, PLAIN_STEP, REACHED, VERIFY
from .plots import Chart, axes, bars, legend_below, line, percent, shown

MS = 1000.0
OVER_TIME = "Tokens over time"
MAX_BARS = 2_000  # per figure: more than a race on this page has steps, and as many as a browser draws quickly
NOTHING = "No guesses in this race, so there is nothing to show."
ARRIVALS = "The time between two arrivals of text from the server, which does not say how long it drafts."


def charts(recording: Recording | None) -> tuple[Chart, ...]:
    """Tokens over time; step times and acceptance by position of the first speculative lane. None: empty figures."""
    if recording is None:
        return Chart(OVER_TIME, None, ""), step_times((), None), acceptance((), "")
    events, (lane, plain) = recording.events, map(recording.spec.first, (SPECULATIVE, PLAIN))
    done = steps(events, lane)
    plain_step_s = percentile([step.seconds for step in steps(events, plain)], 0.5)
    of_steps = step_times(done, plain_step_s, roofline(recording, events, plain), recording.on_servers)
    return tokens_over_time(recording), of_steps, acceptance(events, lane)


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
