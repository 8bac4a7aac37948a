"""Reads the tables of a checked recording. Standard library only."""

from __future__ import annotations

import re

from ..errors import UsageError
from ..events import token_ids
from ..recordings.recording import Recording
from ..spec import BASELINE
from .costs import Costs
from .judged import WhatIf
from .tables import Table, Text

MAX_WORK = 500_000
"""Limit on tables times tokens times step lengths. A race on the page has at most 6 * 1,000 * 64."""
_NAME = re.compile(r"(.*?)(?:@(?:[1-9][0-9]?|auto))?", re.DOTALL)
"""See `table_name`."""


def what_if_of(recording: Recording) -> WhatIf | None:
    """The tables and costs of a recording; None if it lacks either.

    Raises UsageError if computing with them would exceed MAX_WORK."""
    tables, costs = recording.get("tables"), recording.get("costs")
    if not tables or not costs:
        return None
    spec, events = recording.spec, recording.events
    written = [token for name in spec.named(BASELINE) for token in token_ids(events, name)]
    if len(tables) * len(written) * len(costs["verify_s"]) > MAX_WORK:
        raise UsageError(
            f"{len(tables)} tables, {len(written)} tokens and {len(costs['verify_s'])} lengths of a step are more than "
            f"can be computed here: multiplied, they may be at most {MAX_WORK}"
        )
    text = Text(tuple(recording["prompt"]["token_ids"]), tuple(written), spec.params.max_new_tokens)
    found: dict[str, Table] = {}
    for name, drafts in tables.items():
        match = _NAME.fullmatch(name)
        assert match is not None
        margins = recording.get("table_margins", {}).get(name)
        found[name] = Table(name, match[1], tuple(map(tuple, drafts)), margins and tuple(map(tuple, margins)))
    drafts_s = {name: tuple(seconds) for name, seconds in costs["draft_s"].items()}
    return WhatIf(text, found, Costs(tuple(costs["verify_s"]), drafts_s))
