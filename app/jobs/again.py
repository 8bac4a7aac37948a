"""The message after a recorded race was run again here. Pure."""

from __future__ import annotations

from engine.analysis.metrics import lane_metrics, ratio
from engine.errors import sentence
from engine.recordings.compare import compare
from engine.recordings.recording import Recording
from engine.spec import SPECULATIVE


def told_again(recorded: Recording, here: Recording) -> str:
    """Whether this machine wrote the recorded tokens, and the speculative lane's speed, then and now."""
    found, name = compare(recorded, here), recorded.spec.first(SPECULATIVE)
    lane = found["lanes"].get(name)
    if not (found["same_tokens"] and found["digest"]["same"]) or lane is None or not lane["counts"]:
        return f"Run again here: {found['sentence']}."
    then, now = (lane_metrics(each.events, name).tokens_per_s for each in (recorded, here))
    pace = ratio(now, then)
    bits = ", bit for bit" if lane["rows_different"] == 0 else ""
    speed = "" if pace is None else f", {pace:.2f}× as fast as the recording"
    return sentence(f"this machine wrote the same {lane['num_tokens']} tokens{bits}{speed}")
