"""What a drafter would have made of a stretch of a race's text, from its table alone."""

from __future__ import annotations

from engine.recordings.recording import Recording
from engine.what_if.read import what_if_of


def drafter_over(recording: Recording, drafter: str, start: int, end: int) -> tuple[int, int, int, int, int]:
    """k, kept, guessed, tokens, steps of a drafter from one position to another, at its fastest k of the whole race."""
    found = what_if_of(recording)
    assert found is not None
    ids = found.text.token_ids
    k = min(found.offered()[drafter], key=lambda k: sum(step.seconds for step in found.steps(drafter, k)))
    kept = guessed = steps = 0
    at = start
    while at < end:
        draft = recording["tables"][drafter][at][: min(k, end - at - 1)]
        right = next((i for i, token in enumerate(draft) if token != ids[at + i]), len(draft))
        kept, guessed, steps = kept + right, guessed + len(draft), steps + 1
        at += right + 1
    return k, kept, guessed, end - start, steps
