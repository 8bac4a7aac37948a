"""The tables of a recording, which may come from a stranger. Standard library only."""
# Twin: the constructor in app/race_view/whatif.js; compared by test_a_table_of_another_race_is_refused_in_the_browser.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UsageError
from ..events import Step, steps
from ..recordings.recording import events_of, spec_of, token_ids
from ..spec import AUTO, BASELINE
from ..strict_json import short
from .costs import Costs
from .judged import WhatIf, table_name
from .tables import Table, Text

_NAME = re.compile(r"(.*?)(?:@(?:[1-9][0-9]?|auto))?", re.DOTALL)
"""See `table_name`."""


def what_if_of(recording: Mapping[str, Any]) -> WhatIf | None:
    """What a checked recording tells of every k; None where it carries no tables or no costs.

    Raises UsageError where nothing was written, and for a table that is not of this race: it has fewer drafts than the
    baseline committed tokens, or a lane of that very drafter, at a fixed k and under rule `coupled`, drafted otherwise
    while it wrote the baseline's text."""
    tables, costs = recording.get("tables"), recording.get("costs")
    if not tables or not costs:
        return None
    spec, events = spec_of(recording), events_of(recording)
    written = [token for name in spec.named(BASELINE) for token in token_ids(events, name)]
    if not written:
        raise UsageError("the race has no baseline that committed a token, so no table can be of it")
    text = Text(tuple(recording["prompt"]["token_ids"]), tuple(written), spec.params.max_new_tokens)
    found: dict[str, Table] = {}
    for name, drafts in tables.items():
        match = _NAME.fullmatch(name)
        assert match is not None
        margins = recording.get("table_margins", {}).get(name)
        found[name] = Table(name, match[1], tuple(map(tuple, drafts)), margins and tuple(map(tuple, margins)))
        if len(drafts) < len(written):
            raise _not_of(name, f"it has {len(drafts)} drafts, and the baseline committed {len(written)} tokens")
    for lane in spec.lanes:
        for name in (lane.drafter, table_name(lane.drafter, lane.k)):
            if lane.k != AUTO and lane.rule == "coupled" and name in found:
                _check(found[name], text, lane.name, steps(events, lane.name))
    drafts_s = {name: tuple(seconds) for name, seconds in costs["draft_s"].items()}
    return WhatIf(text, found, Costs(tuple(costs["verify_s"]), drafts_s))


def _check(table: Table, text: Text, lane: str, done: Sequence[Step]) -> None:
    for step in done:
        end = step.position + len(step.token_ids)
        if end > len(text.token_ids):
            return
        if step.drafted != table.drafts[step.position][: len(step.drafted)]:
            raise _not_of(table.name, f"step {step.index} of lane {short(lane)} drafted other tokens")
        if step.token_ids != text.token_ids[step.position : end]:
            return


def _not_of(table: str, why: str) -> UsageError:
    return UsageError(f"the table of {short(table)} is not of this race: {why}")
