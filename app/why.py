"""Where the speed of a race comes from: five figures, each with a sentence and a table, and what the sources say to it.
Pure; plotly is imported when the first is drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import UsageError
from engine.events import LaneEvent, steps
from engine.measure.roofline import roofline
from engine.metrics import fastest_plain
from engine.recordings.recording import spec_of
from engine.spec import BASELINE, PLAIN, SPECULATIVE
from engine.what_if.read import what_if_of
from engine.what_if.tables import seconds_of
from engine.why import Compared, compared, origins

from .colours import AUTOMATIC, DRAFT, KEPT, PLAIN_STEP, REACHED, VERIFY
from .figures import ABOVE, HEIGHT, Chart, axes, bars, percent, points, shown
from .sources import AGREES, DISAGREES, UNTESTED, VERDICTS, claims
from .users import users
from .view import first_named, is_shown_elsewhere, sentence

BAR_HEIGHT = 220
MAX_ROWS = 12
LOOP = "The text does not go round in a loop, so no part of the speed comes from one."
NO_RATIO = (
    "This race has no two lanes to compare: it needs a plain one and one with guesses, which wrote something on one "
    "device."
)
NOT_KNOWN = (
    "Where the accepted tokens came from is not known: this recording does not say which guesses were copies and which "
    "a model made."
)


def compared_of(events: Sequence[LaneEvent], recording: Mapping[str, Any]) -> Compared | None:
    """The lane on the page and the plain decoding that the page's ratio is against; None where they ran on two
    devices."""
    if is_shown_elsewhere(recording):
        return None
    return compared(events, *(first_named(recording, role) for role in (SPECULATIVE, PLAIN, BASELINE)))


def why(events: Sequence[LaneEvent], recording: Mapping[str, Any]) -> tuple[Chart, ...]:
    """Origins of the tokens, when it pays, what eats the difference to the ideal, the speed-up as the text grows,
    with several users, and what the sources say: of the speculative lane on the page."""
    race = compared_of(events, recording)
    return (
        token_origins(events, recording, race),
        break_even(race),
        losses(race),
        growth(race),
        users(race, recording, NO_RATIO),
        told_by_sources(events, recording, race),
    )


def token_origins(events: Sequence[LaneEvent], recording: Mapping[str, Any], race: Compared | None) -> Chart:
    """Of the lane's tokens: copies of the prompt, of the completion, guesses of a model, the target's own. And what the
    race owes to a loop of its own text."""
    title = "Where the tokens came from"
    if race is None:
        return Chart(title, None, NO_RATIO)
    around, name = _around(race), first_named(recording, SPECULATIVE)
    lane = next(each for each in spec_of(recording).lanes if each.name == name)
    found = origins(steps(events, name), len(recording["prompt"]["token_ids"]), lane.drafter)
    if found is None:
        return Chart(title, None, f"{NOT_KNOWN} {around}")
    parts = (
        ("copied from the prompt", found.prompt, KEPT, ""),
        ("copied from its own text", found.completion, DRAFT, "/"),
        ("guessed by a model", found.guessed, REACHED, "x"),
        ("the target's own", found.target, PLAIN_STEP, "."),
    )
    figure = _stacked(parts, "tokens", "%{x}")
    accepted, num = sum(found[:3]), sum(found) or 1
    words = (
        f"Of {accepted} accepted tokens {found.prompt} were copied from the prompt, {found.completion} from what the "
        f"model itself had written, and {found.guessed} guessed by a model; {found.target} tokens are the target's own."
    )
    table = [("token", "number", "share"), *((name, str(each), percent(each / num)) for name, each, _, _ in parts)]
    return Chart(title, figure, f"{words} {around}", table)


def _around(race: Compared) -> str:
    found = race.before_the_loop()
    if found is None:
        return LOOP
    num, before = found
    upto = "nothing can be compared" if before is None else f"it is {before:.2f} times as fast as plain"
    return (
        f"The text begins to go round in a loop after {num} tokens. Up to there {upto}; with the copies of its own "
        f"loop, {race.speedup:.2f} times."
    )


def break_even(race: Compared | None) -> Chart:
    """Speed-up over tokens a step, at the mean cost of this race's steps, with this race on it."""
    title = "When it pays"
    if race is None:
        return Chart(title, None, NO_RATIO)
    own, even = race.tokens_per_step, race.break_even
    most = math.ceil(1.2 * max(own, even)) + 1
    figure = axes("tokens a step", "times as fast as plain")
    ends = [0, most]
    at_cost = "%{x:.2f} tokens a step: %{y:.2f} times as fast"
    points(figure, ends, ends, "ideal: a step costs a plain one", "lines", PLAIN_STEP, "circle", at_cost)
    points(figure, ends, [0, most / even], "at this race's costs", "lines", KEPT, "circle", at_cost)
    points(figure, [even], [1], "break-even", "markers", DRAFT, "x", at_cost)
    points(figure, [own], [own / even], "this race", "markers", AUTOMATIC, "diamond", at_cost)
    figure.data[0].line.dash = "dash"
    figure.update_layout(height=HEIGHT + 40, legend=ABOVE)
    rows = [(even, "break-even"), (own, "this race"), *((num, "") for num in range(1, min(most, MAX_ROWS) + 1))]
    table = [
        ("tokens a step", "times as fast as plain", "ideal", ""),
        *((f"{num:.2f}", f"{num / even:.2f}", f"{num:.2f}", name) for num, name in sorted(rows)),
    ]
    return Chart(
        title,
        figure,
        f"A step costs as much as {even:.2f} plain ones here, so it pays from {even:.2f} tokens a step on. This race "
        f"brings {own:.2f}: {own / even:.2f} times as fast as plain. With free guesses and free checks it would be "
        f"{own:.2f} times (the ideal).",
        table,
    )


def losses(race: Compared | None) -> Chart:
    """The lane's time in parts: the ideal, and what came on top."""
    title = "What eats the difference to the ideal"
    if race is None:
        return Chart(title, None, NO_RATIO)
    costs = race.costs()
    whole = sum(costs)
    parts = (
        ("ideal", costs.ideal_s, PLAIN_STEP, ""),
        ("drafting", costs.drafting_s, DRAFT, "/"),
        ("wider steps", costs.wider_s, VERIFY, ""),
        ("host and noise", costs.rest_s, REACHED, "x"),
    )
    figure = _stacked(parts, "seconds", "%{x:.4f}")
    lost = ", ".join(f"{name} {_seconds(seconds, whole)}" for name, seconds, _, _ in parts[1:])
    table = [
        ("part", "seconds", "share of the lane's time"),
        *((name, f"{seconds:.4f}", f"{100 * seconds / whole:.1f} %") for name, seconds, _, _ in parts),
        ("together", f"{whole:.4f}", "100 %"),
    ]
    below = " Below zero is noise." if costs.rest_s < 0 else ""
    return Chart(
        title,
        figure,
        f"{len(race.lane)} steps at the price of plain ones take {costs.ideal_s:.3f} s; this race took {whole:.3f} s. "
        f"The difference: {lost}.{below}",
        table,
    )


def _seconds(seconds: float, whole: float) -> str:
    return f"{seconds:.3f} s ({100 * seconds / whole:.1f} %)"


def growth(race: Compared | None) -> Chart:
    """The speed-up over the first tokens, more and more of them."""
    title = "As the text grows"
    if race is None:
        return Chart(title, None, NO_RATIO)
    told = race.growth()
    num = [point.num_tokens for point in told]
    figure = axes("tokens written", "times as fast as plain")
    hover = "first %{x} tokens: %{y:.2f} times as fast"
    points(figure, num, [point.speedup for point in told], "steps alone", "lines", KEPT, "circle", hover)
    if told[-1].with_prefill is not None:
        with_it = [point.with_prefill or 0.0 for point in told]
        points(figure, num, with_it, "with reading the prompt", "lines", DRAFT, "circle", hover)
        figure.data[-1].line.dash = "dash"
    points(figure, [0, num[-1]], [1, 1], "plain", "lines", PLAIN_STEP, "circle", "plain")
    figure.update_layout(height=HEIGHT + 40, legend=ABOVE)
    rows = told[:: max(1, math.ceil(len(told) / MAX_ROWS))]
    table = [
        ("tokens", "times as fast as plain", "with reading the prompt"),
        *(
            (str(n), f"{gain:.2f}", "–" if both is None else f"{both:.2f}")
            for n, gain, both in dict.fromkeys([*rows, told[-1]])
        ),
    ]
    first, both = race.pays_from(), told[-1].with_prefill
    if both is None:
        words = f"Over all {num[-1]} tokens it is {told[-1].speedup:.2f} times as fast as plain."
    else:
        when = f"pays from token {first} on" if first else "does not pay here"
        words = (
            f"With the reading of the prompt it {when}. Over all {num[-1]} tokens it is {told[-1].speedup:.2f} times "
            f"as fast as plain, {both:.2f} times with the reading."
        )
    return Chart(title, figure, words, table)


def told_by_sources(events: Sequence[LaneEvent], recording: Mapping[str, Any], race: Compared | None) -> Chart:
    """What the sources of this project say, each with this race's answer."""
    title = "What others say, and this race"
    if race is None:
        return Chart(title, None, NO_RATIO)
    names = [first_named(recording, role) for role in (SPECULATIVE, PLAIN, BASELINE)]
    bound = roofline(recording, events, fastest_plain(events, *names))
    told = claims(race, bound.num_bytes if bound else None, _best_length(recording))
    told.sort(key=lambda claim: VERDICTS.index(claim.verdict))
    num = Counter(claim.verdict for claim in told)
    head = ("what they say", "who", "this race", "because")
    return Chart(
        title,
        None,
        f"Of {len(told)} sentences that others wrote, this race agrees with {num[AGREES]}, disagrees with "
        f"{num[DISAGREES]}, and does not test {num[UNTESTED]}.",
        [head, *((each.says, each.source, each.verdict, sentence(each.because)) for each in told)],
    )


def _best_length(recording: Mapping[str, Any]) -> tuple[str, int] | None:
    """Drafter and length of the fastest race at a fixed length that the recording's tables tell."""
    try:
        found = what_if_of(recording)
    except UsageError:
        return None
    told = [] if found is None else [(of, k) for of, ks in found.offered().items() for k in ks]
    if found is None or not told:
        return None
    drafter, k = min(told, key=lambda each: seconds_of(found.steps(*each)))
    return shown(drafter.partition(":")[0]), k


def _stacked(parts: Sequence[tuple[str, float, str, str]], unit: str, number: str) -> Any:
    """One bar of parts (name, size, colour, pattern), and how plotly writes their sizes."""
    figure = axes(unit, "")
    for name, size, colour, pattern in parts:
        bars(figure, [size], [""], name, colour, pattern, f"{name}: {number} {unit}", "h")
    legend = {"orientation": "v", "y": -0.9, "yanchor": "top"}
    figure.update_layout(barmode="relative", height=BAR_HEIGHT, bargap=0.3, legend=legend)
    figure.update_yaxes(showticklabels=False)
    return figure
