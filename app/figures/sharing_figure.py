"""Figure: the computed speed-up when several users share the device. Pure; plotly is imported when it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.analysis.breakdown import Compared
from engine.analysis.roofline import cache_s
from engine.analysis.sharing import Shared, as_raced, shared, stops_paying
from engine.analysis.verdict_words import PAYS
from engine.core.errors import UsageError
from engine.core.spec import MAX_WIDTH, SPECULATIVE
from engine.drafters import draft_words
from engine.recordings.event_json import MAX_SECONDS
from engine.recordings.recording import Recording
from engine.recordings.words import scope

from ..web.colours import DRAFT, KEPT, PLAIN_STEP
from .plots import Drawn, axes, line, shown

NO_WIDTHS = "Not known: this recording has no costs of other widths."
SHARED_STEP = (
    "A step reads the weights once for all users, so with several users checking guesses costs computing time, where "
    "with one it uses units that would be idle."
)
NO_CACHES = "Reading each user's own cache is not included."
WIDTHS = frozenset(map(str, range(1, MAX_WIDTH + 1)))
LEAST_SHOWN = 8
SHOWN = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def users(recording: Recording, race: Compared) -> Drawn:
    """Speed-up over the number of users who share the device."""
    reading_s = cache_s(recording)
    gains = as_raced(shared(race, _step_s(recording), reading_s), race.speedup)
    if not gains:
        return None, NO_WIDTHS, ()
    gains = gains[: max(LEAST_SHOWN, 2 * max(n or len(gains) for n in stops_paying(gains)))]
    figure = axes("users at once", "times as fast as plain", is_tall=True)
    num_measured = sum(gain.measured for gain in gains)
    hover, numbers = "%{x} users: %{y:.2f} times as fast", [gain.num_users for gain in gains]
    line(figure, numbers, [gain.together for gain in gains], "all drafts in one pass", KEPT, hover)
    line(figure, numbers, [gain.in_turn for gain in gains], "one draft after another", DRAFT, hover)
    line(figure, [1, len(gains)], [1, 1], "plain", PLAIN_STEP, "plain")
    if num_measured < len(gains):
        figure.add_vrect(max(1, num_measured), len(gains), fillcolor=PLAIN_STEP, opacity=0.15, line_width=0)
    rows = [gain for gain in gains if gain.num_users in SHOWN]
    table = [
        ("users", "all drafts in one pass", "one draft after another", "rows per step"),
        *(
            (str(n), f"{together:.2f}", f"{in_turn:.2f}", "measured" if known else "extrapolated")
            for n, together, in_turn, known in rows
        ),
    ]
    return figure, _words(recording, gains, num_measured, reading_s is not None), table


def _words(recording: Recording, gains: Sequence[Shared], num_measured: int, with_caches: bool) -> str:
    apart, together = stops_paying(gains)
    most, users = f"over {len(gains)}", f"{num_measured} user{'s' * (num_measured > 1)}"
    if apart is None and together is None:
        ends = PAYS["always"].format(len(gains))
    elif apart == 1:
        ends = PAYS["never"]
    elif apart == together:
        ends = PAYS["until"].format(apart)
    else:
        ends = PAYS["between"].format(f"{apart or most} and {together or most}")
    known = f"Steps of so many rows were measured up to {users}." if num_measured else "No step so wide was measured."
    where = scope(recording["model"]["name"], recording["device"])
    return (
        f"{_drafts(recording)}: guessing {ends}. Computed from this race, not measured with more: {where}. Other "
        f"machines have other numbers. {SHARED_STEP} Drafts are as long as in this race. {known} Grey is extrapolated. "
        f"{'' if with_caches else NO_CACHES}"
    ).strip()


def _drafts(recording: Recording) -> str:
    """The drafter that the figure is about, and how much it drafts."""
    lane = next(lane for lane in recording.spec.lanes if lane.role == SPECULATIVE)
    try:
        words = draft_words(lane.drafter, lane.k)
    except UsageError:
        words = f"{lane.drafter}, {lane.k}"
    name, _, length = words.rpartition(", ")
    return f"{shown(name)}, {length}"


def _step_s(recording: Mapping[str, Any]) -> dict[int, float]:
    """Seconds per step by width, from an untrusted header."""
    widths = recording.get("widths")
    step_s = widths.get("step_s") if isinstance(widths, Mapping) else None
    if not isinstance(step_s, Mapping):
        return {}
    return {
        int(width): float(seconds)
        for width, seconds in step_s.items()
        if str(width) in WIDTHS and type(seconds) in (int, float) and 0 < seconds < MAX_SECONDS
    }
