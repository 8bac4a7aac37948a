"""The tables of a race that was held: its drafters are asked once after every committed token, while the target reads
the text once for all of them. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ..drafters import with_tables
from ..drafters.auto import AutoDrafter
from ..drafters.ngram import NgramDrafter
from ..errors import UsageError
from ..interfaces import Drafter, MarginDrafter
from ..progress import Progress, silent
from ..spec import AUTO, BASELINE, SPECULATIVE, LaneSpec, RaceSpec
from ..text import Pieces
from .costs import Costs, draft_costs, verify_costs
from .judged import WhatIf, table_name
from .tables import Draft, Table, Text

if TYPE_CHECKING:
    from torch import Tensor

    from ..session import TorchRace

STAGE = "asking the drafters at every position"
Asked = tuple[str, int | str]
"""A drafter, and a k that it is to be asked at."""


def asked_of(spec: RaceSpec) -> list[Asked]:
    """What the speculative lanes of a race ask for. Raises UsageError where one has no table, or nothing drafts."""
    lanes = [lane for lane in spec.lanes if lane.role == SPECULATIVE]
    for lane in lanes:
        with_tables(lane.drafter)
        if lane.rule != "coupled":
            raise UsageError(
                f"rule {lane.rule!r} of lane {lane.name!r} has no table of drafts by position: what it commits depends "
                "on what was drafted; choose rule coupled"
            )
    if not lanes or not spec.named(BASELINE):
        raise UsageError("tables are of a race with a baseline and a lane that drafts")
    return [(lane.drafter, lane.k) for lane in lanes]


def what_if(race: TorchRace, asked: Iterable[Asked] | None = None, progress: Progress = silent) -> WhatIf:
    """Ask each of these drafters (None: those of the race's lanes) after every token that the race's baseline
    committed, for as many tokens as its widest step can verify. A hybrid's parts are asked; a drafter whose draft may
    depend on its k is asked at that k.

    The race has to be over: nothing of it changes, and its lanes' clocks stand. What a table says is what the drafter
    proposes there in a race, as far as rows are exact on this device (see `WidthPlan.exact`). `progress` may raise to
    give up. Raises UsageError for a drafter without a table, and whatever a drafter raises."""
    (baseline,) = race.spec.named(BASELINE)
    text = Text(
        race.prompt.token_ids,
        tuple(token for step in race.lanes[baseline].steps for token in step.token_ids),
        race.spec.params.max_new_tokens,
    )
    questions: dict[str, _Question] = {}
    for drafter, k in asked_of(race.spec) if asked is None else asked:
        for part, serves_every_k in with_tables(drafter).items():
            if not (serves_every_k and part in questions):
                _add(questions, race, part, None if serves_every_k else k)
    _ask(race, text, list(questions.values()), progress)
    tables = {name: question.table(name) for name, question in questions.items()}
    return WhatIf(text, tables, _costs(race, tables))


def members(race: TorchRace, progress: Progress = silent) -> dict[str, Any]:
    """What the recording of a finished race holds of all this: tables with the texts of their tokens, costs, and of
    each speculative lane the oracle; nothing where a lane did not finish. See `what_if`."""
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
    """Of each lane at k auto that finished, by name: the part of the oracle's speed that it reached (see
    `WhatIf.shares`)."""
    lanes = [lane for lane in race.lanes.values() if lane.spec.k == AUTO and lane.finished]
    if not lanes:
        return {}
    found = what_if(race, [(lane.spec.drafter, AUTO) for lane in lanes])
    return {name: of["share"] for name, of in found.shares([(lane.spec, lane.steps) for lane in lanes]).items()}


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
    """What one drafter says, position by position; how: what to call for what `Drafter.propose` is given."""

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
        if k and isinstance(self.drafter, MarginDrafter):
            draft = self.drafter.propose_while(token_ids, hidden, k, note)
        else:
            draft = self._how(token_ids, hidden, k)
        self._drafts.append(draft.token_ids)
        self._margins.append(tuple(margins))

    def table(self, name: str) -> Table:
        margins = tuple(self._margins) if isinstance(self.drafter, MarginDrafter) else None
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
    """What a drafter is given at its prefill, then at every position if each step commits one token. The target goes
    through the text in steps of the exact lanes' widest width: their rows have the bits that every lane's had. Without
    logits, unless linear layers would then compute otherwise (`Buffers.forward`): the head is a good part of a step."""
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
    """Of rows [n, layers * dim] those that the drafter asked for, in its order."""
    if rows is None or not drafter.hidden_layers:
        return None
    if tuple(layers) == drafter.hidden_layers:
        return rows
    by_layer = rows.view(len(rows), len(layers), -1)
    return by_layer[:, [layers.index(layer) for layer in drafter.hidden_layers]].flatten(1)


def _costs(race: TorchRace, tables: dict[str, Table]) -> Costs:
    """Of steps: of all lanes at the exact lanes' widths. Of drafts: of lanes of that very drafter; where there is none,
    what `auto` k has seen of it."""
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
