"""A line in the log for each race that is over. Counted when it is over: nothing between two steps."""

from __future__ import annotations

import hashlib

from engine.core.events import token_ids
from engine.core.spec import SERVER, SPECULATIVE

from ..catalogue.request import RaceRequest
from .logs import RUNNING
from .races import Over


def log_race(over: Over) -> None:
    """Log a race that has ended: of what a visitor typed nothing."""
    view, lasted_s = over.view, over.lasted_s
    num_tokens = sum(len(token_ids(view.events, lane.name)) for lane in (view.spec.lanes if view.spec else ()))
    took = "never began" if lasted_s is None else f"took {lasted_s:.1f} s, {num_tokens} tokens"
    own = hashlib.sha256(view.race.encode()).hexdigest()[:8]  # whoever knows its own id can read it
    words = own, view.state, over.request.pair.id, ", ".join(drafters_of(over.request)), over.waited_s, took
    RUNNING.info("race %s %s: %s, %s; waited %.1f s, %s", *words)


def drafters_of(request: RaceRequest) -> list[str]:
    """The kinds of the drafters of a race: `hybrid`, never `hybrid:ngram+eagle3`."""
    if request.pair.lanes is not None:
        return [SERVER]
    return sorted({lane.drafter.partition(":")[0] for lane in request.spec.lanes if lane.role == SPECULATIVE})
