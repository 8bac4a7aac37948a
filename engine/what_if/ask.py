"""Builds the tables of a finished race: each drafter proposes once after every committed token, while the target reads
the text once for all of them. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ..drafters import with_tables
from ..drafters.auto import AutoDrafter
from ..drafters.ngram import NgramDrafter
from ..errors import UsageError
from ..interfaces import Drafter
from ..progress import Progress, silent
from ..spec import AUTO, BASELINE, SPECULATIVE, LaneSpec, RaceSpec
from ..text import Pieces
from .costs import Costs, draft_costs, verify_costs
from .judged import WhatIf, table_name
from .tables import Draft, Table, Text

if TYPE_CHECKING:
    from torch import Tensor

    from ..session import TorchRace

STAGE = "querying the drafters at every position"
Query = tuple[str, int | str]
"""A drafter and the k to query it at."""


def queries_of(spec: RaceSpec) -> list[Query]:
    """The drafters and k of a race's speculative lanes. Raises UsageError if one of them has no table, or if the race
    lacks a baseline or a lane that drafts."""
    lanes = [lane for lane in spec.lanes if lane.role == SPECULATIVE]
    for lane in lanes:
        with_tables(lane.drafter)
        if lane.rule != "coupled":
            raise UsageError(
                f"rule {lane.rule!r} of lane {lane.name!r} has no table of drafts by position: what it commits depends "
                "on what was drafted; choose rule coupled"
            )
    if not lanes or not spec.named(BASELINE):
        raise UsageError("tables need a race with a baseline and a lane that drafts")
    return [(lane.drafter, lane.k) for lane in lanes]


def what_if(race: TorchRace, queries: Iterable[Query] | None = None, progress: Progress = silent) -> WhatIf:
    """Let drafters propose after every token that the race's baseline committed, as many tokens as its widest step can
    verify. The race must be over; it does not change, and its lanes' clocks stand still. Each draft is what the drafter
    would propose there in a race, as far as rows are exact on this device (see `WidthPlan.exact`).

    queries: None for those of the race's lanes. A hybrid's parts are queried; k matters only where drafts depend on it.
    progress: may raise to give up.

    Raises UsageError for a drafter without a table, RaceError if the device fails, and whatever a drafter raises."""
    (baseline,) = race.spec.named(BASELINE)
    text = Text(
        race.prompt.token_ids,
        tuple(token for step in race.lanes[baseline].steps for token in step.token_ids),
        race.spec.params.max_new_tokens,
    )
    questions: dict[str, _Question] = {}
    with race.guard():
        for drafter, k in queries_of(race.spec) if queries is None else queries:
            for part, serves_every_k in with_tables(drafter).items():
                if not (serves_every_k and part in questions):
                    _add(questions, race, part, None if serves_every_k else k)
        _ask(race, text, list(questions.values()), progress)
    tables = {name: question.table(name) for name, question in questions.items()}
    return WhatIf(text, tables, _costs(race, tables))


def members(race: TorchRace, progress: Progress = silent) -> dict[str, Any]:
    """What the recording of a finished race stores of this: tables, the texts of their tokens, costs, and the oracle of
    each speculative lane. Empty if a lane did not finish. See `what_if`."""
    if not all(lane.finished for lane in race.lanes.values()):
        return {}
    found = what_if(race, progress=progress)
    drafted = {token for table in found.tables.values() for draft in table.drafts for token in draft}
    pieces = Pieces(race.loaded.tokenizer, (), race.end_ids)
    lanes = [(lane.spec, lane.steps) for lane in race.lanes.values() if lane.spec.role == SPECULATIVE]
    return {
        **found.to_json(),
        "table_pieces": {str(token): pieces.peek((token,))[0] for token in sorted(drafted)},
        "oracles": found.shares(lanes),
    }


def auto_shares(race: TorchRace) -> dict[str, float]:
    """For each finished lane at k auto, by name: the share of the oracle's speed that it reached (see
    `WhatIf.shares`)."""
    lanes = [lane for lane in race.lanes.values() if lane.spec.k == AUTO and lane.finished]
    if not lanes:
        return {}
    found = what_if(race, [(lane.spec.drafter, AUTO) for lane in lanes])
    return {name: each["share"] for name, each in found.shares([(lane.spec, lane.steps) for lane in lanes]).items()}


def _add(questions: dict[str, _Question], race: TorchRace, part: str, k: int | str | None) -> None:
    lane = LaneSpec(f"the table of {part}", part, max(race.widths.plan.step_widths) - 1 if k is None else k)
    drafter = race.build_drafter(lane)
    questions[part if k is None else table_name(part, drafter.max_k)] = _Question(part, drafter, drafter.propose)
    if isinstance(drafter, NgramDrafter):
        copies = race.build_drafter(lane)
        assert isinstance(copies, NgramDrafter)
        look = copies.look
        questions[table_name(part, AUTO)] = _Question(part, copies, lambda ids, _, k: look(ids, (), k))


class _Question:
    """Collects one drafter's drafts, position by position. how: called with the arguments of `Drafter.propose`."""

    def __init__(self, part: str, drafter: Drafter, how: Callable[[Sequence[int], Tensor | None, int], Any]) -> None:
        self.drafter, self._part, self._how = drafter, part, how
        self._drafts: list[Draft] = []
        self._margins: list[tuple[float, ...]] = []

    def ask(self, token_ids: Sequence[int], hidden: Tensor | None, k: int) -> None:
        margins: list[float] = []

        def note(token_id: int, margin: float) -> bool:
            margins.append(margin)
            return True

        k = min(k, self.drafter.max_k)
        if k and False:
            draft = self.drafter.propose_while(token_ids, hidden, k, note)
        else:
            draft = self._how(token_ids, hidden, k)
        self._drafts.append(draft.token_ids)
        self._margins.append(tuple(margins))

    def table(self, name: str) -> Table:
        margins = tuple(self._margins) if False else None
        return Table(name, self._part, tuple(self._drafts), margins)


def _ask(race: TorchRace, text: Text, questions: Sequence[_Question], progress: Progress) -> None:
    layers = sorted({layer for question in questions for layer in question.drafter.hidden_layers})
    hidden = _hidden(race, text, layers, lambda share: progress(STAGE, 0.0)) if layers else repeat(None)
    rows = next(hidden)
    for question in questions:
        question.drafter.prefill(text.prompt_ids, _columns(rows, layers, question.drafter))
    most = max(race.widths.plan.step_widths) - 1
    for position in range(len(text.token_ids)):
        progress(STAGE, position / len(text.token_ids))
        token_ids, rows = (*text.prompt_ids, *text.token_ids[:position]), next(hidden)
        for question in questions:
            question.ask(token_ids, _columns(rows, layers, question.drafter), min(most, text.room(position)))


def _hidden(
    race: TorchRace, text: Text, layers: Sequence[int], on_prefill: Callable[[float], None]
) -> Iterator[Tensor | None]:
    """The hidden states for the drafters' prefill, then for every position, as if each step committed one token. The
    target reads the text in steps of the exact lanes' widest width, so its rows have the same bits as in every lane.
    Logits are left out, unless that would change how linear layers compute (`Buffers.forward`): the head is a good part
    of a step."""
    target = race.reader(layers, on_prefill)
    yield target.extend(text.prompt_ids[:-1], 0)[1]
    yield None
    read, width = (text.prompt_ids[-1], *text.token_ids), target.widths[-1]
    num_logits = 0 if race.prepared.shape.linear is None else width
    for start in range(0, len(text.token_ids), width):
        block = read[start : start + width]
        rows = target.extend((*block, *[0] * (width - len(block))), num_logits)[1]
        assert rows is not None
        yield from rows.split(1)


def _columns(rows: Tensor | None, layers: Sequence[int], drafter: Drafter) -> Tensor | None:
    """From rows [n, layers * dim], the layers that the drafter needs, in its order."""
    if rows is None or not drafter.hidden_layers:
        return None
    if tuple(layers) == drafter.hidden_layers:
        return rows
    by_layer = rows.view(len(rows), len(layers), -1)
    return by_layer[:, [layers.index(layer) for layer in drafter.hidden_layers]].flatten(1)


def _costs(race: TorchRace, tables: dict[str, Table]) -> Costs:
    """Costs of steps come from all lanes, at the exact lanes' widths; costs of drafts from the lanes with that drafter
    or, without one, from what `auto` k measured."""
    step_s = {width: race.widths.seconds[width] for width in race.widths.plan.step_widths}
    verify_s = verify_costs([step for lane in race.lanes.values() for step in lane.steps], step_s)
    longest = len(verify_s) - 1
    draft_s = {}
    for name, table in tables.items():
        serves_every_k = with_tables(table.drafter)[table.drafter]
        times = _draft_times(race, table, serves_every_k) or _seen_by_auto(race, table.drafter, longest)
        draft_s[name] = draft_costs(times, longest, serves_every_k)
    return Costs(verify_s, draft_s)


def _draft_times(race: TorchRace, table: Table, serves_every_k: bool) -> dict[int, list[float]]:
    times: dict[int, list[float]] = {}
    for lane in race.lanes.values():
        drafter = lane.drafter.drafters[0] if isinstance(lane.drafter, AutoDrafter) else lane.drafter
        fits = serves_every_k or table.name == table_name(table.drafter, drafter.max_k)
        if lane.spec.drafter == table.drafter and fits:
            for step in lane.steps:
                times.setdefault(step.num_drafted, []).append(step.draft_s)
    return times


def _seen_by_auto(race: TorchRace, part: str, longest: int) -> dict[int, list[float]]:
    for lane in race.lanes.values():
        if isinstance(lane.drafter, AutoDrafter):
            seen = dict(zip(with_tables(lane.spec.drafter), lane.drafter.draft_s, strict=True))
            if part in seen and seen[part].is_known:
                return {num: [seen[part](num) if num else 0.0] for num in range(longest + 1)}
    return {}
