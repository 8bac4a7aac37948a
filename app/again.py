"""What a visitor is told of a recorded race that was run again here. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.cli.verify import compare
from engine.metrics import lane_metrics, ratio
from engine.recordings.recording import events_of
from engine.spec import SPECULATIVE

from .view import first_named, sentence


def told_again(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Whether this machine wrote the recorded tokens, and how fast the lane that guesses was against then."""
    found, name = compare(recorded, here), first_named(recorded, SPECULATIVE)
    lane = found["lanes"].get(name)
    if not (found["same_tokens"] and found["digest"]["same"]) or lane is None or not lane["counts"]:
        return f"Run again: {found['sentence']}."
    then, now = (lane_metrics(events_of(each), name).tokens_per_s for each in (recorded, here))
    pace = ratio(now, then)
    bits = ", bit for bit" if lane["rows_different"] == 0 else ""
    speed = "" if pace is None else f", at {pace:.2f}× its speed"
    return sentence(f"this machine wrote the same {lane['num_tokens']} tokens{bits}{speed}")
