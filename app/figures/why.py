"""The tab Why: two figures, each with a sentence and a table. Pure; plotly is imported when the first is drawn."""

from collections.abc import Callable, Sequence
from typing import Any

from engine.analysis.breakdown import Compared, compared, origins
from engine.core.events import steps
from engine.core.spec import BASELINE, PLAIN, SPECULATIVE
from engine.recordings.recording import Recording

from ..web.colours import DRAFT, KEPT, PLAIN_STEP, REACHED, VERIFY
from .plots import Chart, Drawn, axes, bars, percent

BAR_HEIGHT = 220
LOOP = "The text does not loop, so none of the speed comes from that."
NO_RATIO = "There is nothing to compare: this needs a plain and a speculative lane, each with at least one token."
NO_IDS = "Whether the text loops is not known: its server does not name its tokens."
NO_DRAFTS = "What was guessed is not known: the lane's server reports no drafts."
NOT_KNOWN = "Where the tokens come from is not known: this recording does not say which guesses were copies."


def compared_of(recording: Recording) -> Compared | None:
    """The lane on the page against plain decoding; None if there is nothing to compare."""
    return compared(recording.events, *map(recording.spec.first, (SPECULATIVE, PLAIN, BASELINE)))


def why(recording: Recording | None) -> tuple[Chart, ...]:
    """The figures for the speculative lane on the page. None: the empty ones."""
    if recording is None or (race := compared_of(recording)) is None:
        return tuple(Chart(title, None, NO_RATIO) for title in FIGURES)
    return tuple(Chart(title, *draw(recording, race)) for title, draw in FIGURES.items())


def token_origins(recording: Recording, race: Compared) -> Drawn:
    """How many tokens were copied from prompt or completion, guessed by a model, or the target's own; and what part of
    the speed comes from a loop in the text."""
    around, name = _around(race), recording.spec.first(SPECULATIVE)
    lane = next(lane for lane in recording.spec.lanes if lane.name == name)
    if not _has_steps(recording, race):
        return None, f"{NO_DRAFTS} {around}", ()
    counts = origins(steps(recording.events, name), len(recording["prompt"]["token_ids"]), lane.drafter)
    if counts is None:
        return None, f"{NOT_KNOWN} {around}", ()
    parts = (
        ("copied from the prompt", counts.prompt, KEPT, ""),
        ("copied from its own output", counts.completion, DRAFT, "/"),
        ("guessed by a head or draft model", counts.guessed, REACHED, "x"),
        ("the model's own", counts.target, PLAIN_STEP, "."),
    )
    figure = _stacked(parts, "tokens", "%{x}")
    accepted, num = sum(counts[:3]), sum(counts) or 1
    words = (
        f"Of {accepted} accepted tokens {counts.prompt} were copied from the prompt, {counts.completion} from what the "
        f"model itself had written, and {counts.guessed} guessed by a head or draft model; {counts.target} "
        "tokens are the model's own."
    )
    table = [("token", "number", "share"), *((name, str(count), percent(count / num)) for name, count, _, _ in parts)]
    return figure, f"{words} {around}", table


def _has_steps(recording: Recording, race: Compared) -> bool:
    """Whether the lane's steps are the model's: what a server sends at once is, if it reports its drafts."""
    return not recording.on_servers or any(step.num_drafted for step in race.lane)


def _around(race: Compared) -> str:
    if not any(token for step in race.lane for token in step.token_ids):
        return NO_IDS
    loop = race.before_the_loop()
    if loop is None:
        return LOOP
    num, before = loop
    upto = "nothing can be compared" if before is None else f"it is {before:.2f} times as fast as Plain"
    return (
        f"The text starts to loop after {num} tokens. Before that {upto}; including the loop, {race.speedup:.2f} times."
    )


def losses(recording: Recording, race: Compared) -> Drawn:
    """The lane's time, split into the ideal and the losses."""
    if not _has_steps(recording, race):
        return None, NO_DRAFTS, ()
    costs, of_server = race.costs(), recording.on_servers
    whole = sum(costs)
    parts = (
        ("ideal", costs.ideal_s, PLAIN_STEP, ""),
        *(() if of_server else (("drafting", costs.drafting_s, DRAFT, "/"),)),
        ("drafting and wider steps" if of_server else "wider steps", costs.wider_s, VERIFY, ""),
        ("other work and noise", costs.rest_s, REACHED, "x"),
    )
    figure = _stacked(parts, "seconds", "%{x:.4f}")
    lost = ", ".join(f"{name} {spent:.3f} s ({100 * spent / whole:.1f} %)" for name, spent, _, _ in parts[1:])
    table = [
        ("part", "seconds", "share of the lane's time"),
        *((name, f"{seconds:.4f}", f"{100 * seconds / whole:.1f} %") for name, seconds, _, _ in parts),
        ("together", f"{whole:.4f}", "100 %"),
    ]
    below = " Negative values are noise." if costs.rest_s < 0 else ""
    words = (
        f"{len(race.lane)} steps as cheap as plain ones would take {costs.ideal_s:.3f} s; this race took "
        f"{whole:.3f} s. The difference: {lost}.{below}"
    )
    return figure, words, table


def _stacked(parts: Sequence[tuple[str, float, str, str]], unit: str, number: str) -> Any:
    """One stacked bar of parts (name, size, colour, pattern). number: plotly's format of the sizes."""
    figure = axes(unit, "")
    for name, size, colour, pattern in parts:
        bars(figure, [size], [""], name, colour, pattern, f"{name}: {number} {unit}", "h")
    legend = {"orientation": "v", "y": -0.9, "yanchor": "top"}
    figure.update_layout(barmode="relative", height=BAR_HEIGHT, bargap=0.3, legend=legend)
    figure.update_yaxes(showticklabels=False)
    return figure


FIGURES: dict[str, Callable[[Recording, Compared], Drawn]] = {
    "Where the tokens came from": token_origins,
    "Where the rest of the time goes": losses,
}
