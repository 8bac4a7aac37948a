"""Whether a page can race, for programs that look after it."""

from __future__ import annotations

from typing import Any

from engine.core.errors import sentence

from .loader import ModelStatus
from .queue import RaceQueue


def health(queue: RaceQueue, default: str, status: ModelStatus | None) -> dict[str, Any]:
    """As JSON:

    - `ready`: races can be run, because the default model is loaded, or would be for a race.
    - `model`, `state`: the model that is loaded, or was last; starting, loading, ready or failed.
    - `reason`: why it is not ready, a sentence; else "".
    - `queue_length`, `device_busy`: races that wait, and whether one has the device.

    default: the default pair's target.
    status: of its loader; None as long as nothing is loaded yet."""
    reason = queue.why_closed
    if status is None:
        reason = reason or "finding out what this machine can run"
    elif status.hangs or (status.target == default and status.state != "ready"):
        reason = reason or status.text.partition(". ")[0]
    return {
        "ready": not reason,
        "model": default if status is None else status.target,
        "state": "starting" if status is None else status.state,
        "reason": sentence(reason),
        "queue_length": queue.num_waiting,
        "device_busy": not queue.is_empty,
    }
