"""The steps of a race as a table: one row per step, in the order they happened. Standard library only."""

import csv
import io
import json

from ..core.events import Step
from .recording import Recording

COLUMNS = (
    *("lane", "step", "position", "num_drafted", "num_accepted", "num_committed", "width"),
    *("draft_s", "verify_s", "clock_s", "drafted", "parents", "kept", "token_ids", "text"),
)
FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # the last four where letters may be wide


def steps_csv(recording: Recording) -> str:
    """A checked recording's steps as CSV (RFC 4180) with a header row, after the mark by which spreadsheets know UTF-8.
    `*_s` are seconds; numbers in one cell are separated by spaces; `parents` is empty for chains; `kept` counts
    `drafted` from 0; `width` is empty if unknown. No cell is a formula: `text`, what the step committed, is a JSON
    string, and a lane name that a spreadsheet would evaluate gets an apostrophe."""
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(COLUMNS)
    for event in recording.events:
        if isinstance(step := event.event, Step):
            table.writerow(
                (
                    f"'{event.lane}" if event.lane.startswith(FORMULA) else event.lane,
                    *(step.index, step.position, step.num_drafted, step.num_accepted, len(step.token_ids)),
                    "" if step.width is None else step.width,
                    *(step.draft_s, step.verify_s, event.clock_s),
                    *(" ".join(map(str, cells)) for cells in (step.drafted, step.parents, step.kept, step.token_ids)),
                    json.dumps("".join(step.pieces), ensure_ascii=False),
                )
            )
    return "\ufeff" + out.getvalue()
