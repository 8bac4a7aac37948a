"""The steps of a race as a table: one row a step, in the order in which they happened. Standard library only."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from ..events import Step
from .recording import events_of

COLUMNS = (
    *("lane", "step", "position", "num_drafted", "num_accepted", "num_committed", "width"),
    *("draft_s", "verify_s", "clock_s", "drafted", "token_ids", "text"),
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def steps_csv(recording: Mapping[str, Any]) -> str:
    """A checked recording's steps as CSV (RFC 4180), with a row of names first. `*_s` are seconds; ids stand with
    spaces between them; `text` is what the step committed as a JSON string, and a lane whose name a spreadsheet would
    compute gets an apostrophe, so that no cell is a formula. `width` is empty where it is unknown."""
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(COLUMNS)
    for event in events_of(recording):
        if isinstance(step := event.event, Step):
            table.writerow(
                (
                    f"'{event.lane}" if event.lane.startswith(FORMULA) else event.lane,
                    *(step.index, step.position, step.num_drafted, step.num_accepted, len(step.token_ids)),
                    "" if step.width is None else step.width,
                    *(step.draft_s, step.verify_s, event.clock_s),
                    " ".join(map(str, step.drafted)),
                    " ".join(map(str, step.token_ids)),
                    json.dumps("".join(step.pieces), ensure_ascii=False),
                )
            )
    return out.getvalue()
