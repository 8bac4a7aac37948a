"""Reads the tables of a checked recording. Standard library only."""

import re
from itertools import repeat

from ..analysis.costs import Costs
from ..core.errors import UsageError
from ..core.events import token_ids
from ..core.interfaces import Draft
from ..core.spec import BASELINE
from ..recordings.recording import Recording
from .judged import WhatIf
from .tables import Table, Text

MAX_WORK = 500_000  # Limit on tables times tokens times step lengths. A race on the page has at most 6 * 1,000 * 64.
_NAME = re.compile(r"(.*?)(?:@(?:[1-9][0-9]?|tree))?", re.DOTALL)  # see `table_name`
OLD = "@auto"  # ends the names of tables that older versions kept for `auto` k


def what_if_of(recording: Recording) -> WhatIf | None:
    """The tables and costs of a recording; None if it lacks either.

    Raises UsageError if computing with them would exceed MAX_WORK."""
    tables = {name: drafts for name, drafts in recording.get("tables", {}).items() if not name.endswith(OLD)}
    costs = recording.get("costs")
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
    by_name: dict[str, Table] = {}
    for name, drafts in tables.items():
        match = _NAME.fullmatch(name)
        assert match is not None
        rows = zip(drafts, recording.get("table_parents", {}).get(name, repeat(())), strict=False)
        made = (Draft(tuple(ids), parents=tuple(follows)) for ids, follows in rows)
        by_name[name] = Table(name, match[1], tuple(made))
    drafts_s = {name: tuple(costs["draft_s"][name]) for name in by_name}
    return WhatIf(text, by_name, Costs(tuple(costs["verify_s"]), drafts_s), recording.get("drawn", {}))
